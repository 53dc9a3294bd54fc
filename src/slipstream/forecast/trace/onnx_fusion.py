"""Fusion of forward operators into the kernels that PyTorch runs, and the casts of autocast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from slipstream.forecast.trace.steps import ForwardStep, TensorType
from slipstream.forecast.work.workload import OperatorKind

# Elementwise operators, and below them reductions over the last dimensions.
_POINTWISE = {
    "abs", "add", "cast", "ceil", "clip", "cos", "div", "elu", "equal", "erf", "exp", "floor",
    "greater", "hardsigmoid", "hardswish", "leakyrelu", "less", "log", "max", "min", "mul", "neg",
    "not", "pow", "reciprocal", "relu", "round", "selu", "sigmoid", "sign", "sin", "softplus",
    "sqrt", "sub", "tanh", "where",
}  # fmt: skip
_REDUCES = {"reducemean", "reducesum", "reducesumsquare", "reducemax", "reducel2"}


def with_biases(
    steps: Sequence[ForwardStep],
    outputs: Collection[str],
    trained: Collection[str],
    tensors: dict[str, TensorType],
) -> list[ForwardStep]:
    """Fuse each addition of a bias into its matrix product, if nothing else reads the product.

    Args:
        steps: Operators of the forward pass, in order of execution.
        outputs: Names of the model's outputs.
        trained: Names of the parameters.
        tensors: Shape and dtype of each tensor, by tensor name.
    """
    readers = Counter(name for step in steps for name in step.inputs)
    made: dict[str, int] = {}
    fused: list[ForwardStep] = []
    for step in steps:
        biases = [name for name in step.inputs if name in trained]
        others = [name for name in step.inputs if name not in trained]
        if step.name == "add" and len(biases) == len(others) == 1 and others[0] in made:
            place, (bias,) = made[others[0]], biases
            product = fused[place]
            row = tensors[step.outputs[0]].shape[-1]
            if readers[others[0]] == 1 and others[0] not in outputs and _is_row(tensors[bias], row):
                inputs = (bias, *product.inputs)
                fused[place] = replace(product, name="addmm", inputs=inputs, outputs=step.outputs)
                continue
        if step.kind is OperatorKind.PRODUCT:
            made[step.outputs[0]] = len(fused)
        fused.append(step)
    return fused


def _is_row(tensor: TensorType, width: int) -> bool:
    return tensor.elements == width and tensor.shape[-1] == width


def with_functions(
    steps: Sequence[ForwardStep], outputs: Collection[str], tensors: dict[str, TensorType]
) -> list[ForwardStep]:
    """Fuse operators that together compute one function of one tensor, such as GELU or a norm.

    An elementwise operator, or a reduction, is fused with the operators that make its inputs if the
    fused kernel reads only one tensor besides parameters and constants. The backward pass of the
    kernel reads that tensor again.

    Args:
        steps: Operators of the forward pass, in order of execution.
        outputs: Names of the model's outputs.
        tensors: Shape and dtype of each tensor, by tensor name.
    """
    groups = _Groups(tensors)
    for index, step in enumerate(steps):
        if step.name in _POINTWISE or step.name in _REDUCES:
            groups.take(index, step)
    readers: dict[str, set[int]] = {}
    for index, step in enumerate(steps):
        for name in step.inputs:
            readers.setdefault(name, set()).add(index)
    fused: list[ForwardStep] = []
    done: set[int] = set()
    for index, step in enumerate(steps):
        members = groups.members(index)
        if len(members) == 1:
            fused.append(step)
        elif index not in done:
            done.update(members)
            inside = [steps[member] for member in members]
            left = [
                name
                for member in inside
                for name in member.outputs
                if name in outputs or not readers.get(name, set()) <= set(members)
            ]
            fused.append(_joined(inside, left))
    return fused


class _Groups:
    """Groups of operators; each group computes one function of one tensor."""

    def __init__(self, tensors: dict[str, TensorType]) -> None:
        self._tensors = tensors
        # For each value, the first step of the group that makes it, and the value of which it is a
        # function.
        self._made: dict[str, tuple[int, str]] = {}
        self._members: dict[int, list[int]] = {}
        self._first: dict[int, int] = {}

    def take(self, index: int, step: ForwardStep) -> None:
        """Group an operator with those that make its inputs, if all depend on only one tensor."""
        moving = [name for name in step.inputs if not self._tensors[name].fixed]
        origins = [self._made[name] for name in moving if name in self._made]
        roots = {root for _, root in origins}
        direct = {name for name in moving if name not in self._made}
        root = roots.pop() if len(roots) == 1 and direct <= _roots(origins) else ""
        if not root:
            if len(set(moving)) != 1:
                return
            root, origins = moving[0], []
        self._join(index, step, root, [first for first, _ in origins])

    def _join(self, index: int, step: ForwardStep, root: str, groups: Sequence[int]) -> None:
        first = min((self._first[group] for group in groups), default=index)
        members = sorted({index, *(m for group in groups for m in self.members(group))})
        self._members[first] = members
        self._first.update(dict.fromkeys(members, first))
        self._made.update(dict.fromkeys(step.outputs, (first, root)))

    def members(self, index: int) -> Sequence[int]:
        """Return the indices of the operators in an operator's group, or its own if it has none."""
        return self._members.get(self._first.get(index, -1), [index])


def _roots(origins: Sequence[tuple[int, str]]) -> set[str]:
    return {root for _, root in origins}


def _joined(steps: Sequence[ForwardStep], outputs: Sequence[str]) -> ForwardStep:
    """Return one operator that does the work of several operators."""
    made = {name for step in steps for name in step.outputs}
    inputs = [name for step in steps for name in step.inputs if name not in made]
    reduces = any(step.name in _REDUCES for step in steps)
    function = next((name for name in ("erf", "sigmoid", "tanh") if _has(steps, name)), "function")
    names = {"erf": "gelu", "sigmoid": "silu", "tanh": "gelu", "function": "function"}
    unique = tuple(dict.fromkeys(inputs))
    return ForwardStep(
        name="layer_norm" if reduces else names[function],
        module=steps[0].module,
        kind=OperatorKind.NORM if reduces else OperatorKind.MEMORY,
        inputs=unique,
        outputs=tuple(outputs),
        saved=unique,
    )


def _has(steps: Sequence[ForwardStep], name: str) -> bool:
    return any(step.name == name for step in steps)


def with_casts(
    steps: Sequence[ForwardStep], tensors: dict[str, TensorType], half: str
) -> list[ForwardStep]:
    """Cast the inputs of matrix products to 16 bits, each input once for all its products.

    Any other operator computes in 16 bits if all its floating-point inputs, except parameters and
    constants, are in 16 bits.

    Args:
        steps: Operators of the forward pass, in order of execution.
        tensors: Shape and dtype of each tensor, by tensor name; the call changes dtypes and adds
            the 16-bit copies.
        half: Name of the 16-bit dtype: "float16" or "bfloat16".
    """
    cast_steps: list[ForwardStep] = []
    for step in steps:
        if step.terms:
            step = _cast(step, tensors, half, cast_steps)
        moving = [tensors[name] for name in step.inputs if not tensors[name].fixed]
        floats = {tensor.dtype for tensor in moving if tensor.is_float}
        if step.terms or floats == {half}:
            for name in step.outputs:
                if tensors[name].dtype == "float32":
                    tensors[name] = replace(tensors[name], dtype=half)
        cast_steps.append(step)
    return cast_steps


def _cast(
    step: ForwardStep, tensors: dict[str, TensorType], half: str, cast_steps: list[ForwardStep]
) -> ForwardStep:
    """Return an operator with 16-bit inputs; append the missing casts to `cast_steps`."""
    names: dict[str, str] = {}
    for name in step.inputs:
        if tensors[name].dtype != "float32":
            continue
        names[name] = f"{name}:{half}"
        if names[name] not in tensors:
            tensors[names[name]] = replace(tensors[name], dtype=half)
            cast_steps.append(
                ForwardStep(
                    name="_to_copy",
                    module=step.module,
                    kind=OperatorKind.MEMORY,
                    inputs=(name,),
                    outputs=(names[name],),
                )
            )
    return replace(
        step,
        inputs=tuple(names.get(name, name) for name in step.inputs),
        saved=tuple(names.get(name, name) for name in step.saved),
        terms=tuple(
            replace(
                term,
                left=names.get(term.left, term.left),
                right=names.get(term.right, term.right),
            )
            for term in step.terms
        ),
    )
