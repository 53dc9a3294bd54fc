"""Simulation of a training step to forecast its duration."""
