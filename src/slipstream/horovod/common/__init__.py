"""Modules of horovod.common, for scripts that import from them; they need no framework."""
