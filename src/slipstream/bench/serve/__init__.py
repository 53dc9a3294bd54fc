"""Comparison of Slipstream's server with a FastAPI server that runs the same model."""
