"""Models compiled to the fastest correct form on this machine.

    from slipstream import infer

    infer.compile("model.onnx", "model.slip", data="pictures/")
    model = infer.load("model.slip")
    logits = model(image)

Needs what `pip install 'slipstream[infer]'` brings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from slipstream.errors import UnsupportedError

if TYPE_CHECKING:
    from slipstream.infer.boxes import BoxOptions as BoxOptions
    from slipstream.infer.compiler import compile_model as compile  # noqa: A004
    from slipstream.infer.pictures import PictureOptions as PictureOptions
    from slipstream.infer.report import Report as Report
    from slipstream.infer.serving.server import serve as serve
    from slipstream.infer.session import Model as Model
    from slipstream.infer.session import load as load
    from slipstream.infer.stream import ItemError as ItemError

# ONNX and the engines take a second to import: they come when something is used.
_LATER = {
    "BoxOptions": ("slipstream.infer.boxes", "BoxOptions"),
    "ItemError": ("slipstream.infer.stream", "ItemError"),
    "PictureOptions": ("slipstream.infer.pictures", "PictureOptions"),
    "compile": ("slipstream.infer.compiler", "compile_model"),
    "load": ("slipstream.infer.session", "load"),
    "Model": ("slipstream.infer.session", "Model"),
    "Report": ("slipstream.infer.report", "Report"),
    "serve": ("slipstream.infer.serving.server", "serve"),
}
_EXTRAS = {"serve": "serve"}

__all__ = [
    "BoxOptions",
    "ItemError",
    "Model",
    "PictureOptions",
    "Report",
    "compile",
    "load",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slipstream"):
            raise
        raise UnsupportedError(
            f"slipstream.infer needs the package {error.name};"
            f" pip install 'slipstream[{_EXTRAS.get(name, 'infer')}]'"
        ) from error
