"""Benchmarks that compare forecasts with measurements on emulated hosts and on this machine."""
