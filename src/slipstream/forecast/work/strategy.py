"""Strategies: parallelism over devices, gradient exchange, and methods that save memory."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from slipstream.codecs import CODECS, wire_share
from slipstream.errors import UsageError


class Optimizer(enum.Enum):
    """Optimizer; the value of a member is the number of optimizer states per parameter element."""

    SGD = 0
    MOMENTUM = 1
    ADAM = 2


class Exchange(enum.Enum):
    """Method by which replicas combine their gradients."""

    ALL_REDUCE = "all-reduce"
    PARAMETER_SERVER = "parameter server"
    LOCAL = "local SGD"


class Agreement(enum.Enum):
    """Method that replaces the all-reduce of the gradient of a single layer.

    With FACTORS, replicas gather the two factors whose product is the gradient, and each replica
    multiplies the factors later. With SHARD, each replica has a shard of the weight, and replicas
    exchange activations instead of gradients. See `slipstream.forecast.simulate.hybrid`.
    """

    FACTORS = "late multiply"
    SHARD = "sharded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Way to train on `data * context * tensor * pipeline` ranks.

    Consecutive ranks form a tensor-parallel group. Consecutive tensor-parallel groups form a
    context-parallel group. The replicas of a pipeline stage have consecutive ranks. Ranks of
    different pipeline stages are farthest apart.

    Args:
        data: Number of replicas, each of which processes an equal share of the global batch
            (default 1).
        tensor: Number of ranks that divide each matrix product (default 1).
        context: Number of ranks that divide each sequence; keys and values circulate between these
            ranks (default 1).
        expert: Number of neighbouring replicas that divide the experts of sparse layers (default
            1).
        pipeline: Number of pipeline ranks (default 1).
        virtual: Number of stages that each pipeline rank runs in turns (interleaved schedule); 1 is
            plain 1F1B (default 1).
        micro_batch: Number of samples in a micro-batch (default 1).
        micro_batches: Number of micro-batches of a replica per step (default 1).
        zero: ZeRO level (default 0): replicas shard nothing (0), optimizer states (1), also
            gradients (2), or also parameters (3, like FSDP).
        checkpoint: Whether the backward pass recomputes the activations of each block (default
            False).
        selective: Whether the backward pass recomputes only cheap operators and every second matrix
            product (default False).
        sequence: Whether tensor-parallel ranks also divide the operators outside the divided matrix
            products, such as norms, by tokens (default False).
        exchange: Method of the gradient exchange (default all-reduce).
        servers: Number of hosts that are parameter servers, if `exchange` uses parameter servers
            (default 0: all hosts).
        period: Number of steps between two exchanges of local SGD (default 1).
        across: Whether the gradient exchange may overlap with the next step's forward pass (default
            False).
        codec: Compression of gradients between hosts: "none", "fp16", "bf16" or "int8" (default
            "none").
        bucket_bytes: Size of a gradient bucket in bytes (default 25 MiB).
        layers: Pairs of the name of a parameter, and the method that replaces the all-reduce of its
            gradient (default: none).

    Raises:
        UsageError: A number is out of range, or the codec is unknown.
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
                f"expert is {self.expert}; replicas divide the experts, so it must divide data,"
                f" {self.data}"
            )

    @property
    def ranks(self) -> int:
        """Number of devices."""
        return self.data * self.context * self.tensor * self.pipeline

    @property
    def global_batch(self) -> int:
        """Samples per step."""
        return self.data * self.micro_batch * self.micro_batches

    @property
    def apart(self) -> int:
        """Number of micro-batches that a rank runs before it waits for other ranks."""
        together = self.tensor * self.context * self.expert * self.pipeline
        if together > 1 or self.zero > 1:
            return 1
        return self.micro_batches * (self.period if self.exchange is Exchange.LOCAL else 1)


_DEGREES = (
    "data", "tensor", "context", "expert", "pipeline", "virtual", "micro_batch", "micro_batches",
    "period",
)  # fmt: skip
# Bytes on the wire, relative to fp32, by codec.
WIRE_SHARE = {codec: wire_share(codec) for codec in CODECS}
