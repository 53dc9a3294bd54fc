"""Gradients on their way, as soon as backward has made them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Parameter

from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.reductions import Average, Reduction
from slipstream.horovod.request import Request
from slipstream.horovod.torch.calls import sparse_allreduce_async
from slipstream.horovod.torch.compression import Compressor, codec_for
from slipstream.horovod.torch.ops import allreduce_request
from slipstream.horovod.torch.submit import AsyncResult, submit_many
from slipstream.torch.compression import keeps_what_is_lost

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step()."
    " Increase backward_passes_per_step to accumulate gradients locally."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """Terms on which gradients are reduced.

    Args:
        compression: Compression of gradients.
        op: Reduction: Average or Sum.
        predivide: Divisor before the sum; the rest of the average comes after it.
        sparse_as_dense: Whether sparse gradients are sent as dense ones.
        process_set: Process set whose ranks take part (default: all ranks).
    """

    compression: type[Compressor]
    op: Reduction
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet

    @property
    def factors(self) -> tuple[float, float]:
        """What gradients are multiplied by, before and after."""
        return (1 / self.predivide, self.predivide) if self.op == Average else (1.0, 1.0)


class Reducer:
    """The gradients of some parameters.

    Args:
        names: Names of the parameters that may have gradients, in the order of the model.
        groups: Groups of parameters that are reduced as one; other parameters go alone.
        passes: Number of backward passes that add up before a gradient is sent, 1 or more.
        terms: Reduction, compression and process set of the gradients.
    """

    def __init__(
        self,
        names: dict[Parameter, str],
        groups: Iterable[Sequence[Parameter]],
        passes: int,
        terms: Terms,
    ) -> None:
        self._names, self._terms = names, terms
        self.passes = passes
        self._group_of: dict[Parameter, tuple[Parameter, ...]] = {}
        for group in groups:
            self._group_of.update(dict.fromkeys(group, tuple(group)))
        self._priority = {each: len(names) - place for place, each in enumerate(names)}
        self._residuals: dict[Parameter, torch.Tensor] = {}
        self._passed: dict[Parameter, int] = {}
        self._under_way: dict[tuple[Parameter, ...], _UnderWay] = {}
        self._sent: set[Parameter] = set()
        for each in names:
            if each.requires_grad:
                self._passed[each] = 0
        weakref.finalize(self, _remove, self._hook())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and no backward pass has begun to add up."""
        return not self._under_way and not any(self._passed.values())

    def reset(self) -> None:
        """Forget what backward passes have added up so far."""
        for each in self._under_way.values():
            each.result.done()  # its names are free where it is
        self._under_way.clear()
        self._sent.clear()
        self._passed = dict.fromkeys(self._passed, 0)

    def synchronize(self) -> None:
        """Block until every gradient is that of all ranks; those that are lacking are zeros."""
        for each in self._passed:
            if each not in self._sent:
                self._send(self._group_of.get(each, (each,)))
        try:
            for members in list(self._under_way):
                self._under_way.pop(members).finish()
        finally:
            self.reset()

    def _hook(self) -> list[Any]:
        """Let autograd report each gradient, as long as somebody else refers to this object."""
        reference = weakref.WeakMethod(self._ready)

        def ready(parameter: Parameter) -> None:
            method = reference()
            if method is not None:
                method(parameter)

        hooked: Any = list(self._passed)
        return [each.register_post_accumulate_grad_hook(ready) for each in hooked]

    def _ready(self, parameter: Parameter) -> None:
        """Autograd has added a gradient; called in its thread."""
        if parameter in self._sent:
            raise AssertionError(TOO_MANY_PASSES)
        self._passed[parameter] += 1
        group = self._group_of.get(parameter, (parameter,))
        if all(self._passed.get(each, self.passes) >= self.passes for each in group):
            self._send(group)

    def _send(self, group: tuple[Parameter, ...]) -> None:
        members = [each for each in group if each in self._passed and each not in self._sent]
        for each in members:
            if each.grad is None:  # there may be one on another rank
                each.grad = torch.zeros_like(each)
        sparse = [each for each in members if each.grad is not None and each.grad.is_sparse]
        if sparse and not self._terms.sparse_as_dense:
            for each in sparse:
                self._send_sparse(each)
                self._sent.add(each)
            members = [each for each in members if each not in sparse]
        if members:
            self._send_dense(members)
            self._sent.update(members)

    def _send_sparse(self, parameter: Parameter) -> None:
        gradient = parameter.grad
        assert gradient is not None
        name = f"allreduce.{self._names[parameter]}"
        result = sparse_allreduce_async(
            gradient.coalesce(), name, self._terms.op, self._terms.process_set
        )
        result = AsyncResult([result], list)
        self._under_way[parameter,] = _UnderWay([parameter], [_NOT_COMPRESSED], self._terms, result)

    def _send_dense(self, members: list[Parameter]) -> None:
        parts = [self._request(each) for each in members]
        requests, contexts = [part[0] for part in parts], [part[1] for part in parts]
        result = submit_many(requests, self._terms.process_set)
        self._under_way[tuple(members)] = _UnderWay(members, contexts, self._terms, result)

    def _request(self, parameter: Parameter) -> tuple[Request, Any]:
        """Return the tensor to send for a gradient and the context for decompression, or None."""
        gradient, terms = parameter.grad, self._terms
        assert gradient is not None
        sent = gradient.to_dense() if gradient.is_sparse else gradient.contiguous()
        codec = codec_for(terms.compression, sent)
        context: Any = _NOT_COMPRESSED
        if codec is None:
            sent, context = terms.compression.compress(sent)
        request = allreduce_request(
            sent,
            f"allreduce.{self._names[parameter]}",
            terms.op,
            terms.factors,
            in_place=True,
            codec=codec or "none",
            residual=self._residual(parameter, codec),
            priority=self._priority[parameter],
        )
        return request, context

    def _residual(self, parameter: Parameter, codec: str | None) -> torch.Tensor | None:
        if codec is None or not keeps_what_is_lost(codec, None):
            return None
        if parameter not in self._residuals:
            self._residuals[parameter] = torch.zeros(parameter.shape, dtype=parameter.dtype)
        return self._residuals[parameter]


def _remove(hooks: list[Any]) -> None:
    for each in hooks:
        each.remove()


_NOT_COMPRESSED = object()


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """Gradients that were sent together, with what decompression needs of each."""

    members: Sequence[Parameter]
    contexts: Sequence[Any]
    terms: Terms
    result: AsyncResult

    def finish(self) -> None:
        """Block until they are there, and put them where the optimizer looks."""
        results: list[torch.Tensor] = self.result.wait()
        for each, context, result in zip(self.members, self.contexts, results, strict=True):
            gradient = each.grad
            assert gradient is not None
            if context is not _NOT_COMPRESSED:
                result = self.terms.compression.decompress(result, context)
            if gradient.is_sparse:
                each.grad = result if result.is_sparse else result.to_sparse()
            elif result.data_ptr() != gradient.data_ptr():
                gradient.copy_(result)
