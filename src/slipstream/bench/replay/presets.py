"""Published settings, scaled to a slower network of another size.

Compute and network are slowed down by the same factor: the time of an allreduce on the lab's links
divided by its time on the published links. Therefore the ratio of compute and communication stays
the same, even if the lab has fewer hosts. A host of the lab is one process. It represents all
processes of a published host, which share one link; communication inside the host takes no time.
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
    """A published setting.

    Args:
        name: Name on the command line.
        hosts: Number of connected hosts.
        gpus_per_host: GPUs in each host, for people only.
        gpu: Name of the GPUs, for people only.
        gbit_per_second: Rate of each host's link in Gbit/s.
        measured: Seconds of a step without communication, by model, at the model's batch.
        flops_per_second: Rate that models without a measurement are assumed to reach: that of
            ResNet-50 in `measured`.
    """

    name: str
    hosts: int
    gpus_per_host: int
    gpu: str
    gbit_per_second: float
    measured: Mapping[str, float]
    flops_per_second: float = field(init=False)

    def __post_init__(self) -> None:
        """Compute the rate of the GPU from the step of the reference model."""
        reference = model(REFERENCE)
        speed = _step_flops(reference) / self.measured[REFERENCE]
        object.__setattr__(self, "flops_per_second", speed)

    def step_seconds(self, replayed: ReplayModel) -> float:
        """Return the published seconds of a step, or an estimate from the model's FLOPs.

        Args:
            replayed: Model with its batch.
        """
        return self.measured.get(replayed.name, _step_flops(replayed) / self.flops_per_second)

    def slowdown(self, network: HostNetwork) -> float:
        """Return the factor by which compute has to be slowed down for a network.

        Args:
            network: Network of the lab, with at least two hosts.
        """
        published = HostNetwork(hosts=self.hosts, bits_per_second=1e9 * self.gbit_per_second)
        return network.allreduce_seconds(1) / published.allreduce_seconds(1)

    def __str__(self) -> str:
        gpus = f"{self.hosts} x {self.gpus_per_host} {self.gpu}"
        return f"{gpus}, {self.gbit_per_second:g} Gbit/s a host"


def _step_flops(replayed: ReplayModel) -> float:
    """Return the FLOPs of the forward and backward passes of a batch."""
    return 3.0 * replayed.flops * replayed.batch


# Mixed precision on one GPU: ResNet-50 at batch 64, VGG16 at batch 64, BERT-base at 64 x 128
# tokens.
V100_SECONDS = {"resnet50": 0.055, "vgg16": 0.097, "bert-base": 0.144}

# TensorFlow with fp32 on one GPU, synthetic data, batch 64: batch size / images per second.
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
    """Return the published setting of a name.

    Raises:
        UsageError: the name is unknown.
    """
    if name not in PRESETS:
        raise UsageError(f"the preset is {name!r}; allowed: {', '.join(PRESETS)}")
    return PRESETS[name]
