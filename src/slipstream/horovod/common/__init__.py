"""Modules of horovod.common for scripts that import from it; the modules need no framework."""
