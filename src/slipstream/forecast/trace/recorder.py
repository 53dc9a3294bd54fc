"""Record of the operators that PyTorch dispatches, and of the memory that they make and free."""

# PyTorch's dispatch modes are not typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.module_tracker import ModuleTracker

from slipstream.forecast.trace.kinds import kind_of, products_of
from slipstream.forecast.work.workload import Operator, TensorValue, TrainingPhase

_BEFORE = -1
_NEVER = -1


class Recorder(TorchDispatchMode):
    """PyTorch dispatch mode that records the operators of a model on tensors without memory.

    Args:
        modules: PyTorch's tracker, which knows which module runs at present.

    The attribute `phase` is the phase (forward or backward) of the operators that run next.
    """

    def __init__(self, modules: ModuleTracker) -> None:
        super().__init__()
        self.phase = TrainingPhase.FORWARD
        self.operators: list[Operator] = []
        self._modules = modules
        self._values: list[list[int]] = []
        self._masks: set[int] = set()
        self._indices: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator and record it unless all its outputs are views."""
        result = func(*args, **(kwargs or {}))
        inputs = tensors_in((args, kwargs))
        outputs = tensors_in(result)
        reads = tuple(dict.fromkeys(self.value(tensor) for tensor in inputs))
        before = len(self._values)
        writes = tuple(dict.fromkeys(self.value(tensor, len(self.operators)) for tensor in outputs))
        fresh = any(index >= before for index in writes)
        if (fresh or func._schema.is_mutable) and not self._drops(func, inputs, reads):
            self._write_down(func, args, (inputs, outputs), (reads, writes))
        return result

    def _drops(self, func: Any, inputs: list[torch.Tensor], reads: tuple[int, ...]) -> bool:
        """Return whether an operator only makes the mask of a dropout, so that it is not recorded.

        In a trace, PyTorch dispatches four operators for one dropout; the recorder keeps one of
        them. A device runs dropout as one kernel, whose mask has one byte per element.
        """
        name = func._schema.name.split("::")[-1]
        if name == "bernoulli_":
            self._masks.add(reads[0])
            self._values[reads[0]][0] = inputs[0].numel()
            if self.operators and self.operators[-1].writes == (reads[0],):
                self.operators.pop()
            return True
        return name == "div_" and reads[0] in self._masks

    def value(self, tensor: torch.Tensor, born: int = _BEFORE) -> int:
        """Return the index, in the result of `values`, of the memory that holds a tensor.

        Args:
            tensor: Any tensor.
            born: Index of the operator that makes the memory (default: made before the step);
                ignored if the memory already has an index.
        """
        storage = tensor.untyped_storage()
        index = self._indices.get(storage)
        if index is not None:
            return index
        index = len(self._values)
        self._values.append([storage.nbytes(), born, _NEVER])
        self._indices[storage] = index
        weakref.finalize(storage, self._free, index)
        return index

    def values(self) -> tuple[TensorValue, ...]:
        """Return the size of each piece of memory, and the operators that made and freed it."""
        return tuple(TensorValue(*value) for value in self._values)

    def _free(self, index: int) -> None:
        self._values[index][2] = len(self.operators)

    def _write_down(
        self,
        func: Any,
        args: tuple[Any, ...],
        tensors: tuple[list[torch.Tensor], list[torch.Tensor]],
        values: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> None:
        inputs, outputs = tensors
        name = func._schema.name.split("::")[-1]
        products = products_of(name, args, outputs)
        moved = _touched(name, inputs, outputs)
        if name == "mul" and not self._masks.isdisjoint(values[0]):
            name = "dropout"
            moved = outputs[0].numel() * (2 * outputs[0].element_size() + 1)
            if self.phase is TrainingPhase.FORWARD:
                values = (values[0][:1], (*values[1], values[0][1]))
        self.operators.append(
            Operator(
                name=name,
                module=max(self._modules.parents - {"Global"}, key=len, default=""),
                phase=self.phase,
                kind=kind_of(name, products),
                products=products,
                reads=values[0],
                writes=values[1],
                bytes_moved=float(moved),
                dtype=str(outputs[0].dtype).removeprefix("torch.") if outputs else "float32",
            )
        )


def _touched(name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    """Return the bytes that an operator reads and writes."""
    if name in ("embedding", "index", "index_select", "gather"):
        return 2 * sum(map(_nbytes, outputs))
    return sum(map(_nbytes, inputs)) + sum(map(_nbytes, outputs))


def _nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor occupies; an expanded tensor occupies only its storage."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries."""
    flatten: Callable[[Any], list[Any]] = pytree.tree_leaves
    return [leaf for leaf in flatten(tree) if isinstance(leaf, torch.Tensor)]
