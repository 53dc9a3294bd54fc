"""Name of the backend in PyTorch, in a module that imports nothing else."""

BACKEND_NAME = "slipstream"
