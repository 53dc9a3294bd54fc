"""Slipstream: distributed deep learning at close to the speed of the wire."""

__version__: str

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # imported here because it takes 20 ms

        return version("slipstream")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
