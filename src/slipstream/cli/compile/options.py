"""Options of `slipstream compile`, and the parsers of their texts."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from slipstream import infer
from slipstream.cli.options import split_list
from slipstream.errors import UsageError

# Groups of options in --help.
MODEL, SEARCH, PACKAGE, IMAGES = "Model", "Search", "Inputs and outputs of the package", "Images"
BOX_SETTINGS = "iou=0.45,score=0.25,most=100,layout=yolov8"


class TargetChoice(str, Enum):
    """Quantity that the search minimises."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    MEMORY = "memory"


Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="Samples: .npz file; folder of images, .npy or .npz files; or function that returns"
        " samples, package.module:function or path.py:function.",
    ),
]
Budget = Annotated[
    str,
    typer.Option(metavar="POINTS", help="Allowed loss of top-1 accuracy, if the data has labels."),
]
Snr = Annotated[
    float | None,
    typer.Option(
        metavar="DB",
        show_default="20 without labels",
        help="Minimum signal-to-noise ratio of the outputs in dB.",
    ),
]
Agreement = Annotated[
    str,
    typer.Option(
        metavar="PERCENT",
        help="Minimum share of predicted classes that equal MODEL's, if the data has no labels.",
    ),
]
Engines = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        rich_help_panel=SEARCH,
        show_default="all of --list",
        help="Engines to try, separated by commas.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        rich_help_panel=SEARCH,
        help="Device to compile for: cpu, cuda, cuda:1 for the second GPU, or auto for all."
        " Compiling for GPUs was never run on a GPU.",
    ),
]
Without = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        rich_help_panel=SEARCH,
        show_default="none",
        help="Graph rewrites to leave out, separated by commas.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        rich_help_panel=MODEL,
        help="Shape of an input whose sizes MODEL leaves open: image=1,3,224,224; may be repeated.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=MODEL,
        show_default="the file beside MODEL",
        help="Weights file of a Caffe or MXNet model.",
    ),
]
Pixels = Annotated[
    bool,
    typer.Option(
        "--pixels",
        rich_help_panel=PACKAGE,
        help="Accept JPEG and PNG files, and uint8 arrays of shape (n, height, width, channels).",
    ),
]
Top = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=PACKAGE,
        show_default="all scores",
        help="Number of labels to return, chosen by the highest scores.",
    ),
]
Boxes = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        rich_help_panel=PACKAGE,
        help=f"Return the best boxes without overlaps; SETTINGS: all or part of {BOX_SETTINGS}.",
    ),
]
Size = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=IMAGES,
        show_default="8/7 of the input",
        help="Pixels to which an image's shorter side is resized before the centre is cropped.",
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        rich_help_panel=IMAGES,
        show_default="ImageNet's",
        help="Mean of all channels, or one for each channel: 0.485,0.456,0.406.",
    ),
]
Std = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        rich_help_panel=IMAGES,
        show_default="ImageNet's",
        help="Standard deviation of all channels, or one for each channel: 0.229,0.224,0.225.",
    ),
]


def parse_percent(text: str, name: str) -> float:
    """Return the number in `0.3%` or `0.3`; raise UsageError for other texts."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if match is None:
        raise UsageError(f"{name} is {text!r}; allowed: percentage points such as 0.3%")
    return float(match[1])


def parse_boxes(text: str) -> infer.BoxOptions:
    """Return the options in a text with some or all of the parts of `BOX_SETTINGS`."""
    kinds = {"iou": float, "score": float, "most": int, "layout": str}
    try:
        pairs = [part.split("=") for part in split_list(text)]
        return infer.BoxOptions(**{name: kinds[name](value) for name, value in pairs})  # pyright: ignore[reportArgumentType]
    except (ValueError, KeyError) as error:
        raise UsageError(f"--boxes is {text!r}; allowed: {BOX_SETTINGS}, or some of it") from error


def parse_images(size: int | None, mean: str | None, std: str | None) -> infer.ImageOptions:
    """Return the options for reading images, from the texts of --size, --mean and --std."""
    default = infer.ImageOptions()
    return infer.ImageOptions(
        size=size,
        mean=default.mean if mean is None else _numbers("--mean", mean),
        std=default.std if std is None else _numbers("--std", std),
    )


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}; allowed: 0.5 or 0.485,0.456,0.406") from error
