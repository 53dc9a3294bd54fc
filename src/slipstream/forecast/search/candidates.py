"""Candidate strategies: all degrees of parallelism, and the refinements of one strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from slipstream.forecast.work.strategy import WIRE_SHARE, Exchange, Strategy

# Combinations of methods that save memory, cheapest first: (ZeRO level, activation checkpoints).
_TRADES = (
    (0, False), (0, True), (1, False), (1, True), (2, False), (2, True), (3, False), (3, True),
)  # fmt: skip
# Maximum degrees of parallelism. Tensor-parallel ranks stay within a host, and most hosts have at
# most 8 devices. The other two maxima only bound the search; they were chosen by hand.
_MOST_TENSOR, _MOST_PIPELINE, _MOST_CONTEXT = 8, 64, 64
# Sequence length in tokens from which ranks divide sequences (context parallelism), and minimum
# number of tokens per rank. For a Llama of 16 blocks on 8 to 32 A100 or H100, context parallelism
# is never the fastest with sequences of up to 8,192 tokens. With 16,384, 32,768 and 65,536 tokens
# it makes steps up to 3, 10 and 24 % faster. The minimum number was chosen by hand.
_LONG, _LEAST_TOKENS = 16384, 2048
# Sizes of gradient buckets in bytes. PyTorch's default is 25 MiB (bucket_cap_mb of
# DistributedDataParallel). Smaller buckets are exchanged earlier in the backward pass; larger
# buckets pay the latency less often. In the 21 scenarios of strategy_search.py, the mean step is
# 1.3 % slower with 25 MiB alone, and 0.2 % faster with seven sizes from 1 to 200 MiB.
_BUCKETS = (4 << 20, 25 << 20, 100 << 20)
ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Properties of a model that limit how it can be divided.

    Args:
        blocks: Number of repeated blocks.
        divides: Function that returns whether a number of tensor-parallel ranks can divide the
            matrix products.
        experts: Number of experts in each sparse (mixture-of-experts) layer; 1 if there is no
            sparse layer.
        tokens: Sequence length in tokens; 0 for a model without fused attention.
    """

    blocks: int
    divides: Callable[[int], bool]
    experts: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Strategies that the user allows although they change the arithmetic of training.

    Args:
        codec: Compression of gradients between hosts; "any" selects the fastest (default "none").
        period: Number of steps between two exchanges of local SGD (default 1: no local SGD).
    """

    codec: str = "none"
    period: int = 1


def strategies(
    shape: ModelShape, ranks: int, per_host: int, global_batch: int, allowed: Allowed
) -> Iterator[Strategy]:
    """Yield combinations of parallelism degrees, micro-batches and memory-saving methods.

    Args:
        shape: Properties of the model that limit how it can be divided.
        ranks: Number of ranks; a strategy uses all ranks.
        per_host: Number of ranks per host.
        global_batch: Number of samples per step.
        allowed: Strategies that the user allows.
    """
    codec = "none" if allowed.codec == ANY else allowed.codec
    for tensor, context, pipeline in _degrees(shape, ranks, per_host):
        data = ranks // (tensor * context * pipeline)
        if global_batch % data or not _is_useful(context, data, global_batch, shape):
            continue
        samples = global_batch // data
        for expert in _experts(shape, data):
            for micro in micro_batches(samples):
                if pipeline > 1 and samples // micro < pipeline:
                    continue
                for zero, checkpoint in _TRADES:
                    if (zero and data * context == 1) or (zero > 1 and pipeline > 1):
                        continue
                    yield Strategy(
                        data=data, tensor=tensor, context=context, expert=expert,
                        pipeline=pipeline, micro_batch=micro, micro_batches=samples // micro,
                        zero=zero, checkpoint=checkpoint, sequence=tensor > 1 and shape.tokens > 0,
                        codec=codec,
                    )  # fmt: skip


def _degrees(shape: ModelShape, ranks: int, per_host: int) -> Iterator[tuple[int, int, int]]:
    """Yield triples of a tensor-, a context- and a pipeline-parallel degree.

    The number of ranks is a multiple of the product of the three degrees.
    """
    for tensor in powers(min(per_host, _MOST_TENSOR)):
        if per_host % tensor or not shape.divides(tensor):
            continue
        for context in powers(min(_MOST_CONTEXT, max(1, shape.tokens // _LEAST_TOKENS))):
            for pipeline in powers(min(shape.blocks, ranks // tensor, _MOST_PIPELINE)):
                if ranks % (tensor * context * pipeline) == 0:
                    yield tensor, context, pipeline


def _is_useful(context: int, data: int, global_batch: int, shape: ModelShape) -> bool:
    """Return whether a context-parallel degree may be useful.

    A context-parallel degree above 1 may be useful if sequences are long, or if the batch is too
    small for twice as many replicas.
    """
    return context == 1 or shape.tokens >= _LONG or 2 * data > global_batch


def _experts(shape: ModelShape, data: int) -> list[int]:
    """Return the expert-parallel degrees to try: 1, and some powers of two.

    The number of experts and the number of replicas are multiples of each degree.
    """
    if shape.experts == 1:
        return [1]
    most = max(degree for degree in powers(shape.experts) if shape.experts % degree == 0)
    return [1, *(degree for degree in powers(most) if degree > 1 and data % degree == 0)]


def refinements(
    strategy: Strategy, shape: ModelShape, hosts: int, allowed: Allowed
) -> list[list[Strategy]]:
    """Return lists of alternatives to a strategy; each list varies a different property.

    Args:
        strategy: Strategy that fits in memory.
        shape: Properties of the model that limit how it can be divided.
        hosts: Number of hosts.
        allowed: Strategies that the user allows.
    """
    groups = [_turns(strategy, shape)]
    if strategy.data * strategy.context == 1 or strategy.zero == 3:
        return groups
    codecs = WIRE_SHARE if allowed.codec == ANY and hosts > 1 else ()
    groups.append([replace(strategy, codec=codec) for codec in codecs])
    groups.append([replace(strategy, bucket_bytes=size) for size in _BUCKETS])
    if strategy.zero:
        return groups
    groups.append([replace(strategy, across=True)] if strategy.pipeline == 1 else [])
    if hosts > 1 and strategy.pipeline == strategy.context == strategy.expert == 1:
        counts = {hosts, max(1, hosts // 2)}
        server = Exchange.PARAMETER_SERVER
        groups.append([replace(strategy, exchange=server, servers=count) for count in counts])
    if allowed.period > 1 and not strategy.layers:
        # Most steps exchange nothing, so no exchange overlaps with the next step.
        often = replace(strategy, servers=0, across=False)
        groups.append([replace(often, exchange=Exchange.LOCAL, period=allowed.period)])
    return groups


def _turns(strategy: Strategy, shape: ModelShape) -> list[Strategy]:
    """Return variants with interleaved schedules, in which a pipeline rank runs several stages."""
    return [
        replace(strategy, virtual=virtual)
        for virtual in (2, 4)
        if strategy.pipeline > 1
        and strategy.pipeline * virtual <= shape.blocks
        and strategy.micro_batches % strategy.pipeline == 0
    ]


def micro_batches(samples: int) -> list[int]:
    """Return the micro-batch sizes to try for a replica, largest first.

    The list contains `samples` and, for each power of two, the nearest divisor of `samples`.

    Args:
        samples: Number of samples that one replica processes per step.
    """
    divisors: Sequence[int] = [parts for parts in range(1, samples + 1) if samples % parts == 0]
    near = {
        min(divisors, key=lambda divisor: (abs(divisor - power), divisor))
        for power in powers(samples)
    }
    return sorted({samples, *near}, reverse=True)


def powers(most: int) -> Iterator[int]:
    """Yield the powers of two up to a number.

    Args:
        most: Largest value that may be yielded.
    """
    power = 1
    while power <= most:
        yield power
        power *= 2
