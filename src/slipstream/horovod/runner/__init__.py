"""Modules of horovod.runner for scripts that import from it."""
