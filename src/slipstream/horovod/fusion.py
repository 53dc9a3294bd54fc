"""Which of the tensors that are ready together become one allreduce.

Every rank decides by what all have agreed on, so all decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream import _core
from slipstream.comm.negotiator import AgreedTensor
from slipstream.horovod.request import Request, TensorHandle

# To copy this much into a common memory and back takes longer than an operation of its own.
_ALONE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ready:
    """A tensor that is ready on all ranks, with the request of this one.

    Args:
        agreed: Description on which all ranks agree.
        request: This rank's request, or one of zeros if this rank has joined.
        handle: Handle that waits for the result; None if this rank has joined.
    """

    agreed: AgreedTensor
    request: Request
    handle: TensorHandle | None

    @property
    def num_bytes(self) -> int:
        """Of the tensor."""
        tensor = self.agreed.tensor
        return math.prod(tensor.shape) * _core.itemsize(tensor.dtype)


@dataclass(slots=True)
class Fused:
    """Tensors that are reduced as one.

    Args:
        members: Tensors, at least one.
        num_bytes: Size of all members together.
    """

    members: list[Ready] = field(default_factory=list[Ready])
    num_bytes: int = 0

    def add(self, ready: Ready) -> None:
        """Add one tensor."""
        self.members.append(ready)
        self.num_bytes += ready.num_bytes


def fuse(ready: Sequence[Ready], most_bytes: int, *, separates_groups: bool) -> list[Fused]:
    """Return the operations to start, in the order in which all ranks start them.

    Small allreduces of one type and one kind share an operation; those that were submitted as a
    group do so whatever their size.

    Args:
        ready: Tensors in the order on which the ranks have agreed.
        most_bytes: Largest size of an operation with several tensors.
        separates_groups: Whether a group of tensors never shares an operation with other tensors.
    """
    all_fused: list[Fused] = []
    open_ones: dict[object, Fused] = {}
    for each in ready:
        tensor, group = each.agreed.tensor, each.agreed.fused
        alone = group == 0 and each.num_bytes >= _ALONE_BYTES
        if each.request.kind != "allreduce" or alone or each.num_bytes > most_bytes:
            all_fused.append(Fused([each], each.num_bytes))
            continue
        is_large = each.num_bytes >= _ALONE_BYTES
        of_group = group if separates_groups or is_large else 0
        key = (tensor.dtype, tensor.note, tensor.codec, of_group)
        fused = open_ones.get(key)
        if fused is None or fused.num_bytes + each.num_bytes > most_bytes:
            fused = open_ones[key] = Fused()
            all_fused.append(fused)
        fused.add(each)
    return all_fused
