"""How a job is spread over devices: degrees of parallelism, and what is traded for memory."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from slipstream.errors import UsageError


class Optimizer(enum.Enum):
    """What keeps state beside each parameter; values are the numbers that it keeps."""

    SGD = 0
    MOMENTUM = 1
    ADAM = 2


class Exchange(enum.Enum):
    """How replicas agree on gradients."""

    ALL_REDUCE = "all-reduce"
    PARAMETER_SERVER = "parameter server"
    LOCAL = "local SGD"


class Agreement(enum.Enum):
    """How replicas agree on the gradient of a layer with a strategy of its own."""

    FACTORS = "late multiply"
    SHARD = "shared out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to train on `data * context * tensor * pipeline` ranks.

    Neighbouring ranks share tensors first, then sequences; stages are farthest apart.

    Args:
        data: replicas; each has its share of the global batch.
        tensor: ranks that share each product of matrices.
        context: ranks that share each sequence; keys and values go round between them.
        expert: of the replicas, neighbours that share out the experts of sparse layers.
        pipeline: stages that follow one another.
        virtual: stages that each rank of a pipeline has in turns; 1: plain 1F1B.
        micro_batch: samples that run at once.
        micro_batches: that a replica runs per step.
        zero: what replicas share out: 0 nothing, 1 optimizer states, 2 gradients too,
            3 parameters too (FSDP).
        checkpoint: activations of a block are computed again in the backward pass.
        selective: checkpoints repeat only what is cheap, and every second product.
        sequence: tensor ranks share out what is between their products as well.
        exchange: of gradients.
        servers: hosts that add gradients where `exchange` is a parameter server; 0: all do.
        period: steps between exchanges of local SGD.
        across: the exchange may go on beside the next step's forward pass.
        codec: of gradients between hosts: "none", "fp16", "bf16" or "int8".
        bucket_bytes: of gradients that go together.
        layers: parameters whose gradients are not summed, with what is done instead.

    Raises:
        UsageError: a number is out of its range.
    """

    data: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1
    pipeline: int = 1
    virtual: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    zero: int = 0
    checkpoint: bool = False
    selective: bool = False
    sequence: bool = False
    exchange: Exchange = Exchange.ALL_REDUCE
    servers: int = 0
    period: int = 1
    across: bool = False
    codec: str = "none"
    bucket_bytes: int = 25 << 20
    layers: tuple[tuple[str, Agreement], ...] = ()

    def __post_init__(self) -> None:
        for name in _DEGREES:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.zero not in range(4):
            raise UsageError(f"zero is {self.zero}; allowed are 0, 1, 2 and 3")
        if self.codec not in WIRE_SHARE:
            raise UsageError(f"codec is {self.codec!r}; allowed are {', '.join(WIRE_SHARE)}")
        if self.data % self.expert:
            raise UsageError(
                f"expert is {self.expert}; replicas share experts out, so it divides data,"
                f" {self.data}"
            )

    @property
    def ranks(self) -> int:
        """Devices that it takes."""
        return self.data * self.context * self.tensor * self.pipeline

    @property
    def global_batch(self) -> int:
        """Samples per step."""
        return self.data * self.micro_batch * self.micro_batches

    @property
    def apart(self) -> int:
        """Micro-batches that a rank runs before it waits for others."""
        together = self.tensor * self.context * self.expert * self.pipeline
        if together > 1 or self.zero > 1:
            return 1
        return self.micro_batches * (self.period if self.exchange is Exchange.LOCAL else 1)


_DEGREES = (
    "data", "tensor", "context", "expert", "pipeline", "virtual", "micro_batch", "micro_batches",
    "period",
)  # fmt: skip
# Bytes on the wire over bytes of fp32; int8 has a scale, four bytes, for each 128 numbers.
WIRE_SHARE = {"none": 1.0, "fp16": 0.5, "bf16": 0.5, "int8": 0.25 + 1 / 128}
