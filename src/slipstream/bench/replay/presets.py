"""Published training set-ups, scaled to simulated hosts: fewer ones, with slower links.

Compute is slowed down by the same factor as the network: the time of an allreduce on the simulated
links divided by its time on the published links. Therefore the ratio of compute to communication
stays the same, even if there are fewer simulated hosts. A simulated host is one process, which
represents all processes of a published host. Communication inside a host takes no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.bench.limits import HostNetwork
from slipstream.bench.models import ReplayModel, model
from slipstream.errors import UsageError

REFERENCE = "resnet50"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """A published training set-up.

    Args:
        name: Name on the command line.
        hosts: Number of connected hosts.
        gpus_per_host: Number of GPUs in each host, for readers only.
        gpu: Name of the GPUs, for readers only.
        gbit_per_second: Rate of each host's link in Gbit/s.
        measured: Published seconds of a step without communication, by name of the model. The
            batch size is that of the `ReplayModel`.
        flops_per_second: FLOP/s that models without a published time are assumed to reach: those of
            ResNet-50.
    """

    name: str
    hosts: int
    gpus_per_host: int
    gpu: str
    gbit_per_second: float
    measured: Mapping[str, float]
    flops_per_second: float = field(init=False)

    def __post_init__(self) -> None:
        """Compute the FLOP/s from the published step of ResNet-50."""
        reference = model(REFERENCE)
        speed = _step_flops(reference) / self.measured[REFERENCE]
        object.__setattr__(self, "flops_per_second", speed)

    def step_seconds(self, replayed: ReplayModel) -> float:
        """Return the published seconds of a step; if none are published, estimate from the FLOPs.

        Args:
            replayed: Model with its batch size.
        """
        return self.measured.get(replayed.name, _step_flops(replayed) / self.flops_per_second)

    def slowdown(self, network: HostNetwork) -> float:
        """Return the factor by which the compute is slowed down on a network.

        Args:
            network: Simulated network, of at least two hosts.
        """
        published = HostNetwork(hosts=self.hosts, bits_per_second=1e9 * self.gbit_per_second)
        return network.allreduce_seconds(1) / published.allreduce_seconds(1)

    def __str__(self) -> str:
        gpus = f"{self.hosts} x {self.gpus_per_host} {self.gpu}"
        return f"{gpus}, {self.gbit_per_second:g} Gbit/s a host"


def _step_flops(replayed: ReplayModel) -> float:
    """Return the FLOPs of the forward and backward passes of one batch."""
    return 3.0 * replayed.flops * replayed.batch


# Measured with mixed precision on one GPU: ResNet-50 and VGG16 with batch size 64, BERT-base with
# 64 sequences of 128 tokens.
V100_SECONDS = {"resnet50": 0.055, "vgg16": 0.097, "bert-base": 0.144}

# Batch size divided by images per second, measured in TensorFlow with fp32 on one GPU, with
# synthetic data and batch size 64.
P100_SECONDS = {
    "inception-v3": 64 / 142,
    "resnet50": 64 / 219,
    "resnet152": 64 / 91.8,
    "vgg16": 64 / 154,
}

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="v100-4x8",
            hosts=4,
            gpus_per_host=8,
            gpu="V100",
            gbit_per_second=30,
            measured=V100_SECONDS,
        ),
        Preset(
            name="v100-16x8",
            hosts=16,
            gpus_per_host=8,
            gpu="V100",
            gbit_per_second=32,
            measured=V100_SECONDS,
        ),
        Preset(
            name="p100-16x8",
            hosts=16,
            gpus_per_host=8,
            gpu="P100",
            gbit_per_second=25,
            measured=P100_SECONDS,
        ),
    )
}


def preset(name: str) -> Preset:
    """Return the published training set-up with this name.

    Raises:
        UsageError: the name is unknown.
    """
    if name not in PRESETS:
        raise UsageError(f"the preset is {name!r}; allowed: {', '.join(PRESETS)}")
    return PRESETS[name]
