"""A server beside FastAPI around the same engine."""
