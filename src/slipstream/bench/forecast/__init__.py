"""Benchmarks that compare forecasts with measurements, in the lab and on this machine."""
