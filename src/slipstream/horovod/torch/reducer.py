"""Reduction of gradients: each is sent as soon as the backward pass has computed it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Parameter

from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.reductions import Average, Reduction
from slipstream.horovod.request import Request, Residual
from slipstream.horovod.submission import AsyncResult, submit
from slipstream.horovod.tensor_requests import allreduce_request
from slipstream.horovod.torch.calls import sparse_allreduce_async
from slipstream.horovod.torch.compression import Compressor, codec_for
from slipstream.torch.compression import uses_error_feedback

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step()."
    " Increase backward_passes_per_step to accumulate gradients locally."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReducerOptions:
    """Options for the reduction of gradients.

    Args:
        compression: Compression of gradients.
        op: Reduction: Average or Sum.
        predivide: Number by which gradients are divided before they are averaged and by which the
            average is multiplied.
        sparse_as_dense: Whether sparse gradients are converted to dense gradients before they are
            sent.
        process_set: Process set whose ranks take part.
    """

    compression: type[Compressor]
    op: Reduction
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet

    @property
    def factors(self) -> tuple[float, float]:
        """Factors by which gradients are multiplied: one before and one after the reduction."""
        return (1 / self.predivide, self.predivide) if self.op == Average else (1.0, 1.0)


class Reducer:
    """Object that allreduces the gradients of given parameters while the backward pass runs.

    Args:
        names: Name of each parameter. The gradients of earlier parameters have priority.
        groups: Groups of parameters. The gradients of a group are submitted together, once all of
            them are ready. The gradient of a parameter without a group is submitted alone.
        passes: Number of backward passes, 1 or more, that add to a gradient before it is sent.
        options: Options for the reduction.
    """

    def __init__(
        self,
        names: dict[Parameter, str],
        groups: Iterable[Sequence[Parameter]],
        passes: int,
        options: ReducerOptions,
    ) -> None:
        self._names, self._options = names, options
        self.passes = passes
        self._group_of: dict[Parameter, tuple[Parameter, ...]] = {}
        for group in groups:
            self._group_of.update(dict.fromkeys(group, tuple(group)))
        self._priority = {parameter: len(names) - i for i, parameter in enumerate(names)}
        self._residuals: dict[Parameter, Residual] = {}
        self._passes_done: dict[Parameter, int] = {}
        self._under_way: dict[tuple[Parameter, ...], _SentGradients] = {}
        self._sent: set[Parameter] = set()
        for parameter in names:
            if parameter.requires_grad:
                self._passes_done[parameter] = 0
        weakref.finalize(self, _remove, self._hook())

    @property
    def is_idle(self) -> bool:
        """False while a gradient is being reduced or waits for further backward passes."""
        return not self._under_way and not any(self._passes_done.values())

    def reset(self) -> None:
        """Forget the gradients that are being reduced, and count backward passes from 0 again."""
        for gradients in self._under_way.values():
            gradients.result.done()  # frees the names if the operation is done
        self._under_way.clear()
        self._sent.clear()
        self._passes_done = dict.fromkeys(self._passes_done, 0)

    def synchronize(self) -> None:
        """Block until all gradients are reduced; missing gradients count as zeros."""
        for parameter in self._passes_done:
            if parameter not in self._sent:
                self._send(self._group_of.get(parameter, (parameter,)))
        try:
            for members in list(self._under_way):
                self._under_way.pop(members).finish()
        finally:
            self.reset()

    def _hook(self) -> list[Any]:
        """Make each parameter call `_ready` after a backward pass; return the handles of the hooks.

        The hooks do not keep this object alive.
        """
        reference = weakref.WeakMethod(self._ready)

        def ready(parameter: Parameter) -> None:
            method = reference()
            if method is not None:
                method(parameter)

        parameters: Any = list(self._passes_done)
        return [parameter.register_post_accumulate_grad_hook(ready) for parameter in parameters]

    def _ready(self, parameter: Parameter) -> None:
        """Count a backward pass for a parameter; send its group's gradients once all are ready.

        Autograd calls this method in its own thread.
        """
        if parameter in self._sent:
            raise AssertionError(TOO_MANY_PASSES)
        self._passes_done[parameter] += 1
        group = self._group_of.get(parameter, (parameter,))
        if all(self._passes_done.get(member, self.passes) >= self.passes for member in group):
            self._send(group)

    def _send(self, group: tuple[Parameter, ...]) -> None:
        members = [p for p in group if p in self._passes_done and p not in self._sent]
        for parameter in members:
            if parameter.grad is None:  # another rank may have a gradient of this parameter
                parameter.grad = torch.zeros_like(parameter)
        sparse = [p for p in members if p.grad is not None and p.grad.is_sparse]
        if sparse and not self._options.sparse_as_dense:
            for parameter in sparse:
                self._send_sparse(parameter)
                self._sent.add(parameter)
            members = [parameter for parameter in members if parameter not in sparse]
        if members:
            self._send_dense(members)
            self._sent.update(members)

    def _send_sparse(self, parameter: Parameter) -> None:
        gradient = parameter.grad
        assert gradient is not None
        name = f"allreduce.{self._names[parameter]}"
        result = sparse_allreduce_async(
            gradient.coalesce(), name, self._options.op, self._options.process_set
        )
        result = AsyncResult([result], list)
        self._under_way[parameter,] = _SentGradients(
            [parameter], [_NOT_COMPRESSED], self._options, result
        )

    def _send_dense(self, members: list[Parameter]) -> None:
        pairs = [self._request(parameter) for parameter in members]
        requests, contexts = [request for request, _ in pairs], [context for _, context in pairs]
        result = submit(requests, self._options.process_set)
        self._under_way[tuple(members)] = _SentGradients(members, contexts, self._options, result)

    def _request(self, parameter: Parameter) -> tuple[Request, Any]:
        """Return the allreduce request for a gradient, and the context that decompress() needs."""
        gradient, options = parameter.grad, self._options
        assert gradient is not None
        tensor = gradient.to_dense() if gradient.is_sparse else gradient.contiguous()
        codec = codec_for(options.compression, tensor)
        context: Any = _NOT_COMPRESSED
        if codec is None:
            tensor, context = options.compression.compress(tensor)
        request = allreduce_request(
            tensor,
            options.op,
            options.factors,
            options.process_set,
            in_place=True,
            name=f"allreduce.{self._names[parameter]}",
            codec=codec or "none",
            residual=self._residual(parameter, codec),
            priority=self._priority[parameter],
        )
        return request, context

    def _residual(self, parameter: Parameter, codec: str | None) -> Residual | None:
        if codec is None or not uses_error_feedback(codec, None):
            return None
        if parameter not in self._residuals:
            self._residuals[parameter] = Residual(parameter.shape)
        return self._residuals[parameter]


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()


_NOT_COMPRESSED = object()  # stands for the context of a gradient that is not compressed


@dataclass(frozen=True, slots=True)
class _SentGradients:
    """Gradients that were submitted together, each with the context that decompress() needs."""

    members: Sequence[Parameter]
    contexts: Sequence[Any]
    options: ReducerOptions
    result: AsyncResult

    def finish(self) -> None:
        """Block until the gradients are reduced, and store the results in the parameters."""
        results: list[torch.Tensor] = self.result.wait()
        for parameter, context, result in zip(self.members, self.contexts, results, strict=True):
            gradient = parameter.grad
            assert gradient is not None
            if context is not _NOT_COMPRESSED:
                result = self.options.compression.decompress(result, context)
            if gradient.is_sparse:
                parameter.grad = result if result.is_sparse else result.to_sparse()
            elif result.data_ptr() != gradient.data_ptr():
                gradient.copy_(result)
