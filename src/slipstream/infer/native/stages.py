"""Group the nodes of a graph into stages; one kernel computes one stage.

A stage is an operator and the additions and activations that follow it. The kernel applies the
additions and activations to the operator's result before the result is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from slipstream.infer.graph.graph import SLIPSTREAM, Array, Graph, Node

ACTIVATIONS = {
    "Silu": "SILU",
    "HardSwish": "HARD_SWISH",
    "Sigmoid": "SIGMOID",
    "HardSigmoid": "HARD_SIGMOID",
    "Gelu": "GELU",
    "Tanh": "TANH",
    "LeakyRelu": "LEAKY_RELU",
    "InverseRoot": "INVERSE_ROOT",
}
CLIPS = ("Relu", "Clip")
WITH_FACTOR = ("Conv", "ConvTranspose")
# Operators whose kernels can apply a Tail to their results.
WITH_TAIL = (
    "Conv",
    "ConvTranspose",
    "Linear",
    "Gemm",
    "LayerNormalization",
    "Add",
    *ACTIVATIONS,
    *CLIPS,
)


@dataclass
class Tail:
    """Operators that a kernel applies to its result before the result is written.

    The tail computes activation(value [* factor + offset] [+ addend]) [+ addend], and limits the
    result to the range from low to high. The addend is added before or after the activation (see
    `after`). The factor is a computed value with one number per channel; a factor is possible only
    if the batch has length 1. The offset is a constant with one number per channel.
    """

    factor: str | None = None
    offset: Array | None = None
    addend: str | None = None
    after: bool = False  # whether the addend is added after the activation
    activation: str = "NONE"
    alpha: float = 0.0
    beta: float = 0.0
    low: float = -np.inf
    high: float = np.inf

    @property
    def cuts(self) -> bool:
        """Whether the tail limits its result, as Clip or Relu does."""
        return bool(np.isfinite(self.low) or np.isfinite(self.high))

    @property
    def is_linear(self) -> bool:
        """Whether the tail has no addend, activation or clip yet."""
        return self.addend is None and self.activation == "NONE" and not self.cuts


@dataclass
class Stage:
    """A node, and the later nodes that the same kernel computes.

    `output` is the name of the last node's result.
    """

    node: Node
    output: str
    tail: Tail = field(default_factory=Tail)

    def reads(self) -> Iterator[str]:
        """Yield the names of the values that the kernel reads, constants included."""
        yield from (name for name in self.node.inputs if name)
        yield from (name for name in (self.tail.factor, self.tail.addend) if name is not None)


def stages_of(graph: Graph) -> list[Stage]:
    """Return the stages of a graph, in an order in which they can run."""
    uses = graph.uses()
    taken: set[int] = set()
    position = {id(node): index for index, node in enumerate(graph.nodes)}
    stages: list[tuple[int, Stage]] = []
    for node in graph.nodes:
        if id(node) in taken:
            continue
        stage, last = Stage(node, node.output), node
        taken.add(id(node))
        if node.op in WITH_TAIL and len(node.outputs) == 1:
            _fuse_own(graph, node, stage.tail)
            while (following := _only_reader(graph, uses, stage.output)) is not None:
                if id(following) in taken or not _fuse(graph, following, stage):
                    break
                taken.add(id(following))
                stage.output, last = following.output, following
        stages.append((position[id(last)], stage))
    return [stage for _, stage in sorted(stages, key=lambda item: item[0])]


def _only_reader(graph: Graph, uses: dict[str, list[Node]], value: str) -> Node | None:
    readers = uses.get(value, [])
    return readers[0] if len(readers) == 1 and value not in graph.outputs else None


def _fuse_own(graph: Graph, node: Node, tail: Tail) -> None:
    """Put a stage's first node into the tail if it is an activation, a clip or an addition.

    An addition of a constant is not put into the tail.
    """
    if node.op == "Add" and not any(name in graph.constants for name in node.inputs):
        tail.addend = node.inputs[1]
    elif node.op in ACTIVATIONS or node.op in CLIPS:
        _activate(graph, node, tail)


def _fuse(graph: Graph, node: Node, stage: Stage) -> bool:
    """Fuse `node` into a stage's tail; return False if the stage's kernel cannot apply `node`."""
    tail = stage.tail
    if tail.is_linear and (_fuse_factor(graph, node, stage) or _fuse_offset(graph, node, stage)):
        return True
    if node.op == "Add" and tail.addend is None and not tail.cuts:
        other = node.inputs[1] if node.inputs[0] == stage.output else node.inputs[0]
        if other in graph.constants or graph.shape(other) != graph.shape(stage.output):
            return False
        tail.addend, tail.after = other, tail.activation != "NONE"
        return True
    if tail.cuts or (tail.activation != "NONE" and node.op not in CLIPS):
        return False
    if node.op in ACTIVATIONS or node.op in CLIPS:
        return _activate(graph, node, tail)
    return False


def _fuse_factor(graph: Graph, node: Node, stage: Stage) -> bool:
    """Fuse a Mul by computed numbers, one per channel, into a tail; return False if impossible."""
    if node.op != "Mul" or stage.node.op not in WITH_FACTOR or stage.tail.factor is not None:
        return False
    other = node.inputs[1] if node.inputs[0] == stage.output else node.inputs[0]
    shape = graph.shape(stage.output)
    if other in graph.constants or shape is None or len(shape) != 4:
        return False
    if graph.shape(other) != (1, shape[1], 1, 1):
        return False
    stage.tail.factor = other
    return True


def _fuse_offset(graph: Graph, node: Node, stage: Stage) -> bool:
    """Fuse an Add of constants, one per channel, into a tail; return False if impossible.

    The Add must follow a Mul that is already fused as the tail's factor.
    """
    if node.op != "Add" or stage.tail.factor is None or stage.tail.offset is not None:
        return False
    other = node.inputs[1] if node.inputs[0] == stage.output else node.inputs[0]
    offset, shape = graph.constants.get(other), graph.shape(stage.output)
    if offset is None or shape is None or offset.shape[-3:] != (shape[1], 1, 1):
        return False
    if offset.size != shape[1] or offset.ndim > 4:
        return False
    stage.tail.offset = offset.ravel()
    return True


def _activate(graph: Graph, node: Node, tail: Tail) -> bool:
    if node.op == "Relu":
        tail.low = 0.0
    elif node.op == "Clip":
        bounds = [graph.constants.get(name) if name else None for name in node.inputs[1:]]
        if len(bounds) > 0 and bounds[0] is not None:
            tail.low = float(bounds[0])
        if len(bounds) > 1 and bounds[1] is not None:
            tail.high = float(bounds[1])
    else:
        if node.op == "Gelu" and node.get("approximate", "none") != "none":
            return False
        tail.activation = ACTIVATIONS[node.op]
        tail.alpha = float(
            node.get("alpha", {"HardSigmoid": 0.2, "LeakyRelu": 0.01}.get(node.op, 0))
        )
        tail.beta = float(node.get("beta", 0.5))
    return True


def is_ours(node: Node, op: str) -> bool:
    """Tell whether a node is Slipstream's own operator `op`, not an operator of ONNX."""
    return node.domain == SLIPSTREAM and node.op == op
