"""Options of a compilation, in one object. The command line or a Python caller makes the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.infer.images.reader import ImageOptions
from slipstream.infer.machine import usable_cores
from slipstream.infer.outputs.boxes import BoxOptions
from slipstream.infer.search.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions(Objective):
    """Options of a compilation; all have a default.

    `Objective`, the base class, describes the objective and the limits of the search.

    Args:
        threads: Number of threads of one call (default: all cores that this process may use).
        example_inputs: Example arrays for a model that is a Python object, such as a PyTorch module
            or a function, in the order of its arguments or by argument name.
        shapes: Shapes for inputs whose dimensions the model leaves open, by input name.
        weights: File of the weights, such as net.caffemodel, if the model does not contain them
            (default: the file beside the model).
        data: Samples for calibration and comparison: a folder, an .npz file,
            "package.module:loader" or an iterable; see `slipstream.infer.data.load_data`. Without
            samples, int8 is not tried.
        images: Options for reading a folder of images (default `ImageOptions()`).
        pixels: Whether the input of the package is raw pixels, as a camera or an image decoder
            gives them: uint8 of the shape (n, height, width, channels) (default False). Such a
            package also takes image files of any size, reads them according to `images`, and
            normalises the pixels in its graph. The samples must be raw pixels, too.
        top: Number of classes to return (default None: the scores of all classes are returned). If
            `top` is given, the package returns only the `labels` and `scores` of the classes with
            the highest scores.
        boxes: Rules that select the boxes with the highest scores, and leave out boxes that overlap
            them (default None: all boxes are returned). If rules are given, the package returns
            only the selected `boxes`, with their `scores`, `labels` and `counts`. See
            `slipstream.infer.outputs.boxes.with_boxes`.
    """

    threads: int = field(default_factory=usable_cores)
    example_inputs: object = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    weights: str | Path | None = None
    data: Any = None
    images: ImageOptions = field(default_factory=ImageOptions)
    pixels: bool = False
    top: int | None = None
    boxes: BoxOptions | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for options outside of the allowed ranges."""
        Objective.__post_init__(self)
        if self.top is not None and self.boxes is not None:
            raise UsageError("top and boxes are both given; a model has classes, or boxes")
