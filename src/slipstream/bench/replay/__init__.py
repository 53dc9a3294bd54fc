"""Replay of training steps: several libraries communicate gradients of the size of real models'."""
