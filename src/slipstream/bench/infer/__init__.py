"""Benchmark of the latency and accuracy of models, beside other inference engines."""
