"""Operators that reduce axes to one number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.moves import axis_of, cast, reshape
from slipstream.infer.importers.mxnet.symbol import SymbolOptions

Convert = Callable[[Builder, SymbolOptions, list[str]], str]


def _axes(builder: Builder, options: SymbolOptions, x: str) -> list[int]:
    """Return the axes to reduce: the axes that the option `axis` lists (default: all axes).

    If the option `exclude` is true, return the axes that `axis` does not list.
    """
    rank = len(builder.shape(x))
    named = options.integers("axis")
    if any(not -rank <= axis < rank for axis in named):
        raise UsageError(f"{options.where}: axis is {named}; allowed: {-rank} to {rank - 1}")
    axes = sorted({axis % rank for axis in named})
    if options.flag("exclude", False):
        return [axis for axis in range(rank) if axis not in axes]
    return axes or list(range(rank))


def _reduced(op: str) -> Convert:
    def convert(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
        axes, keeps = _axes(builder, options, x[0]), options.flag("keepdims", False)
        if op == "ReduceSum":
            result = builder.add(op, x[0], builder.constant("axes", np.asarray(axes)), keepdims=1)
        else:
            result = builder.add(op, x[0], axes=axes, keepdims=1)
        if keeps:
            return result
        shape = [size for at, size in enumerate(builder.shape(x[0])) if at not in axes]
        return reshape(builder, result, shape or [1])  # MXNet has no arrays without dimensions

    return convert


def _norm(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    degree = options.integer("ord", 2)
    if degree not in (1, 2):
        raise UsageError(f"{options.where}: ord is {degree}; allowed: 1, 2")
    return _reduced(f"ReduceL{degree}")(builder, options, x)


def _arg(op: str) -> Convert:
    """Return a function that converts argmax or argmin.

    The result is the position of the first largest or smallest element, as float32.
    """

    def convert(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
        data, shape = x[0], builder.shape(x[0])
        if not options.has("axis"):
            data = reshape(builder, data, (-1,))
            shape = builder.shape(data)
        axis = axis_of(options, "axis", 0, len(shape))
        keeps = options.flag("keepdims", False)
        position = builder.add(op, data, axis=axis, keepdims=1)
        if not keeps:
            sizes = [size for place, size in enumerate(shape) if place != axis]
            position = reshape(builder, position, sizes or [1])
        return cast(builder, position, np.float32)

    return convert


OPERATORS: dict[str, Convert] = {
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "max": _reduced("ReduceMax"),
    "max_axis": _reduced("ReduceMax"),
    "mean": _reduced("ReduceMean"),
    "min": _reduced("ReduceMin"),
    "min_axis": _reduced("ReduceMin"),
    "norm": _norm,
    "prod": _reduced("ReduceProd"),
    "sum": _reduced("ReduceSum"),
    "sum_axis": _reduced("ReduceSum"),
}
