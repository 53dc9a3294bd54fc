"""Reader of TensorFlow's graphs; it imports them op by op, and inlines nested functions.

TensorFlow computes all values that do not depend on the inputs. All shapes are known at import
time, so values that are computed from shapes are known too. Loops of known length are unrolled.
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
LARGEST_LOOP = 10_000  # ops of an unrolled loop, at most; chosen by hand

Values = dict[str, Operand]  # by the name of the tensor in TensorFlow's graph


class _Lost:
    """Placeholder for the result of an op that cannot be imported, or that reads a placeholder."""


class TensorFlowReader:
    """An importer of graphs that also counts the ops that cannot be imported."""

    def __init__(self, builder: Builder, graph: Any, library: Mapping[str, Any]) -> None:
        self.refused: Counter[str] = Counter()
        self._b = builder
        self._graph = graph
        self._library = library
        self._functions: dict[str, Any] = {}

    def named(self, operand: Operand) -> str:
        """Return the name of an operand in the ONNX graph."""
        return named(self._b, operand)

    def run(self, inputs: Values, fetches: Sequence[Any]) -> list[Operand]:
        """Import the ops of a graph that compute the tensors `fetches`; return the tensors' values.

        Args:
            inputs: Values of the graph's inputs.
            fetches: Tensors whose values are returned.
        """
        values = dict(inputs)
        for op in _ordered(fetches, inputs):
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
        """Return placeholders for the results of an op that reads a placeholder.

        Raises:
            Unimportable: If the op itself cannot be imported either.
        """
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
        output = rule(Step(self._b, params, operands, (), dtypes[0], len(dtypes)))
        names = [output] if isinstance(output, str) else output
        names = [
            moves.cast(self._b, name, dtype) for name, dtype in zip(names, dtypes, strict=True)
        ]
        return [Operand(name, self._b.shape(name)) for name in names]

    # ---- functions -------------------------------------------------------------------------

    def _call(self, name: str, operands: Sequence[Operand]) -> list[Operand]:
        graph = self._function(name)
        inputs = {tensor.name: item for tensor, item in zip(graph.inputs, operands, strict=True)}
        return self.run(inputs, graph.outputs)

    def _function(self, name: str) -> Any:
        from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

        if name not in self._functions:
            with self._graph.as_default():
                self._functions[name] = function_def_to_graph(self._library[name])
        return self._functions[name]

    def _branch(self, op: Any, operands: Sequence[Operand]) -> list[Operand]:
        """Import the branch that the condition chooses.

        If the condition is only known at run time, import both branches, and add nodes that select
        the results of one branch.
        """
        condition_operand, *arguments = operands
        names = [op.get_attr(f"{name}_branch").name for name in ("then", "else")]
        if condition_operand.is_known:
            return self._call(
                names[0 if np.asarray(condition_operand.value).any() else 1], arguments
            )
        cases = [self._call(name, arguments) for name in names]
        condition = moves.cast(self._b, self.named(condition_operand), np.bool_)
        selected: list[Operand] = []
        for yes, no in zip(*cases, strict=True):
            name = choose(self._b, condition, self.named(yes), self.named(no))
            selected.append(Operand(name, self._b.shape(name)))
        return selected

    def _loop(self, op: Any, operands: Sequence[Operand]) -> list[Operand]:
        """Unroll a loop; before every iteration, the condition must be known at import time."""
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
                    f"of {rounds} rounds and more with {size} ops each; allowed: {LARGEST_LOOP} ops"
                )
            values = self._call(body, values)


def _ordered(fetches: Sequence[Any], inputs: Mapping[str, Operand]) -> list[Any]:
    """Return the ops that compute tensors; an op comes after the ops whose results it reads."""
    order: list[Any] = []
    seen: set[str] = set()
    stack = [(tensor.op, False) for tensor in reversed(fetches) if tensor.name not in inputs]
    while stack:
        op, is_ready = stack.pop()
        if is_ready:
            order.append(op)
        elif op.name not in seen:
            seen.add(op.name)
            stack.append((op, True))
            stack += [(tensor.op, False) for tensor in op.inputs if tensor.name not in inputs]
    return order


def _computed(op: Any, operands: Sequence[Operand]) -> list[Operand]:
    """Let TensorFlow compute the results of an op whose operands are all known."""
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
    results = execute.execute(
        op.type,
        num_outputs=len(op.outputs),
        inputs=[tensorflow.convert_to_tensor(operand.value) for operand in operands],
        attrs=tuple(attributes),
        ctx=context.context(),
    )
    return [Operand(item.numpy(), tuple(item.shape)) for item in results]


def _encoded(value: Any) -> Any:
    """Convert an op's attribute for eager execution, which takes dtypes as numbers."""
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    return getattr(value, "as_datatype_enum", value)


def _from_shapes(op: Any, operands: Sequence[Operand]) -> list[Operand]:
    """Compute results that depend only on the operands' shapes."""
    dtypes = [tensor.dtype.base_dtype.as_numpy_dtype for tensor in op.outputs]
    results: list[Operand] = []
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
        results.append(Operand(array, array.shape))
    return results
