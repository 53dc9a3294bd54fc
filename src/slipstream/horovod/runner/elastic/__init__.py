"""Modules of horovod.runner.elastic for scripts that import from it."""
