"""Modules of horovod.runner.common for scripts that import from it."""
