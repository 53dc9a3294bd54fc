"""Name of the backend in PyTorch; this module imports no other module, so that it loads fast."""

BACKEND_NAME = "slipstream"
