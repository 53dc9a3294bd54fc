"""Options that the commands of `slipstream forecast` share, and the parsers of their texts."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import OUTPUT, file_option
from slipstream.errors import UsageError

# Groups of options in --help.
HARDWARE, TRAINING = "Hardware", "Training"
COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


class PrecisionChoice(str, Enum):
    """Data types of matrix products."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"


class OptimizerChoice(str, Enum):
    """Optimizers."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"


class CodecChoice(str, Enum):
    """Compression of gradients between hosts."""

    NONE = "none"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    ANY = "any"


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model: architecture, file, package.module:function or path.py:function.",
    ),
]
Batch = Annotated[
    int,
    typer.Option(min=1, help="Global batch size: samples per step over all devices."),
]
Shape = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        show_default="the model defines it",
        help="Shape of a sample: 3,224,224.",
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option(min=1, show_default="as in its training", help="Number of tokens in a sequence."),
]
Optimizer = Annotated[
    OptimizerChoice,
    typer.Option(
        rich_help_panel=TRAINING, help="Optimizer; it determines the memory of optimizer states."
    ),
]
HardwareFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=HARDWARE,
        help="File of devices, links, cloud offers or measured speeds, or a folder of such files.",
    ),
]
Samples = Annotated[int | None, typer.Option(min=1, help="Samples per epoch.")]
Epochs = Annotated[float | None, typer.Option(help="Number of epochs of the whole training.")]
TotalTokens = Annotated[
    str | None,
    typer.Option(metavar="COUNT", help="Number of tokens of the whole training: 1.5T, 15e12."),
]
Deadline = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Maximum time of the whole training: 90m, 36h, 5d."),
]
Budget = Annotated[
    str | None,
    typer.Option(metavar="DOLLARS", help="Maximum cost of the whole training."),
]
Gpus = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        rich_help_panel=HARDWARE,
        show_default="all",
        help="Devices to rent: A100,H100.",
    ),
]
Clouds = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        rich_help_panel=HARDWARE,
        show_default="all",
        help="Clouds to rent from: aws,gcp.",
    ),
]
Spot = Annotated[
    bool, typer.Option("--spot", rich_help_panel=HARDWARE, help="Include spot markets.")
]
Own = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        rich_help_panel=HARDWARE,
        help="Hosts that you own, such as 8xA100, in place of clouds.",
    ),
]
MaxHosts = Annotated[
    int | None,
    typer.Option(min=1, rich_help_panel=HARDWARE, help="Maximum number of --own hosts."),
]
MaxDevices = Annotated[
    int,
    typer.Option(min=1, rich_help_panel=HARDWARE, help="Maximum number of devices of a plan."),
]
Price = Annotated[
    float | None,
    typer.Option(rich_help_panel=HARDWARE, help="Price of one --own host in $ per hour."),
]
Network = Annotated[
    str | None,
    typer.Option(
        metavar="NETWORK",
        rich_help_panel=HARDWARE,
        help="Network of each host: 100g, infiniband-ndr.",
    ),
]
Alone = Annotated[
    str | None,
    typer.Option(
        metavar="RATE@BATCH",
        rich_help_panel=HARDWARE,
        help="Measured samples/s of one --own device at a micro-batch: 410@64.",
    ),
]
PlanPrecision = Annotated[
    PrecisionChoice | None,
    typer.Option(
        rich_help_panel=TRAINING,
        show_default="16 bits if the device supports them",
        help="Data type of matrix products.",
    ),
]
Runtime = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=TRAINING,
        help="Framework: pytorch2, fsdp, megatron, ...",
    ),
]
Codec = Annotated[
    CodecChoice,
    typer.Option(
        rich_help_panel=TRAINING,
        help="Compression of gradients between hosts; `any` stands for the fastest.",
    ),
]
LocalSteps = Annotated[
    int,
    typer.Option(
        min=1,
        rich_help_panel=TRAINING,
        help="Try local SGD with this number of steps between exchanges; 1 for no local SGD.",
    ),
]
InputRate = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=TRAINING,
        show_default="unlimited",
        help="Samples/s that a host can read and decode.",
    ),
]
NoObservations = Annotated[
    bool,
    typer.Option(
        "--no-observations",
        rich_help_panel=TRAINING,
        help="Do not correct the forecast by earlier runs of `slipstream run --plan`.",
    ),
]
SearchTime = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Time limit of the search: 40s, 5m; one plan is always found."
    ),
]
Top = Annotated[int, typer.Option(min=1, rich_help_panel=OUTPUT, help="Number of plans to show.")]
PlansFile = Annotated[
    Path | None, file_option("-o", "--output", help="File for all plans as JSON.")
]


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the sizes in a text such as `3,224,224`; raise UsageError for anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"the shape is {text!r}; allowed: sizes such as 3,224,224") from error


def parse_alone(text: str) -> tuple[float, int]:
    """Return samples per second and micro-batch from `410@64`; raise UsageError for other texts."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)@(\d+)", text.strip())
    if match is None:
        raise UsageError(
            f"alone is {text!r}; allowed: samples per second @ micro-batch, such as 410@64"
        )
    return float(match[1]), int(match[2])


def parse_count(text: str) -> float:
    """Return the number in `1.5T`, `15e12` or `300,000`; raise UsageError for anything else."""
    match = re.fullmatch(r"(\d[\d,]*(?:\.\d+)?(?:e\d+)?)\s*([kmbgt]?)", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"the number of tokens is {text!r}; allowed: numbers such as 1.5T, 15e12")
    return float(match[1].replace(",", "")) * COUNTS[match[2].lower()]


def parse_dollars(text: str) -> float:
    """Return the number in `500`, `$500` or `1,500`; raise UsageError for anything else."""
    match = re.fullmatch(r"\$?\s*(\d[\d,]*(?:\.\d+)?)", text.strip())
    if match is None:
        raise UsageError(f"the budget is {text!r}; allowed: dollars such as 500")
    return float(match[1].replace(",", ""))
