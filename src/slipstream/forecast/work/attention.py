"""Attention without a fused kernel: the scores are written to memory and read again."""

from __future__ import annotations

from dataclasses import replace

from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TensorValue,
    TrainingPhase,
    Workload,
)

# Bytes that each kernel reads and writes, as a multiple of the size of the 16-bit scores. The
# kernels of the forward pass are scale, mask, cast to fp32, softmax and cast back. The kernels of
# the backward pass compute their gradients in reverse order.
_APART = {TrainingPhase.FORWARD: (2, 2, 3, 4, 3), TrainingPhase.BACKWARD: (3, 6, 3, 2, 2)}
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


def unfused(workload: Workload, *, dropout: bool, softmax_of: int = 1) -> Workload:
    """Return a workload in which separate kernels replace each fused attention.

    The kernels are two matrix products, a softmax with scale and mask, and dropout on the softmax's
    result.

    Args:
        workload: Workload with or without attention.
        dropout: Whether dropout is applied to attention scores.
        softmax_of: Number by which samples times heads must be divisible, so that scale, mask and
            softmax run as one kernel (default 1: always one kernel). Otherwise there are separate
            kernels for scale, for mask, for softmax in fp32 and for the casts.
    """
    if not any(operator.kind is OperatorKind.ATTENTION for operator in workload.operators):
        return workload
    return _Expansion(workload, dropout, softmax_of).workload()


class _Expansion:
    """Builder of a workload that replaces each attention operator, and renumbers all operators."""

    def __init__(self, workload: Workload, dropout: bool, softmax_of: int) -> None:
        self._old = workload
        self._dropout = dropout
        self._softmax_of = softmax_of
        self._operators: list[Operator] = []
        self._first: list[int] = []
        self._fresh: list[int] = []  # bytes of values that the old workload does not have
        # Values that the forward pass of an attention stores for the backward pass, by its output.
        self._kept: dict[int, tuple[int, ...]] = {}

    def workload(self) -> Workload:
        """Return the workload in which attention consists of separate kernels."""
        for operator in self._old.operators:
            self._first.append(len(self._operators))
            if operator.kind is not OperatorKind.ATTENTION:
                self._operators.append(operator)
            elif operator.phase is TrainingPhase.FORWARD:
                self._forward(operator)
            else:
                self._backward(operator)
        self._first.append(len(self._operators))
        return replace(
            self._old,
            operators=tuple(self._operators),
            values=(*map(self._moved, self._old.values), *self._lives()),
            parameters=tuple(
                replace(parameter, ready=self._last(parameter.ready))
                for parameter in self._old.parameters
            ),
        )

    def _last(self, index: int) -> int:
        return index if index < 0 else self._first[index + 1] - 1

    def _moved(self, value: TensorValue) -> TensorValue:
        dies = value.dies if value.dies < 0 else self._first[value.dies]
        return replace(value, born=self._last(value.born), dies=dies)

    def _lives(self) -> list[TensorValue]:
        """Return the added tensors; each exists from its first writer to its last reader."""
        fresh = range(len(self._old.values), len(self._old.values) + len(self._fresh))
        born: dict[int, int] = {}
        dies: dict[int, int] = {}
        for index, operator in enumerate(self._operators):
            for value in operator.writes:
                born.setdefault(value, index)
            for value in (*operator.reads, *operator.writes):
                dies[value] = index + 1
        return [TensorValue(self._fresh[at], born[v], dies[v]) for at, v in enumerate(fresh)]

    def _forward(self, operator: Operator) -> None:
        scores, sums = (replace(product, fill=1.0) for product in operator.products)
        numbers, size = scores.batch * scores.m * scores.n, _SIZES[operator.dtype]
        raw, shares = self._value(numbers * size), self._value(numbers * size)
        parts = [
            _product(operator, scores, operator.reads, (raw,)),
            *self._softmax(operator, scores, (raw,), (shares,)),
        ]
        stored: tuple[int, ...] = (shares,)
        if self._dropout:
            stored = (shares, self._value(numbers * size), self._value(numbers))
            moved = numbers * (2 * size + 1)
            parts.append(
                _pass(operator, OperatorKind.MEMORY, "dropout", moved, (shares,), stored[1:])
            )
        last = stored[min(1, len(stored) - 1)]
        self._kept[operator.writes[0]] = stored
        reads = (last, *operator.reads[-1:])
        self._operators += [*parts, _product(operator, sums, reads, operator.writes)]

    def _backward(self, operator: Operator) -> None:
        stored = next((self._kept[value] for value in operator.reads if value in self._kept), ())
        scores = replace(operator.products[0], fill=1.0)
        numbers, size = scores.batch * scores.m * scores.n, _SIZES[operator.dtype]
        into, weights, *others = (replace(product, fill=1.0) for product in operator.products[-4:])
        inner = (self._value(numbers * size),)
        # The backward pass begins with the gradients of the second product, and ends with those of
        # query and key.
        parts = [_product(operator, others[0], operator.reads, inner)]
        reads = (*operator.reads, *(stored[1:2] or stored))
        parts.append(_product(operator, others[1], reads, operator.writes[2:]))
        if self._dropout:
            moved = numbers * (2 * size + 1)
            parts.append(
                _pass(operator, OperatorKind.MEMORY, "dropout", moved, (*inner, *stored[2:]), inner)
            )
        parts += self._softmax(operator, scores, (*inner, *stored[:1]), inner)
        for product, written in zip((into, weights), operator.writes[:2], strict=False):
            parts.append(_product(operator, product, (*inner, *operator.reads), (written,)))
        self._operators += parts

    def _softmax(
        self, operator: Operator, scores: Product, reads: tuple[int, ...], writes: tuple[int, ...]
    ) -> list[Operator]:
        """Return the kernels of scale, mask and softmax, including the bytes that they move."""
        numbers, size = scores.batch * scores.m * scores.n, _SIZES[operator.dtype]
        forward = operator.phase is TrainingPhase.FORWARD
        fused = scores.batch % self._softmax_of == 0
        passes = ((2,) if forward else (3,)) if fused else _APART[operator.phase]
        return [
            _pass(operator, OperatorKind.MEMORY, "softmax", count * numbers * size, reads, writes)
            for count in passes
        ]

    def _value(self, num_bytes: int) -> int:
        """Add a tensor of the given size and return its index."""
        self._fresh.append(num_bytes)
        return len(self._old.values) + len(self._fresh) - 1


def _product(
    operator: Operator, product: Product, reads: tuple[int, ...], writes: tuple[int, ...]
) -> Operator:
    batch, m, n, k = product.batch, product.m, product.n, product.k
    moved = batch * (m * n + m * k + n * k) * _SIZES[operator.dtype]
    return replace(
        operator,
        name="bmm",
        kind=OperatorKind.PRODUCT,
        products=(product,),
        bytes_moved=float(moved),
        reads=reads,
        writes=writes,
    )


def _pass(
    operator: Operator,
    kind: OperatorKind,
    name: str,
    moved: int,
    reads: tuple[int, ...],
    writes: tuple[int, ...],
) -> Operator:
    return replace(
        operator,
        name=name,
        kind=kind,
        products=(),
        bytes_moved=float(moved),
        reads=reads,
        writes=writes,
    )
