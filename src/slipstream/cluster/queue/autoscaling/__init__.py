"""Scaling: how many machines there should be, how many each job has, and who makes them."""
