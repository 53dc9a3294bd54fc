"""Embedding tables whose gradients are sparse, because a step reads only a few rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slipstream.forecast.work.workload import Operator, OperatorKind, TrainingPhase, Workload


@dataclass(frozen=True, slots=True)
class Sparse:
    """Workload whose embedding tables have sparse gradients.

    Args:
        workload: Workload in which the gradient of an embedding table has only the rows that the
            batch reads.
        names: Names of the parameters that are embedding tables.
    """

    workload: Workload
    names: frozenset[str]


def sparse(workload: Workload) -> Sparse:
    """Return a workload whose embedding gradients have only the rows that the batch reads.

    Args:
        workload: Workload in which the gradient of an embedding table has all rows.
    """
    tables = {
        operator.reads[0]
        for operator in workload.operators
        if operator.kind is OperatorKind.GATHER and operator.phase is TrainingPhase.FORWARD
    }
    touched: dict[int, int] = {}
    for operator in workload.operators:
        if operator.phase is TrainingPhase.FORWARD and not tables.isdisjoint(operator.reads):
            rows = sum(workload.values[value].num_bytes for value in operator.writes)
            touched[operator.reads[0]] = touched.get(operator.reads[0], 0) + rows
    parameters = tuple(
        replace(
            parameter,
            elements=min(parameter.elements, touched[parameter.value] // 4),
            num_bytes=min(parameter.num_bytes, touched[parameter.value]),
        )
        if parameter.value in touched
        else parameter
        for parameter in workload.parameters
    )
    names = frozenset(
        parameter.name for parameter in workload.parameters if parameter.value in touched
    )
    gradients = {
        parameter.ready: float(touched[parameter.value])
        for parameter in workload.parameters
        if parameter.name in names
    }
    operators = tuple(
        _of_rows(operator, gradients.get(index, _read(operator, workload)))
        if _is_gradient(operator, index, gradients)
        else operator
        for index, operator in enumerate(workload.operators)
    )
    return Sparse(replace(workload, operators=operators, parameters=parameters), names)


def _is_gradient(operator: Operator, index: int, gradients: Mapping[int, float]) -> bool:
    return operator.phase is TrainingPhase.BACKWARD and (
        "embedding" in operator.name
        or (index in gradients and operator.kind is OperatorKind.GATHER)
    )


def _of_rows(operator: Operator, num_bytes: float) -> Operator:
    return replace(operator, bytes_moved=min(operator.bytes_moved, 3 * num_bytes))


def _read(operator: Operator, workload: Workload) -> float:
    """Return the bytes of all tensors that an operator reads."""
    return float(sum(workload.values[value].num_bytes for value in operator.reads))
