"""Modules of horovod.runner.util for scripts that import from it."""
