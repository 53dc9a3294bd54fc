"""Computation of one training step, and its division among devices."""
