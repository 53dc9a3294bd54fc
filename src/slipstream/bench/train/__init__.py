"""Benchmark of complete training over Slipstream and over gloo."""
