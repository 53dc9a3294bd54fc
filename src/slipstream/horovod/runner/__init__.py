"""Horovod's modules of this name, for scripts that import from them."""
