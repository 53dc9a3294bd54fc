"""Benchmark that compares Slipstream with other pipelines from JPEG files to predicted labels."""
