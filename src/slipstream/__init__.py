"""Slipstream: distributed deep learning at close to the speed of the wire."""

from importlib.metadata import version as _version

__version__: str = _version("slipstream")

__all__ = ["__version__"]
