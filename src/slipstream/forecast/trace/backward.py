"""Derivation of the backward pass from the operators of a forward pass, as one workload.

The backward pass of a matrix product is one product per gradient. The backward pass of an operator
that is no matrix product reads the gradients of its outputs and the tensors that the forward pass
saved, and writes the gradients of its inputs. If several operators read a tensor, their
contributions to its gradient are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.errors import UsageError
from slipstream.forecast.trace.steps import Back, ForwardStep, TensorType
from slipstream.forecast.trace.tape import Entry, Tape
from slipstream.forecast.work.workload import (
    OperatorKind,
    Product,
    TrainedParameter,
    TrainingPhase,
    Workload,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A model's forward pass.

    Args:
        name: Name of the model.
        samples: Number of samples in the micro-batch.
        steps: Operators of the forward pass, in order of execution.
        tensors: Shape and dtype of each tensor, by tensor name.
        parameters: Name by which users know each parameter, such as "fc.weight"; the keys are keys
            of `tensors`.
        inputs: Names of the model's inputs.
        outputs: Names of the model's outputs.
        buffer_bytes: Bytes of state that is not trained, such as the running means of batch norms.
    """

    name: str
    samples: int
    steps: Sequence[ForwardStep]
    tensors: Mapping[str, TensorType]
    parameters: Mapping[str, str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    buffer_bytes: int


def with_backward(forward: Forward) -> Workload:
    """Return the workload of a forward pass and of the backward pass derived from it.

    Args:
        forward: Forward pass of the model.

    Raises:
        UsageError: No output depends on a parameter.
    """
    return _Passes(forward).workload()


class _Passes:
    """Builder of a workload: forward operators, then the backward operators in reverse order."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._tensors = forward.tensors
        self._tape = Tape(forward.tensors)
        self._needs = set(forward.parameters)
        self._gradients: dict[str, int] = {}
        self._ready: dict[str, int] = {}

    def workload(self) -> Workload:
        """Return the workload of the forward and the backward pass; call this method only once."""
        forward, tape = self._forward, self._tape
        for name in (*forward.parameters, *forward.inputs):
            tape.value(name)
        for step in forward.steps:
            self._run(step)
        self._begin()
        for step in reversed(forward.steps):
            self._reverse(step)
        staying = {self._gradients[name] for name in self._ready}
        outputs = {tape.value(name) for name in forward.outputs}
        return Workload(
            name=forward.name,
            samples=forward.samples,
            operators=tuple(tape.operators),
            values=tape.values(staying, outputs),
            parameters=tuple(map(self._parameter, forward.parameters)),
            buffer_bytes=forward.buffer_bytes,
        )

    def _parameter(self, value: str) -> TrainedParameter:
        tensor = self._tensors[value]
        return TrainedParameter(
            name=self._forward.parameters[value],
            elements=tensor.elements,
            num_bytes=tensor.num_bytes,
            ready=self._ready.get(value, -1),
            value=self._tape.value(value),
        )

    def _bytes(self, names: Iterable[str]) -> int:
        return sum(self._tensors[name].num_bytes for name in names)

    def _run(self, step: ForwardStep) -> None:
        """Append a forward operator to the workload; a view only shares the memory of its input."""
        tape = self._tape
        if not self._needs.isdisjoint(step.inputs):
            self._needs.update(name for name in step.outputs if self._tensors[name].is_float)
        if step.view:
            for name in step.outputs:
                tape.view(name, step.inputs[0])
            return
        names = (*step.inputs, *step.outputs)
        tape.write(
            Entry(
                step=step,
                name=step.name,
                phase=TrainingPhase.FORWARD,
                products=tuple(term.product for term in step.terms),
                reads=list(map(tape.value, step.inputs)),
                writes=list(map(tape.make, step.outputs)),
                moved=self._bytes(names) if step.moved is None else step.moved,
            )
        )

    def _begin(self) -> None:
        """Append operators that fill the gradients of the model's outputs with ones."""
        outputs = [name for name in self._forward.outputs if name in self._needs]
        if not outputs:
            raise UsageError(
                f"{self._forward.name} has no output that depends on a parameter, so it cannot be"
                " trained"
            )
        for name in outputs:
            step = ForwardStep(
                name="ones_like", module="", kind=OperatorKind.MEMORY, inputs=(), outputs=(name,)
            )
            self._make(step, step.name, (), (name,))

    def _make(
        self,
        step: ForwardStep,
        name: str,
        inputs: Sequence[tuple[str, int]],
        targets: Sequence[str],
        products: tuple[Product, ...] = (),
    ) -> None:
        """Append an operator of the backward pass, which writes gradients.

        Args:
            step: Forward operator whose backward pass contains the new operator.
            name: Name of the new operator.
            inputs: Tensors that the operator reads, as pairs: the name of a tensor of the same
                size, and the index of the memory to read.
            targets: Names of the tensors whose gradients the operator writes.
            products: Matrix products that the operator computes (default: none).
        """
        made = [self._tape.fresh(target) for target in targets]
        reads = [memory for _, memory in inputs]
        moved = self._bytes((*(value for value, _ in inputs), *targets))
        self._tape.write(
            Entry(
                step=step,
                name=name,
                phase=TrainingPhase.BACKWARD,
                products=products,
                reads=reads,
                writes=made,
                moved=moved,
            )
        )
        for target, gradient in zip(targets, made, strict=True):
            self._add(step, target, gradient)

    def _add(self, step: ForwardStep, name: str, gradient: int) -> None:
        """Store the gradient of a tensor; if the tensor already has a gradient, store their sum."""
        before = self._gradients.pop(name, None)
        if before is None:
            self._gradients[name] = gradient
        else:
            plain = replace(step, terms=(), kind=OperatorKind.MEMORY)
            self._make(plain, "add", [(name, before), (name, gradient)], [name])
        if name in self._forward.parameters:
            self._ready[name] = len(self._tape.operators) - 1

    def _reverse(self, step: ForwardStep) -> None:
        """Append the backward operators of a forward operator if a gradient flows through it."""
        gradients = [
            (name, self._gradients[name]) for name in step.outputs if name in self._gradients
        ]
        targets = [name for name in dict.fromkeys(step.inputs) if name in self._needs]
        if not gradients or not targets:
            return
        if step.kind is OperatorKind.PRODUCT and all(
            term.left and term.right for term in step.terms
        ):
            self._multiply(step, gradients, targets)
        elif step.back is Back.COMPUTES:
            saved = [(name, self._tape.value(name)) for name in step.saved]
            products = tuple(_gradients(step, targets))
            self._make(step, f"{step.name}_backward", [*gradients, *saved], targets, products)
        else:
            for name in targets:
                self._pass(step, gradients, name)

    def _multiply(
        self, step: ForwardStep, gradients: Sequence[tuple[str, int]], targets: Sequence[str]
    ) -> None:
        """Append a matrix product for the gradient of each factor, and a sum for that of a bias."""
        multiplied: set[str] = set()
        for term in step.terms:
            for_left, for_right = _halves(term.product)
            for name, other, product in (
                (term.left, term.right, for_left),
                (term.right, term.left, for_right),
            ):
                multiplied.add(name)
                if name in targets:
                    operator = "bmm" if product.batch > 1 else "mm"
                    reads = [*gradients[:1], (other, self._tape.value(other))]
                    self._make(step, operator, reads, [name], (product,))
        for name in targets:
            if name not in multiplied:
                self._make(step, "sum", gradients, [name])

    def _pass(self, step: ForwardStep, gradients: Sequence[tuple[str, int]], target: str) -> None:
        """Pass the output's gradient to an input: unchanged, summed or expanded into new memory."""
        size = sum(self._tensors[name].elements for name, _ in gradients)
        elements = self._tensors[target].elements
        if (size == elements and len(gradients) == 1) or step.back is Back.NARROWS:
            self._add(step, target, gradients[0][1])
        else:
            self._make(step, "sum" if size > elements else "cat", gradients, [target])


def _gradients(step: ForwardStep, targets: Sequence[str]) -> Iterable[Product]:
    """Yield the matrix products of an operator's backward pass that runs as one kernel."""
    if step.kind is OperatorKind.ATTENTION:
        # The backward pass computes the scores once more.
        yield step.terms[0].product
    for term in step.terms:
        for name, product in zip((term.left, term.right), _halves(term.product), strict=True):
            if not name or name in targets:
                yield product


def _halves(product: Product) -> tuple[Product, Product]:
    """Return the matrix products for the gradients of a product's left and right factor."""
    return (
        replace(product, n=product.k, k=product.n),
        replace(product, m=product.n, n=product.k, k=product.m),
    )
