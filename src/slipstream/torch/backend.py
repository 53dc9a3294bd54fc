"""The name by which PyTorch knows the backend. Importing this module imports nothing else."""

BACKEND_NAME = "slipstream"
