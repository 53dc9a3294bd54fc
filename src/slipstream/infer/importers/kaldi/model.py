"""Reader of Kaldi's nnet3 models.

A model consists of components, and of lines that describe nodes.

The format of each component follows its Write method in
https://github.com/kaldi-asr/kaldi/tree/master/src/nnet3. A binary file does not store the types of
values, so the table `TOKENS` gives the types of the values that follow each token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.damage import DamagedFileError, parse_file
from slipstream.infer.importers.kaldi.stream import KaldiStream

# Values that follow each token: i integer, f number, b truth value, n vector of integers, v vector,
# m matrix; "" for none.
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
# Exceptions: components with other values behind a token.
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
# Limits for damaged files, chosen by hand.
DEEPEST = 10  # nested components
MOST_COMPONENTS = 100_000


@dataclass(frozen=True)
class Component:
    """A component: the computation of one or more nodes.

    Args:
        name: Name of the component in the file.
        kind: Name of the component's class in Kaldi, which ends with "Component".
        values: Values in the file; the key of a value is the token before it, without < and >.
        parts: Components that a CompositeComponent applies, in the order of their use (default
            none).
        is_known: Whether the values were read; False for unsupported kinds (default True).
    """

    name: str
    kind: str
    values: Mapping[str, Any]
    parts: tuple[Component, ...] = ()
    is_known: bool = True

    @property
    def title(self) -> str:
        """Name and kind of the component, for messages."""
        return f"{self.name} ({self.kind})"

    def array(self, token: str) -> Array:
        """Return the matrix or vector after a token; raise UsageError if the token is missing."""
        return self._value(token)

    def integer(self, token: str) -> int:
        """Return the integer after a token; raise UsageError if the token is missing."""
        return self._value(token)

    def number(self, token: str, default: float) -> float:
        """Return the number after a token, or `default` if the token is missing."""
        return self.values.get(token, default)

    def _value(self, token: str) -> Any:
        if token not in self.values:
            raise UsageError(f"{self.title}: its <{token}> is missing")
        return self.values[token]


@dataclass(frozen=True)
class KaldiModel:
    """A network: lines that describe nodes, components by name, and the number of class priors."""

    lines: list[str]
    components: dict[str, Component]
    num_priors: int


def read_model(path: Path, supported: frozenset[str]) -> KaldiModel:
    """Read an nnet3 model from a file such as final.mdl or final.raw, text or binary.

    A transition model before the network is skipped.

    Args:
        path: File of the model.
        supported: Kinds of components whose values are read; other components are read without
            values.

    Raises:
        UsageError: If the file cannot be read, is damaged or has another format.
    """
    return parse_file(path, "nnet3 model of Kaldi", lambda data: _model(data, supported))


def _model(data: bytes, supported: frozenset[str]) -> KaldiModel:
    is_binary = data[:2] == b"\0B"
    stream = KaldiStream(data, is_binary=is_binary, at=2 if is_binary else 0)
    first = stream.token()
    if first == "<TransitionModel>":
        stream.skip_past("</TransitionModel>")
        first = stream.token()
    if first != "<Nnet3>":
        raise DamagedFileError(f"the file begins with {first[:40]!r}, not <Nnet3>")
    stream.line()
    lines: list[str] = []
    while line := stream.line():
        lines.append(line)
    _expect(stream, "<NumComponents>")
    count = stream.integer()
    if not 0 <= count <= MOST_COMPONENTS:
        raise DamagedFileError(f"the network has {count} components")
    components: dict[str, Component] = {}
    for _ in range(count):
        _expect(stream, "<ComponentName>")
        name = stream.token()
        components[name] = _component(stream, name, stream.token(), supported, 0)
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
    stream: KaldiStream, name: str, opening: str, supported: frozenset[str], depth: int
) -> Component:
    """Read a component up to its closing token.

    Args:
        opening: Opening token, "<KindComponent>", which was already read.
        depth: Number of composite components that contain this component.
    """
    kind = opening[1:-1]
    if opening != f"<{kind}>" or depth > DEEPEST:
        raise DamagedFileError(f"expected a component, found {opening[:40]!r}")
    if kind == COMPOSITE:
        return _composite(stream, name, supported, depth)
    if kind not in supported:
        stream.skip_past(f"</{kind}>")
        return Component(name, kind, {}, is_known=False)
    values: dict[str, Any] = {}
    while (token := stream.token()) != f"</{kind}>":
        if token == opening:  # some older versions wrote it twice
            continue
        layout = OF_COMPONENT.get((kind, token[1:-1]), TOKENS.get(token[1:-1]))
        if token != f"<{token[1:-1]}>" or layout is None:
            raise DamagedFileError(f"component {name}: a {kind} has no token {token[:40]!r}")
        items = [_value(stream, letter) for letter in layout]
        values[token[1:-1]] = items[0] if len(items) == 1 else items
    return Component(name, kind, values)


def _composite(stream: KaldiStream, name: str, supported: frozenset[str], depth: int) -> Component:
    token = stream.token()
    while token != "<NumComponents>":
        if token == "<MaxRowsProcess>":
            stream.integer()
        elif token in ("<LearningRate>", "<LearningRateFactor>", "<MaxChange>"):
            stream.number()
        elif token == "<IsGradient>":
            stream.flag()
        elif token != f"<{COMPOSITE}>":
            raise DamagedFileError(f"component {name}: a {COMPOSITE} has no token {token[:40]!r}")
        token = stream.token()
    count = stream.integer()
    if not 0 < count <= MOST_COMPONENTS:
        raise DamagedFileError(f"component {name} has {count} parts")
    parts = [
        _component(stream, f"{name}.{number}", stream.token(), supported, depth + 1)
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
    next_token = stream.token()
    if next_token != token:
        raise DamagedFileError(f"expected {token}, found {next_token[:40]!r}")
