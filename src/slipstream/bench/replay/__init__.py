"""The gradients of a training step, replayed over several stacks."""
