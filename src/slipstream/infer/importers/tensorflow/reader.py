"""A graph of TensorFlow as a graph of ours: op by op, functions within it put in their places.

What does not depend on the inputs is computed by TensorFlow at once. Shapes are all known, so that
what is computed from them is known too. Loops are unrolled where their length follows from that.
"""

# TensorFlow has no stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers import moves
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.step import Operand, Rule, Step, Unimportable, choose, graph_dtype
from slipstream.infer.importers.tensorflow.layers import LAYERS
from slipstream.infer.importers.tensorflow.lists import LISTS, TensorList, named
from slipstream.infer.importers.tensorflow.ops import OPS
from slipstream.infer.importers.tensorflow.shapes import SHAPES

RULES: dict[str, Rule] = {**OPS, **LAYERS, **SHAPES}
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BRANCHES = ("If", "StatelessIf")
LOOPS = ("StatelessWhile", "While")
FROM_SHAPES = ("OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike")
LARGEST_LOOP = 10_000  # ops of a loop that is unrolled

Values = dict[str, Operand]  # by the name of a tensor in its graph


class _Lost:
    """The value of what depends on something that cannot be imported."""


class TensorFlowReader:
    """Goes through graphs, and collects what has no rule."""

    def __init__(self, builder: Builder, graph: Any, library: Mapping[str, Any]) -> None:
        self.refused: Counter[str] = Counter()
        self._b = builder
        self._graph = graph
        self._library = library
        self._functions: dict[str, Any] = {}

    def named(self, operand: Operand) -> str:
        """Return an operand as a value of the graph."""
        return named(self._b, operand)

    def run(self, given: Values, fetches: Sequence[Any]) -> list[Operand]:
        """Import the ops and return the values of tensors of one graph, given other values."""
        values = dict(given)
        for op in _ordered(fetches, given):
            results = self._op(op, [values[tensor.name] for tensor in op.inputs])
            values.update(
                {tensor.name: item for tensor, item in zip(op.outputs, results, strict=True)}
            )
        return [values[tensor.name] for tensor in fetches]

    # ---- one op ----------------------------------------------------------------------------

    def _op(self, op: Any, operands: Sequence[Operand]) -> list[Operand]:
        if op.type in CALLS:
            return self._call(op.get_attr("f").name, operands)
        try:
            if any(isinstance(operand.value, _Lost) for operand in operands):
                return self._lost(op)
            return self._results(op, operands)
        except Unimportable as reason:
            self.refused[f"{op.type} {reason}".strip()] += 1
        except UsageError as error:
            self.refused[f"{op.type} ({error})"] += 1
        return [Operand(_Lost(), ()) for _ in op.outputs]

    def _lost(self, op: Any) -> list[Operand]:
        """Results that follow from what cannot be imported; Unimportable where this cannot too."""
        others = (*BRANCHES, *LOOPS, *FROM_SHAPES, *LISTS)
        if op.type not in RULES and op.type not in others:
            raise Unimportable
        return [Operand(_Lost(), ()) for _ in op.outputs]

    def _results(self, op: Any, operands: Sequence[Operand]) -> list[Operand]:
        if op.type in LISTS:
            return [LISTS[op.type](self._b, operands)]
        if op.type in LOOPS:
            return self._loop(op, operands)
        if op.type in BRANCHES:
            return self._branch(op, operands)
        if op.type in FROM_SHAPES:
            return _from_shapes(op, operands)
        if all(operand.is_known for operand in operands) and not op.op_def.is_stateful:
            return _computed(op, operands)
        return self._by_rule(op, operands)

    def _by_rule(self, op: Any, operands: Sequence[Operand]) -> list[Operand]:
        rule = RULES.get(op.type)
        if rule is None:
            raise Unimportable
        dtypes = [graph_dtype(tensor.dtype.base_dtype.name) for tensor in op.outputs]
        params = {name: op.get_attr(name) for name in op.node_def.attr}
        self._b.where = str(op.name).replace(" ", "_")
        found = rule(Step(self._b, params, operands, (), dtypes[0], len(dtypes)))
        names = [found] if isinstance(found, str) else found
        names = [
            moves.cast(self._b, name, dtype) for name, dtype in zip(names, dtypes, strict=True)
        ]
        return [Operand(name, self._b.shape(name)) for name in names]

    # ---- functions -------------------------------------------------------------------------

    def _call(self, name: str, operands: Sequence[Operand]) -> list[Operand]:
        graph = self._function(name)
        given = {tensor.name: item for tensor, item in zip(graph.inputs, operands, strict=True)}
        return self.run(given, graph.outputs)

    def _function(self, name: str) -> Any:
        from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

        if name not in self._functions:
            with self._graph.as_default():
                self._functions[name] = function_def_to_graph(self._library[name])
        return self._functions[name]

    def _branch(self, op: Any, operands: Sequence[Operand]) -> list[Operand]:
        """One of two functions; where it is not known which, both are computed."""
        which, *rest = operands
        names = [op.get_attr(f"{name}_branch").name for name in ("then", "else")]
        if which.is_known:
            return self._call(names[0 if np.asarray(which.value).any() else 1], rest)
        cases = [self._call(name, rest) for name in names]
        condition = moves.cast(self._b, self.named(which), np.bool_)
        found: list[Operand] = []
        for yes, no in zip(*cases, strict=True):
            name = choose(self._b, condition, self.named(yes), self.named(no))
            found.append(Operand(name, self._b.shape(name)))
        return found

    def _loop(self, op: Any, operands: Sequence[Operand]) -> list[Operand]:
        """A loop that goes on as long as what is known says, unrolled."""
        condition, body = (op.get_attr(name).name for name in ("cond", "body"))
        size = len(self._function(body).get_operations())
        values, rounds = list(operands), 0
        while True:
            (goes_on,) = self._call(condition, values)
            if isinstance(goes_on.value, _Lost) or not goes_on.is_known:
                raise Unimportable("of a length that is computed")
            if not np.asarray(goes_on.value).any():
                return values
            rounds += 1
            if rounds * size > LARGEST_LOOP:
                raise Unimportable(
                    f"of {rounds} rounds and more: {LARGEST_LOOP} ops are unrolled, a round has"
                    f" {size}"
                )
            values = self._call(body, values)


def _ordered(fetches: Sequence[Any], given: Mapping[str, Operand]) -> list[Any]:
    """Return the ops that the tensors need, each after the ops that it reads."""
    order: list[Any] = []
    seen: set[str] = set()
    stack = [(tensor.op, False) for tensor in reversed(fetches) if tensor.name not in given]
    while stack:
        op, is_ready = stack.pop()
        if is_ready:
            order.append(op)
        elif op.name not in seen:
            seen.add(op.name)
            stack.append((op, True))
            stack += [(tensor.op, False) for tensor in op.inputs if tensor.name not in given]
    return order


def _computed(op: Any, operands: Sequence[Operand]) -> list[Operand]:
    """The results of an op whose operands are known, by TensorFlow."""
    import tensorflow
    from tensorflow.python.eager import context, execute

    if op.type == "Const":
        array = tensorflow.make_ndarray(op.get_attr("value"))
        return [Operand(array, array.shape)]
    if op.type in ("Identity", "NoOp", "StopGradient"):
        return list(operands)
    attributes: list[Any] = []
    for name in op.node_def.attr:
        if not name.startswith("_"):
            attributes += [name, _encoded(op.get_attr(name))]
    found = execute.execute(
        op.type,
        num_outputs=len(op.outputs),
        inputs=[tensorflow.convert_to_tensor(operand.value) for operand in operands],
        attrs=tuple(attributes),
        ctx=context.context(),
    )
    return [Operand(item.numpy(), tuple(item.shape)) for item in found]


def _encoded(value: Any) -> Any:
    """An attribute as an op that runs at once takes it: dtypes are numbers."""
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    return getattr(value, "as_datatype_enum", value)


def _from_shapes(op: Any, operands: Sequence[Operand]) -> list[Operand]:
    """What depends on the operands' shapes only."""
    dtypes = [tensor.dtype.base_dtype.as_numpy_dtype for tensor in op.outputs]
    found: list[Operand] = []
    for operand, dtype in zip(operands, dtypes, strict=True):
        if isinstance(operand.value, TensorList):
            raise Unimportable("of a list")
        shape = operand.shape
        match op.type:
            case "Shape" | "ShapeN":
                array = np.array(shape, dtype)
            case "Size":
                array = np.array(int(np.prod(shape)), dtype)
            case "Rank":
                array = np.array(len(shape), dtype)
            case "ZerosLike":
                array = np.zeros(shape, dtype)
            case _:
                array = np.ones(shape, dtype)
        found.append(Operand(array, array.shape))
    return found
