"""Benchmark of our server beside FastAPI with the same engine."""
