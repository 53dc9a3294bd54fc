"""Benchmarks of Slipstream. Importing this package imports no framework."""
