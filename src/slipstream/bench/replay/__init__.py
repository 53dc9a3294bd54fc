"""Replay of training steps, in which libraries communicate the gradients of real models."""
