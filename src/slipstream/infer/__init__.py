"""Models compiled to the fastest correct form on this machine.

    from slipstream import infer

    infer.compile("model.onnx", "model.slip", data="pictures/")
    model = infer.load("model.slip")
    logits = model(image)

Needs what `pip install 'slipstream[infer]'` brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy

if TYPE_CHECKING:
    from slipstream.infer.compiler import compile_model as compile  # noqa: A004
    from slipstream.infer.images.pictures import PictureOptions as PictureOptions
    from slipstream.infer.outputs.boxes import BoxOptions as BoxOptions
    from slipstream.infer.package.report import Report as Report
    from slipstream.infer.run.session import Model as Model
    from slipstream.infer.run.session import load as load
    from slipstream.infer.run.stream import ItemError as ItemError

__all__ = ["BoxOptions", "ItemError", "Model", "PictureOptions", "Report", "compile", "load"]

# ONNX and the engines take a second to import.
__getattr__ = lazy.attributes(
    "slipstream.infer",
    "infer",
    {
        "BoxOptions": "slipstream.infer.outputs.boxes:BoxOptions",
        "ItemError": "slipstream.infer.run.stream:ItemError",
        "Model": "slipstream.infer.run.session:Model",
        "PictureOptions": "slipstream.infer.images.pictures:PictureOptions",
        "Report": "slipstream.infer.package.report:Report",
        "compile": "slipstream.infer.compiler:compile_model",
        "load": "slipstream.infer.run.session:load",
    },
)
