"""Small graphs, what our kernels compute of them, and what ONNX Runtime does without optimising."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnxruntime
import pytest
from numpy.typing import ArrayLike, NDArray

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import SLIPSTREAM, Attribute, Graph, Node, Value
from slipstream.infer.graph.onnx_file import infer_shapes, to_model
from slipstream.infer.native.formats import BFloat16, Bytes, Format
from slipstream.infer.native.lower import Compiled, lower
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.precision import attended, storable
from slipstream.infer.native.runner import Runner
from slipstream.infer.rewrites.expand import EXPANSIONS, expand

Floats = NDArray[np.float32]
Values = dict[str, Floats]
Fed = tuple[str, str, tuple[int, ...], bytes]  # an input: name, dtype, shape, numbers
SLACK = 4096  # bytes beyond its memory that a program allocates
NO_NUMBER = 0xFFFFFFFF  # in any format: what is in memory before a program runs
# Of the standard deviation of the result plus half of the number itself.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
SIGNAL_TO_NOISE = 30.0 - 3 * kernels.adds_pairs()  # weights have less of their range then


class Sketch:
    """A graph in the making: inputs, weights and nodes; all of their numbers are random."""

    def __init__(self, seed: int = 5) -> None:
        self.random = np.random.default_rng(seed)
        self.graph = Graph({}, [], [], {}, opsets={"": 17, SLIPSTREAM: 1})
        self.shapes: dict[str, tuple[int, ...] | None] = {}  # of values, once asked for

    def input(self, *shape: int) -> str:
        name = f"in{len(self.graph.inputs)}"
        self.graph.inputs[name] = Value(np.dtype(np.float32), shape)
        self.shapes[name] = shape
        return name

    def constant(self, value: ArrayLike) -> str:
        array = np.asarray(value)
        plain = array.astype(np.float32) if array.dtype == np.float64 else array
        return self.graph.constant("constant", plain)

    def weights(self, *shape: int) -> str:
        """Return numbers with which a product of two matrices is about as large as its input."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return self.constant(self.random.standard_normal(shape) / np.sqrt(max(fan_in, 1)))

    def activated(self, x: str, op: str, attributes: Mapping[str, Attribute]) -> str:
        """Add an activation, or Clip to [-0.5, 1.5]; return its output."""
        if op == "Clip":
            return self("Clip", x, self.constant(-0.5), self.constant(1.5))
        return self(op, x, **attributes)

    def vector(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape))

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> str:
        """Add a node; its output, or its first one, by name: others end in 1, 2 ..."""
        stem = f"v{len(self.graph.nodes)}"
        names = [stem, *(f"{stem}_{index}" for index in range(1, outputs))]
        domain = SLIPSTREAM if op in EXPANSIONS else ""
        node = Node(op, list(inputs), names, dict(attributes), domain)
        self.graph.nodes.append(node)
        return stem

    def conv(
        self,
        x: str,
        into: int,
        kernel: int | tuple[int, int] = 3,
        group: int = 1,
        **more: Attribute,
    ) -> str:
        """Conv with a bias; padded as to keep the size, unless `more` says otherwise."""
        size = (kernel, kernel) if isinstance(kernel, int) else kernel
        channels = (self.shape(x) or (0, 0))[1]
        if "pads" not in more and "auto_pad" not in more:
            dilations = more.get("dilations", [1, 1])
            pads = [d * (k - 1) // 2 for d, k in zip(dilations, size, strict=True)]
            more = {**more, "pads": pads * 2}
        weights = self.weights(into, channels // group, *size)
        return self("Conv", x, weights, self.vector(into), group=group, **more)

    def linear(self, x: str, into: int, *, bias: bool = True) -> str:
        """Linear, with a bias or without."""
        inputs = [x, self.weights((self.shape(x) or (0,))[-1], into)]
        return self("Linear", *inputs, *([self.vector(into)] if bias else []))

    def squeeze_excite(self, x: str, hidden: int) -> str:
        """SqueezeExcite of pictures."""
        channels = (self.shape(x) or (0, 0))[1]
        weights = [self.weights(channels, hidden), self.vector(hidden)]
        weights += [self.weights(hidden, channels), self.vector(channels)]
        return self("SqueezeExcite", x, *weights, activation="Relu", gate="Sigmoid")

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value, which later nodes do not change."""
        if name not in self.shapes:
            self.shapes[name] = self.done(name).shape(name)
        return self.shapes[name]

    def done(self, *outputs: str) -> Graph:
        """Return the graph that gives `outputs`, with known shapes."""
        self.graph.outputs = list(outputs)
        return infer_shapes(self.graph)


@pytest.fixture(params=["float32", "bfloat16", "bytes"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return how values are stored if a product reads them (see test_precision)."""
    return str(request.param)


@pytest.fixture
def sketch() -> Sketch:
    """Return an empty sketch of a graph."""
    return Sketch()


@pytest.fixture(scope="session")
def sketches() -> Callable[[int], Sketch]:
    """Return a function that makes an empty sketch, whose numbers come from a seed."""
    return Sketch


def feeds_of(graph: Graph, seed: int = 7) -> Values:
    """Random numbers for the inputs of a graph."""
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal(value.fixed or ()).astype(np.float32)
        for name, value in graph.inputs.items()
    }


def reference(graph: Graph, feeds: Values, names: Sequence[str] | None = None) -> Values:
    """Return the outputs, or the values in `names`, as ONNX Runtime computes them."""
    wanted = list(graph.outputs if names is None else names)
    shown = expand(graph)
    shown.outputs = [name for name in wanted if name not in feeds] or list(graph.outputs)
    given = tuple(
        (name, array.dtype.str, array.shape, array.tobytes()) for name, array in feeds.items()
    )
    outputs = _plainly_run(to_model(shown).SerializeToString(), given)
    found = dict(zip(shown.outputs, outputs, strict=True))
    return {name: array for name, array in {**feeds, **found}.items() if name in wanted}


@lru_cache(maxsize=256)  # the precisions of a case share its reference
def _plainly_run(model: bytes, feeds: tuple[Fed, ...]) -> list[Floats]:
    """Return the outputs of a model for inputs that nobody may change."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    used = {item.name for item in session.get_inputs()}
    given = {
        name: np.frombuffer(numbers, dtype).reshape(shape)
        for name, dtype, shape, numbers in feeds
        if name in used
    }
    outputs = session.run(None, given)
    for array in outputs:
        array.flags.writeable = False
    return outputs


def formats(graph: Graph, kind: str, feeds: Values) -> Mapping[str, Format]:
    """Return the formats of a graph at a precision: float32, bfloat16, bytes or dynamic."""
    names = storable(graph)
    if kind == "float32":
        return {}
    halves = dict.fromkeys(attended(graph), BFloat16())
    if kind == "dynamic":
        return halves
    if kind == "bfloat16":
        return {**halves, **dict.fromkeys(names, BFloat16())}
    values = reference(graph, feeds, names)
    return {**halves, **{n: Bytes.of_range(v.min(), v.max()) for n, v in values.items()}}


def spoil(num_bytes: int) -> None:
    """Fill this thread's block of memory with what is no number."""
    size = num_bytes // 4 + SLACK // 4
    number = kernels.Number.FLOAT32
    inside, outside = (
        kernels.Tensor(number, buffer, 0, (1, 1, 1, size), (0, 0, 0)) for buffer in (0, 1)
    )
    program = kernels.Program(4 * size)
    program.copy(outside, inside, [size], [4], [4], 1.0, 0.0)
    program.run([np.full(size, NO_NUMBER, np.uint32)], kernels.Workers(1))


def execute(compiled: Compiled, graph: Graph, feeds: Values, workers: kernels.Workers) -> Values:
    """Return the result of one run of a program, in memory with old contents."""
    spoil(compiled.bytes)
    results = {
        name: np.full(graph.shape(name) or (), np.nan, np.float32) for name in compiled.outputs
    }
    given = [np.ascontiguousarray(feeds[name]) for name in compiled.inputs]
    compiled.program.run([*given, *results.values(), *compiled.constants], workers)
    return results


def apart(answer: Floats, expected: Floats, kind: str, room: float) -> str:
    """Return how the answer differs from the expected one, or "" if it is close enough."""
    if answer.shape != expected.shape or not np.isfinite(answer).all():
        return f"{answer.shape} for {expected.shape}, {np.sum(~np.isfinite(answer))} not finite"
    away = np.abs(answer.astype(np.float64) - expected)
    if kind in TOLERANCE:
        away /= max(float(expected.std()), 1e-2) + np.abs(expected) / 2
        where = tuple(int(index) for index in np.unravel_index(away.argmax(), away.shape))
        worst = float(away[where])
        return f"{worst:.2g} away at {where}" if worst > TOLERANCE[kind] * room else ""
    ratio = 10 * np.log10(max(float(np.mean(expected**2)), 1e-12) / max(np.mean(away**2), 1e-15))
    return (
        f"signal to noise {ratio:.1f} dB" if ratio < SIGNAL_TO_NOISE - 10 * np.log10(room) else ""
    )


Check = Callable[..., None]


@pytest.fixture(scope="session")
def teams() -> Callable[[int], kernels.Workers]:
    """Return a function that makes workers by their number, once for each number."""
    made: dict[int, kernels.Workers] = {}
    return lambda threads: made.setdefault(threads, kernels.Workers(threads))


@pytest.fixture
def check(teams: Callable[[int], kernels.Workers]) -> Check:
    """Return a function that fails unless our kernels compute what ONNX Runtime computes."""

    def compare(
        graph: Graph,
        kind: str,
        *,
        threads: Sequence[int] = (1, 3),
        feeds: Values | None = None,
        room: float = 1.0,
        or_refused: bool = False,
    ) -> None:
        """Fail unless the results are equal.

        Args:
            room: Factor by which the result may be farther away than that of one operation.
            or_refused: True if our kernels may refuse this form of an operation.
        """
        feeds = feeds_of(graph) if feeds is None else feeds
        try:
            chosen, is_dynamic = formats(graph, kind, feeds), kind == "dynamic"
            compiled = lower(graph, chosen, OPERATIONS, is_dynamic=is_dynamic)
        except UnsupportedError:
            if or_refused:
                return
            raise
        expected = reference(graph, feeds)
        problems: list[str] = []
        for count in threads:
            answers = execute(compiled, graph, feeds, teams(count))
            for name, answer in answers.items():
                away = apart(answer, expected[name], kind, room)
                problems += [f"{count} threads, {name}: {away}"] if away else []
        assert not problems, "\n".join(problems)

    return compare


@pytest.fixture
def computed(teams: Callable[[int], kernels.Workers]) -> Callable[..., tuple[Values, Values]]:
    """Return a function that computes results with our kernels and with ONNX Runtime."""

    def both(graph: Graph, kind: str, feeds: Values) -> tuple[Values, Values]:
        chosen, is_dynamic = formats(graph, kind, feeds_of(graph)), kind == "dynamic"
        compiled = lower(graph, chosen, OPERATIONS, is_dynamic=is_dynamic)
        return execute(compiled, graph, feeds, teams(1)), reference(graph, feeds)

    return both


@pytest.fixture(scope="session")
def runs() -> Callable[[Graph, str], Callable[[int, kernels.Workers], Values]]:
    """Return a function that compiles a graph; the result computes it for the inputs of a seed."""

    def compiled(graph: Graph, kind: str) -> Callable[[int, kernels.Workers], Values]:
        program = lower(graph, formats(graph, kind, feeds_of(graph)), OPERATIONS)
        return lambda seed, workers: execute(program, graph, feeds_of(graph, seed), workers)

    return compiled


@pytest.fixture
def computes() -> Callable[..., None]:
    """Return a function that fails unless a runner computes what ONNX Runtime computes."""

    def compare(graph: Graph, given: Values | None = None, kind: str = "float32") -> None:
        feeds = {**feeds_of(graph), **(given or {})}
        runner = Runner(graph, formats(graph, kind, feeds), threads=2)
        answers, expected = runner.run(feeds), reference(graph, feeds)
        assert list(answers) == list(graph.outputs)
        away = [apart(answers[name], expected[name], kind, 1) for name in answers]
        assert not any(away), away

    return compare
