"""Averages and sums over hosts, encoded on the GPU so that fewer bytes cross the PCIe bus.

A tensor is cut into one block for each rank, the owner of the block. Each rank encodes its values
of every other block and sends them to the owner. The owner decodes the received values and adds
them to its own values in float32, in the order of the ranks. It encodes the result once, for all
ranks.
The engine only moves bytes here. For tensors of the CPU, the engine itself encodes and adds in the
same way, but with blocks of other sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from slipstream.torch.collectives import Submission
from slipstream.torch.cuda import codecs
from slipstream.torch.cuda.stages import ExchangeRanks, later_stages, wait_for

SMALLEST_BYTES = 32 << 10  # smaller tensors are sent exactly, as on the CPU
_ALIGNED = 2048  # values; a multiple of every codec's block, so that rows follow without gaps


class _Blocks(NamedTuple):
    """The blocks of a tensor, one for each rank; the last blocks may be short or empty.

    Args:
        codec: Codec of the bytes.
        num_values: Number of values of the tensor.
        length: Number of values of a full block.
    """

    codec: str
    num_values: int
    length: int

    @classmethod
    def of(cls, codec: str, count: int, ranks: int) -> _Blocks:
        length = -(-count // ranks)
        return cls(codec, count, -(-length // _ALIGNED) * _ALIGNED)

    @property
    def row_bytes(self) -> int:
        return codecs.encoded_bytes(self.codec, self.length)

    def interval(self, rank: int) -> tuple[int, int]:
        begin = min(rank * self.length, self.num_values)
        return begin, min(begin + self.length, self.num_values)


def allreduce(
    exchange: ExchangeRanks,
    tensor: torch.Tensor,
    codec: str,
    residual: torch.Tensor | None,
    divisor: int,
) -> Submission:
    """Replace a contiguous float32 tensor by its sum over the ranks, divided; does not block.

    Args:
        exchange: Ranks, each on a host of its own.
        tensor: Tensor on a GPU.
        codec: Codec: fp16, bf16 or int8.
        residual: Tensor of the same size on the same GPU, with the codec's rounding errors; None
            if there is no error feedback.
        divisor: Number by which the sum is divided: the number of ranks for an average, or 1.
    """
    with torch.no_grad():
        return _allreduce(exchange, tensor, codec, residual, divisor)


def _allreduce(
    exchange: ExchangeRanks,
    tensor: torch.Tensor,
    codec: str,
    residual: torch.Tensor | None,
    divisor: int,
) -> Submission:
    blocks = _Blocks.of(codec, tensor.numel(), exchange.size)
    values = tensor.view(-1)
    losses = None if residual is None else residual.view(-1)
    sent = _bytes_for_all(blocks, exchange, values)
    _encode_for_others(blocks, exchange.rank, values, losses, sent)
    received = torch.empty_like(sent)
    first = exchange.all_to_all(sent, received)
    with later_stages(exchange.groups, tensor.device, "sum") as stream:
        wait_for(first, stream)
        own = _encoded_result(blocks, exchange.rank, values, losses, received, divisor)
        gathered = torch.empty_like(sent)
        second = exchange.all_gather(own, gathered)
        wait_for(second, stream)
        num_bytes = codecs.encoded_bytes(codec, blocks.num_values)
        codecs.decode(codec, gathered[:num_bytes], values)
        landed = stream.record_event()
    buffers = [sent, received, own, gathered, *([] if residual is None else [residual])]
    handles = (first, second)
    return Submission(handles, [tensor], [tensor], buffers, landed=landed)  # pyright: ignore


def _bytes_for_all(blocks: _Blocks, exchange: ExchangeRanks, like: torch.Tensor) -> torch.Tensor:
    shape = exchange.size * blocks.row_bytes
    return torch.empty(shape, dtype=torch.uint8, device=like.device)


def _encode_for_others(
    blocks: _Blocks,
    rank: int,
    values: torch.Tensor,
    losses: torch.Tensor | None,
    sent: torch.Tensor,
) -> None:
    """Encode the blocks that other ranks own, each to its place in `sent`."""
    own_begin, own_end = blocks.interval(rank)
    for begin, end in ((0, own_begin), (own_end, blocks.num_values)):
        if begin < end:
            place = codecs.encoded_bytes(blocks.codec, begin)
            size = codecs.encoded_bytes(blocks.codec, end - begin)
            part = None if losses is None else losses[begin:end]
            codecs.encode(blocks.codec, values[begin:end], sent[place : place + size], part)


def _encoded_result(
    blocks: _Blocks,
    own_rank: int,
    values: torch.Tensor,
    losses: torch.Tensor | None,
    received: torch.Tensor,
    divisor: int,
) -> torch.Tensor:
    """Return the encoded result of this rank's own block.

    The losses (rounding errors) of the result are multiplied by the divisor, so that they have the
    size of the losses of values that this rank sends. So a loss stays valid if the value's block
    gets another owner.
    """
    begin, end = blocks.interval(own_rank)
    own = torch.empty(blocks.row_bytes, dtype=torch.uint8, device=values.device)
    if begin == end:
        return own
    size = codecs.encoded_bytes(blocks.codec, end - begin)
    total, part = values[begin:end].clone(), torch.empty_like(values[begin:end])
    for rank in range(received.numel() // blocks.row_bytes):
        if rank != own_rank:
            place = rank * blocks.row_bytes
            codecs.decode(blocks.codec, received[place : place + size], part)
            total.add_(part)
    # A tensor, because a GPU divides by a Python number through its inverse.
    divisors = torch.full((), float(divisor), device=values.device)
    total.div_(divisors)
    if losses is None:
        codecs.encode(blocks.codec, total, own[:size])
    else:
        left = losses[begin:end] / divisors
        codecs.encode(blocks.codec, total, own[:size], left)
        losses[begin:end] = left * divisors
    return own
