"""Reader of jaxprs; it imports them equation by equation, and inlines nested functions.

JAX computes all values that do not depend on the inputs. Loops of known length are unrolled.
"""

# The types of jax are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers import moves
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.jax.indexing import INDEXING
from slipstream.infer.importers.jax.primitives import PRIMITIVES
from slipstream.infer.importers.jax.products import PRODUCTS
from slipstream.infer.importers.step import (
    HALVES,
    Operand,
    Rule,
    Step,
    Unimportable,
    graph_dtype,
    plain,
)

RULES: dict[str, Rule] = {**PRIMITIVES, **PRODUCTS, **INDEXING}
BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # parameters in which primitives store a function
CALLS = (
    *("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"),
    *("custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint", "composite", "call"),
)
LARGEST_LOOP = 10_000  # equations of an unrolled loop, at most; chosen by hand


@dataclass(frozen=True, slots=True)
class _Result:
    """Shape and dtype of a result of an equation."""

    shape: tuple[int, ...]
    dtype: Any


class JaxReader:
    """An importer of jaxprs that also counts the primitives that cannot be imported."""

    def __init__(self, builder: Builder) -> None:
        self.refused: Counter[str] = Counter()
        self.is_halved = False
        self._b = builder

    def input(self, name: str, aval: Any) -> Operand:
        """Add an input of the graph."""
        try:
            dtype = graph_dtype(aval.dtype)
        except Unimportable as reason:
            self.refused[f"an input {reason}"] += 1
            dtype = np.dtype(np.float32)
        return Operand(self._b.input(name, aval.shape, dtype), tuple(aval.shape))

    def named(self, operand: Operand) -> str:
        """Return the name of a graph value that is the operand, broadcast to its full shape."""
        name = operand.value
        if operand.is_known:
            name = self._b.constant("constant", plain(operand.value))
        return moves.expand(self._b, name, operand.shape)

    def run(
        self, jaxpr: Any, consts: Sequence[Operand], inputs: Sequence[Operand]
    ) -> list[Operand]:
        """Import a jaxpr and return its results for the given constants and inputs."""
        from jax.extend.core import Literal

        values: dict[Any, Operand] = {
            **dict(zip(jaxpr.constvars, consts, strict=True)),
            **dict(zip(jaxpr.invars, inputs, strict=True)),
        }

        def operand(item: Any) -> Operand:
            if isinstance(item, Literal):
                aval: Any = item.aval
                return Operand(np.asarray(item.val, aval.dtype), np.shape(item.val))
            return values[item]

        for equation in jaxpr.eqns:
            operands = [operand(item) for item in equation.invars]
            results = self._equation(equation, operands)
            values.update(zip(equation.outvars, results, strict=True))
        return [operand(item) for item in jaxpr.outvars]

    def _equation(self, equation: Any, operands: Sequence[Operand]) -> list[Operand]:
        name = str(equation.primitive.name)
        if name in CALLS:
            return self._call(equation, operands)
        if all(operand.is_known for operand in operands) and not equation.effects:
            return _computed(equation, operands)
        if all(0 in getattr(item.aval, "shape", ()) for item in equation.outvars):
            return [_empty(item.aval) for item in equation.outvars]
        if name == "scan":
            return self._guarded(equation, operands, self._scan)
        if name == "cond":
            return self._guarded(equation, operands, self._cond)
        return self._guarded(equation, operands, self._by_rule)

    def _call(self, equation: Any, operands: Sequence[Operand]) -> list[Operand]:
        params = equation.params
        body = next(params[name] for name in BODIES if name in params)
        return self._body(body, operands)

    def _body(self, body: Any, operands: Sequence[Operand]) -> list[Operand]:
        """Import a jaxpr or a closed jaxpr, and return its results."""
        consts = getattr(body, "consts", ())
        jaxpr = getattr(body, "jaxpr", body)
        return self.run(jaxpr, [Operand(item, np.shape(item)) for item in consts], operands)

    def _guarded(
        self,
        equation: Any,
        operands: Sequence[Operand],
        importer: Callable[[Any, Sequence[Operand]], list[Operand]],
    ) -> list[Operand]:
        """Import an equation; after a failure, record the reason and return placeholder results."""
        try:
            return importer(equation, operands)
        except Unimportable as reason:
            self.refused[f"{equation.primitive.name} {reason}".strip()] += 1
        except UsageError as error:
            self.refused[f"{equation.primitive.name} ({error})"] += 1
        return [self._stand_in(variable.aval) for variable in equation.outvars]

    def _stand_in(self, aval: Any) -> Operand:
        shape = tuple(getattr(aval, "shape", ()))
        name = self._b.input(f"refused_{len(self.refused)}_{id(aval)}", shape, np.float32)
        try:
            name = moves.cast(self._b, name, graph_dtype(aval.dtype))
        except Unimportable:
            pass  # the equations that read this value are recorded too
        return Operand(name, shape)

    # ---- one equation ----------------------------------------------------------------------

    def _by_rule(self, equation: Any, operands: Sequence[Operand]) -> list[Operand]:
        rule = RULES.get(equation.primitive.name)
        if rule is None:
            raise Unimportable
        self.is_halved |= any(str(item.aval.dtype) in HALVES for item in equation.outvars)
        results = [
            _Result(tuple(variable.aval.shape), graph_dtype(variable.aval.dtype))
            for variable in equation.outvars
        ]
        self._b.where = str(equation.primitive.name)
        first = results[0]
        output = rule(Step(self._b, equation.params, operands, first.shape, first.dtype))
        names = [output] if isinstance(output, str) else output
        return [
            Operand(moves.cast(self._b, name, result.dtype), result.shape)
            for name, result in zip(names, results, strict=True)
        ]

    def _cond(self, equation: Any, operands: Sequence[Operand]) -> list[Operand]:
        """Import the chosen branch; if inputs decide the choice, import all branches and select."""
        branches, (index, *arguments) = equation.params["branches"], operands
        if index.is_known:
            at = int(np.clip(int(index.value), 0, len(branches) - 1))
            return self._body(branches[at], arguments)
        cases = [self._body(branch, arguments) for branch in branches]
        rule, selected = RULES["select_n"], list[Operand]()
        for at, variable in enumerate(equation.outvars):
            shape, dtype = tuple(variable.aval.shape), graph_dtype(variable.aval.dtype)
            step = Step(self._b, {}, [index, *(case[at] for case in cases)], shape, dtype)
            name = rule(step)
            assert isinstance(name, str)
            selected.append(Operand(moves.cast(self._b, name, dtype), shape))
        return selected

    def _scan(self, equation: Any, operands: Sequence[Operand]) -> list[Operand]:
        """Unroll a loop of known length."""
        p = equation.params
        length, body = int(p["length"]), p["jaxpr"]
        num_equations = length * max(len(body.jaxpr.eqns), 1)
        if num_equations > LARGEST_LOOP:
            raise Unimportable(
                f"of {length} rounds: {num_equations} equations; allowed: {LARGEST_LOOP}"
            )
        num_consts, num_carry = int(p["num_consts"]), int(p["num_carry"])
        consts = list(operands[:num_consts])
        carry = list(operands[num_consts : num_consts + num_carry])
        rows = operands[num_consts + num_carry :]
        outputs: list[list[Operand]] = []
        steps = range(length)
        for at in reversed(steps) if p["reverse"] else steps:
            row = [self._row(item, at) for item in rows]
            results = self._body(body, [*consts, *carry, *row])
            carry = results[:num_carry]
            outputs.append(results[num_carry:])
        if p["reverse"]:
            outputs.reverse()
        return [*carry, *(self._stacked(list(column)) for column in zip(*outputs, strict=True))]

    def _row(self, operand: Operand, at: int) -> Operand:
        """Return x[at]."""
        shape = operand.shape[1:]
        if operand.is_known:
            array = np.broadcast_to(np.asarray(operand.value), operand.shape)
            return Operand(array[at], shape)
        compact_shape = self._b.shape(operand.value)
        at = min(at, compact_shape[0] - 1)
        ends = [at + 1, *compact_shape[1:]]
        name = moves.cut(self._b, operand.value, [at, *(0 for _ in compact_shape[1:])], ends)
        return Operand(moves.reshape(self._b, name, compact_shape[1:]), shape)

    def _stacked(self, column: list[Operand]) -> Operand:
        """Stack the results of all iterations along a new first axis."""
        shape = column[0].shape
        rows = [moves.reshape(self._b, self.named(item), [1, *shape]) for item in column]
        return Operand(moves.concatenate(self._b, rows, 0), (len(column), *shape))


def _computed(equation: Any, operands: Sequence[Operand]) -> list[Operand]:
    """Let JAX compute the results of an equation whose operands are all known."""
    shapes = [tuple(getattr(variable.aval, "shape", ())) for variable in equation.outvars]
    if equation.primitive.name == "broadcast_in_dim":
        return [_repeated(equation, operands[0], shapes[0])]
    arrays = [_full_array(operand) for operand in operands]
    bound = equation.primitive.get_bind_params(equation.params)
    # Until JAX 0.7, get_bind_params returned functions too.
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    result = equation.primitive.bind(*functions, *arrays, **params)
    results = result if equation.primitive.multiple_results else [result]
    return [Operand(value, shape) for value, shape in zip(results, shapes, strict=True)]


def _empty(aval: Any) -> Operand:
    """Return an empty array, in place of an equation whose result has no elements."""
    return Operand(np.zeros(aval.shape, aval.dtype), tuple(aval.shape))


def _repeated(equation: Any, operand: Operand, shape: tuple[int, ...]) -> Operand:
    """Add new axes of length 1 to an array; its elements are not repeated."""
    array = operand.value
    sizes = [1] * len(shape)
    for axis, size in zip(equation.params["broadcast_dimensions"], np.shape(array), strict=True):
        sizes[axis] = size
    return Operand(array.reshape(sizes), shape)


def _full_array(operand: Operand) -> Any:
    """Return an operand's array, broadcast to its full shape; JAX broadcasts random keys, too."""
    import jax

    if np.shape(operand.value) == operand.shape:
        return operand.value
    return jax.numpy.broadcast_to(operand.value, operand.shape)
