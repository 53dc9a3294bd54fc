"""Simulation of a training step, which returns its duration."""
