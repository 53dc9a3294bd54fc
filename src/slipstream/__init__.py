"""Slipstream: distributed deep learning at close to the speed of the wire."""

__version__: str

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # 20 ms, which `slipstream --help` does without

        return version("slipstream")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
