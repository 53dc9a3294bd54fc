"""Compile models to the fastest form on this machine that is accurate enough, and run them.

    from slipstream import infer

    infer.compile("model.onnx", "model.slip", infer.CompileOptions(data="images/"))
    model = infer.load("model.slip")
    logits = model(image)

This module needs the packages that `pip install 'slipstream[infer]'` installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy

if TYPE_CHECKING:
    from slipstream.infer.compiler import compile_model as compile  # noqa: A004
    from slipstream.infer.images.reader import ImageOptions as ImageOptions
    from slipstream.infer.options import CompileOptions as CompileOptions
    from slipstream.infer.outputs.boxes import BoxOptions as BoxOptions
    from slipstream.infer.package.report import Report as Report
    from slipstream.infer.run.session import Model as Model
    from slipstream.infer.run.session import load as load
    from slipstream.infer.run.stream import ItemError as ItemError

__all__ = [
    "BoxOptions",
    "CompileOptions",
    "ImageOptions",
    "ItemError",
    "Model",
    "Report",
    "compile",
    "load",
]

# ONNX and the engines take a second to import.
__getattr__ = lazy.attributes(
    "slipstream.infer",
    "infer",
    {
        "BoxOptions": "slipstream.infer.outputs.boxes:BoxOptions",
        "CompileOptions": "slipstream.infer.options:CompileOptions",
        "ImageOptions": "slipstream.infer.images.reader:ImageOptions",
        "ItemError": "slipstream.infer.run.stream:ItemError",
        "Model": "slipstream.infer.run.session:Model",
        "Report": "slipstream.infer.package.report:Report",
        "compile": "slipstream.infer.compiler:compile_model",
        "load": "slipstream.infer.run.session:load",
    },
)
