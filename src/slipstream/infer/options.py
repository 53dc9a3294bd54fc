"""Options of a compilation, as one value that the command line builds."""

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

    They extend the objective and the limits of the search, which `Objective` describes.

    Args:
        threads: Number of threads of one call (default: all cores that this process may use).
        example_inputs: Arrays for a module or function, in the order of its arguments or by name.
        shapes: Shapes of the inputs whose dimensions the model leaves open, by input name.
        weights: File of the weights, such as net.caffemodel, if the model does not contain them
            (default: the file beside the model).
        data: Samples, which int8 needs: a folder, an .npz file, "package.module:loader" or an
            iterable; see `slipstream.infer.data.load_data`.
        images: Options for reading a folder of images (default `ImageOptions()`).
        pixels: Whether the package takes uint8 (n, height, width, channels), the layout of cameras
            and decoders, and image files of any size, read according to `images` (default False).
            The graph then normalises the pixels. The samples must be such pixels, too.
        top: Number of `labels` with the highest `scores` that the package returns in place of all
            scores (default: all scores).
        boxes: Options for returning only the best `boxes` that do not overlap, with their `scores`,
            `labels` and `counts` (default None: all boxes). See
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
