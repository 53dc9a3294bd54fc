"""Fusion: tensors that are ready at the same time share an allreduce.

Every rank decides from facts on which all ranks have agreed, so all ranks fuse the same tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream import _core
from slipstream.comm.negotiator import AgreedTensor
from slipstream.horovod.request import Request, TensorHandle

# A tensor of this size or more is reduced alone, because copying it into a fused buffer and back
# would take longer than a separate operation. Chosen by hand, not measured.
_ALONE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadyTensor:
    """A tensor that is ready on all ranks, with the request of this rank.

    Args:
        agreed: Description of the tensor on which all ranks have agreed.
        request: Request of this rank; a request without data if this rank has called join().
        handle: Handle that waits for the result; None if this rank has called join().
    """

    agreed: AgreedTensor
    request: Request
    handle: TensorHandle | None

    @property
    def num_elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.agreed.tensor.shape)

    @property
    def num_bytes(self) -> int:
        """Size of the tensor in bytes."""
        return self.num_elements * _core.itemsize(self.agreed.tensor.dtype)


@dataclass(slots=True)
class FusedTensors:
    """Tensors that share one operation.

    Args:
        members: Tensors that share the operation, at least one.
        num_bytes: Size of all tensors together in bytes.
    """

    members: list[ReadyTensor] = field(default_factory=list[ReadyTensor])
    num_bytes: int = 0

    def add(self, ready: ReadyTensor) -> None:
        """Add one tensor."""
        self.members.append(ready)
        self.num_bytes += ready.num_bytes


def fuse(
    ready: Sequence[ReadyTensor], max_bytes: int, *, separates_groups: bool
) -> list[FusedTensors]:
    """Return the operations to start, in the order in which all ranks start them.

    Small allreduces share an operation if their element type, reduction, factors and codec are the
    same. Allreduces that were submitted as a group share an operation even if they are large.

    Args:
        ready: Tensors in the order on which the ranks have agreed.
        max_bytes: Largest size in bytes of an operation that several tensors share.
        separates_groups: Whether the tensors of a group share operations with one another only.
    """
    all_fused: list[FusedTensors] = []
    open_operations: dict[object, FusedTensors] = {}
    for member in ready:
        tensor, group = member.agreed.tensor, member.agreed.fused
        is_large = member.num_bytes >= _ALONE_BYTES
        is_alone = (is_large and group == 0) or member.num_bytes > max_bytes
        if member.request.kind != "allreduce" or is_alone:
            all_fused.append(FusedTensors([member], member.num_bytes))
            continue
        only_with = group if separates_groups or is_large else 0
        key = (tensor.dtype, tensor.note, tensor.codec, only_with)
        fused = open_operations.get(key)
        if fused is None or fused.num_bytes + member.num_bytes > max_bytes:
            fused = open_operations[key] = FusedTensors()
            all_fused.append(fused)
        fused.add(member)
    return all_fused
