"""Our server beside FastAPI around the same engine."""
