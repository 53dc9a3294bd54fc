"""Replay of training steps: the gradients of real models, communicated by several libraries."""
