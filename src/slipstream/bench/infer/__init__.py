"""Benchmark of the latency and accuracy of models in Slipstream and other inference engines."""
