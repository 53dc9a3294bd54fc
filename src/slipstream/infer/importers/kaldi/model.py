"""Kaldi's nnet3 models: the configuration of their nodes, and their components.

Forms of components are those that their Write methods have, in
https://github.com/kaldi-asr/kaldi/tree/master/src/nnet3. A binary file does not say of which type
a value is, so the tokens that can stand before one are listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.kaldi.stream import DamagedError, KaldiStream

# What follows a token: i whole number, f number, b truth value, n whole numbers, v vector,
# m matrix; nothing for "".
TOKENS = {
    "AddLogStddev": "b",
    "ActiveScalingCount": "f",
    "Alpha": "f",
    "AlphaInOut": "ff",
    "BackpropScale": "f",
    "Bias": "v",
    "BiasParams": "v",
    "BlockDim": "i",
    "ClippingThreshold": "f",
    "ColumnMap": "n",
    "Continuous": "",
    "Count": "f",
    "DerivAvg": "v",
    "Dim": "i",
    "DropoutPerFrame": "b",
    "DropoutProportion": "f",
    "Epsilon": "f",
    "InputDim": "i",
    "IsGradient": "b",
    "IsUpdatable": "b",
    "JointL2RegularizeProportion": "f",
    "LearningRate": "f",
    "LearningRateFactor": "f",
    "L2Regularize": "f",
    "LinearParams": "m",
    "MaxChange": "f",
    "MaxChangePerMinibatch": "f",
    "MaxChangePerSample": "f",
    "MaxChangeScaleStats": "f",
    "NormBasedClipping": "b",
    "NumDimsProcessed": "f",
    "NumDimsSelfRepaired": "f",
    "NumElementsClipped": "f",
    "NumElementsProcessed": "f",
    "NumElementsZeroed": "f",
    "NumMinibatchesHistory": "f",
    "NumSamplesHistory": "f",
    "NumSelfRepaired": "f",
    "NumBackpropped": "f",
    "NumZeroingBoundaries": "f",
    "Offsets": "v",
    "OrthonormalConstraint": "f",
    "OutputDim": "i",
    "Rank": "i",
    "RankIn": "i",
    "RankInOut": "ii",
    "RankOut": "i",
    "RecurrenceInterval": "i",
    "Scale": "f",
    "Scales": "v",
    "SelfRepairClippedProportionThreshold": "f",
    "SelfRepairConfig": "v",
    "SelfRepairLowerThreshold": "f",
    "SelfRepairProb": "v",
    "SelfRepairScale": "f",
    "SelfRepairTarget": "f",
    "SelfRepairUpperThreshold": "f",
    "StatsMean": "v",
    "StatsVar": "v",
    "TargetRms": "f",
    "TestMode": "b",
    "TimeMaskMaxFrames": "i",
    "TimeOffsets": "n",
    "TimePeriod": "i",
    "UpdateCount": "f",
    "UpdatePeriod": "i",
    "UseDropout": "b",
    "UseNaturalGradient": "b",
    "ValueAvg": "v",
    "ZeroedProportion": "f",
    "ZeroingInterval": "i",
    "ZeroingThreshold": "f",
}
# Where a component has something else behind a token.
OF_COMPONENT: dict[tuple[str, str], str] = {
    ("GeneralDropoutComponent", "TestMode"): "",
    ("SpecAugmentTimeMaskComponent", "TestMode"): "",
    ("LinearComponent", "Params"): "m",
    ("LstmNonlinearityComponent", "Params"): "m",
    ("LstmNonlinearityComponent", "ValueAvg"): "m",
    ("LstmNonlinearityComponent", "DerivAvg"): "m",
    ("PerElementScaleComponent", "Params"): "v",
    ("NaturalGradientPerElementScaleComponent", "Params"): "v",
}
COMPOSITE = "CompositeComponent"
DEEPEST = 10
MOST_COMPONENTS = 100_000


@dataclass(frozen=True)
class Component:
    """What a node computes.

    Args:
        kind: Kaldi's name, with "Component" at its end.
        values: by token.
        parts: of a CompositeComponent, in their order.
        is_known: its values were read; False for kinds that nothing here reads.
    """

    name: str
    kind: str
    values: Mapping[str, Any]
    parts: tuple[Component, ...] = ()
    is_known: bool = True

    @property
    def title(self) -> str:
        """For people: the name and the kind."""
        return f"{self.name} ({self.kind})"

    def array(self, token: str) -> Array:
        """A matrix or vector; UsageError where it is missing."""
        return self._value(token)

    def integer(self, token: str) -> int:
        """A whole number; UsageError where it is missing."""
        return self._value(token)

    def number(self, token: str, default: float) -> float:
        """A number."""
        return self.values.get(token, default)

    def _value(self, token: str) -> Any:
        if token not in self.values:
            raise UsageError(f"{self.title}: its <{token}> is missing")
        return self.values[token]


@dataclass(frozen=True)
class KaldiModel:
    """A network: lines of configuration, components by name, how many priors there are."""

    lines: list[str]
    components: dict[str, Component]
    num_priors: int


def read_model(path: Path, known: frozenset[str]) -> KaldiModel:
    """The nnet3 of a final.mdl or final.raw, text or binary; the transition model is skipped.

    Args:
        known: kinds of components whose values are wanted.

    Raises UsageError where the file cannot be read, is damaged or of another kind.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    is_binary = data[:2] == b"\0B"
    stream = KaldiStream(data, is_binary=is_binary, at=2 if is_binary else 0)
    try:
        return _model(stream, known)
    except DamagedError as error:
        raise UsageError(f"{path}: this is no nnet3 of Kaldi, or a damaged one: {error}") from error


def _model(stream: KaldiStream, known: frozenset[str]) -> KaldiModel:
    first = stream.token()
    if first == "<TransitionModel>":
        stream.skip_past("</TransitionModel>")
        first = stream.token()
    if first != "<Nnet3>":
        raise DamagedError(f"it begins with {first[:40]!r}, not <Nnet3>")
    stream.line()
    lines: list[str] = []
    while line := stream.line():
        lines.append(line)
    _expect(stream, "<NumComponents>")
    count = stream.integer()
    if not 0 <= count <= MOST_COMPONENTS:
        raise DamagedError(f"{count} components")
    components: dict[str, Component] = {}
    for _ in range(count):
        _expect(stream, "<ComponentName>")
        name = stream.token()
        components[name] = _component(stream, name, stream.token(), known, 0)
    _expect(stream, "</Nnet3>")
    return KaldiModel(lines, components, _num_priors(stream))


def _num_priors(stream: KaldiStream) -> int:
    if not stream.data[stream.at :].strip():
        return 0
    _expect(stream, "<LeftContext>")
    stream.integer()
    _expect(stream, "<RightContext>")
    stream.integer()
    _expect(stream, "<Priors>")
    return stream.vector().size


def _component(
    stream: KaldiStream, name: str, opening: str, known: frozenset[str], depth: int
) -> Component:
    """A component up to the token that ends it, which begins with `opening`, "<KindComponent>"."""
    kind = opening[1:-1]
    if opening != f"<{kind}>" or depth > DEEPEST:
        raise DamagedError(f"{opening[:40]!r} stands where a component belongs")
    if kind == COMPOSITE:
        return _composite(stream, name, known, depth)
    if kind not in known:
        stream.skip_past(f"</{kind}>")
        return Component(name, kind, {}, is_known=False)
    values: dict[str, Any] = {}
    while (token := stream.token()) != f"</{kind}>":
        if token == opening:  # some older versions wrote it twice
            continue
        layout = OF_COMPONENT.get((kind, token[1:-1]), TOKENS.get(token[1:-1]))
        if token != f"<{token[1:-1]}>" or layout is None:
            raise DamagedError(f"component {name} has {token[:40]!r}, which a {kind} has not")
        found = [_value(stream, letter) for letter in layout]
        values[token[1:-1]] = found[0] if len(found) == 1 else found
    return Component(name, kind, values)


def _composite(stream: KaldiStream, name: str, known: frozenset[str], depth: int) -> Component:
    token = stream.token()
    while token != "<NumComponents>":
        if token == "<MaxRowsProcess>":
            stream.integer()
        elif token in ("<LearningRate>", "<LearningRateFactor>", "<MaxChange>"):
            stream.number()
        elif token == "<IsGradient>":
            stream.flag()
        elif token != f"<{COMPOSITE}>":
            raise DamagedError(f"component {name} has {token[:40]!r}")
        token = stream.token()
    count = stream.integer()
    if not 0 < count <= MOST_COMPONENTS:
        raise DamagedError(f"component {name} has {count} parts")
    parts = [
        _component(stream, f"{name}.{number}", stream.token(), known, depth + 1)
        for number in range(count)
    ]
    _expect(stream, f"</{COMPOSITE}>")
    return Component(name, COMPOSITE, {}, tuple(parts))


def _value(stream: KaldiStream, letter: str) -> Any:
    readers = {
        "i": stream.integer,
        "f": stream.number,
        "b": stream.flag,
        "n": stream.integers,
        "v": stream.vector,
        "m": stream.matrix,
    }
    return readers[letter]()


def _expect(stream: KaldiStream, token: str) -> None:
    found = stream.token()
    if found != token:
        raise DamagedError(f"{found[:40]!r} stands where {token} belongs")
