"""ONNX's own tests of its operators: what plain ONNX Runtime passes is right on each engine of
ours, or refused by name.

They are 2,024 in ONNX 1.23. Those whose inputs or outputs are no arrays are not met, nor are those
of a newer ONNX than the ONNX Runtime here knows. Plain ONNX Runtime 1.31 passes 1,629 of them,
and the others 1,628 (rewritten), 1,463 (OpenVINO) and 124 (our kernels).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from slipstream import infer
from slipstream.errors import SlipstreamError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.engines.openvino_defects import DEFECTS
from slipstream.infer.graph.added_dtypes import is_added
from slipstream.infer.importers import load_model
from slipstream.infer.rewrites import optimise

PARTS = 32
PARTS_AT_ONCE = 2  # of them run at a commit
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
NEWEST_IR = 13  # that ONNX Runtime 1.31 reads
# Only numbers that are equal, or halves, come out differently.
TOLERATED = {
    "openvino": {
        *("test_top_k_same_values", "test_top_k_same_values_largest", "test_top_k_same_values_2d"),
        *("test_dynamicquantizelinear", "test_dynamicquantizelinear_expanded"),
        "test_nonmaxsuppression_iou_threshold_boundary",
    }
}
# Operators of version 8, which ONNX's own converter leaves as they were: it says so.
MISSING = {"test_scan_sum"}


class Case:
    """One of ONNX's tests, its arrays and what plain ONNX Runtime makes of them."""

    def __init__(self, test: Any) -> None:
        self.name, self.rtol, self.atol = test.name, test.rtol, max(test.atol, 1e-6)
        self.model, inputs, outputs = _read(test)
        self.model.ir_version = min(self.model.ir_version, NEWEST_IR)
        self.data = self.model.SerializeToString()
        self.outputs = [_array(each) for each in outputs]
        names = [each.name for each in self.model.graph.input]
        self.feeds = {
            name: np.asarray(_array(each), order="C")
            for name, each in zip(names, inputs, strict=False)
        }

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the inputs that the model leaves open."""
        return {
            each.name: self.feeds[each.name].shape
            for each in self.model.graph.input
            if each.name in self.feeds
            and any(not size.HasField("dim_value") for size in each.type.tensor_type.shape.dim)
        }

    def is_right(self, found: dict[str, Any]) -> bool:
        """Return whether the outputs are those of ONNX, in dtype and shape too."""
        assert self.outputs
        pairs = zip(self.model.graph.output, self.outputs, strict=True)
        return all(self._is_same(np.asarray(found[each.name]), right) for each, right in pairs)

    def _is_same(self, found: Any, right: Any) -> bool:
        if (found.dtype, found.shape) != (right.dtype, right.shape):
            return False
        if is_added(right.dtype):
            found, right = found.astype(np.float32), right.astype(np.float32)
            return np.array_equal(found, right, equal_nan=True)
        if right.dtype.kind not in "fiubc":
            return bool((found == right).all())
        return np.allclose(
            found.astype(np.float64), right.astype(np.float64), self.rtol, self.atol, equal_nan=True
        )


def _read(test: Any) -> tuple[onnx.ModelProto, list[Any], list[Any]]:
    if not test.model_dir:
        return test.model, *map(list, test.data_sets[0])
    folder = Path(test.model_dir)
    first = min(folder.glob("test_data_set_*"))

    def tensors(stem: str) -> list[TensorProto]:
        count = len(list(first.glob(f"{stem}_*.pb")))
        files = (first / f"{stem}_{number}.pb" for number in range(count))
        return [TensorProto.FromString(file.read_bytes()) for file in files]

    return onnx.load(folder / "model.onnx"), tensors("input"), tensors("output")


def _array(given: Any) -> Any:
    if isinstance(given, TensorProto):
        return numpy_helper.to_array(given)
    if isinstance(given, list):
        raise TypeError("a sequence is no array")
    return np.asarray(given)


@functools.cache
def backend_tests() -> list[Any]:
    """Return all tests of ONNX; making them takes some seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [test for kind in KINDS for test in load_model_tests(kind=kind)]


@pytest.fixture(autouse=True)
def newest_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime runs operators of a version that is not released yet, where it has them."""
    monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")


def cases_of(tests: Iterable[Any]) -> Iterator[Case]:
    """Yield the tests with arrays that plain ONNX Runtime passes."""
    for test in tests:
        try:
            case = Case(test)
        except TypeError:  # of sequences
            continue
        try:
            found = plain_session(case.data, 1).run(case.feeds)
        except SlipstreamError:
            continue
        if case.is_right(found):
            yield case


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=pytest.mark.slow(f"ONNX's tests, turn {part % PARTS_AT_ONCE}"))
        for part in range(PARTS)
    ],
)
def test_what_onnx_runtime_passes_is_right_or_refused_on_each_engine(part: int) -> None:
    wrong: list[str] = []
    refused = dict.fromkeys(("onnxruntime", "openvino", "native"), frozenset[str]())
    cases = list(cases_of(backend_tests()[part::PARTS]))
    for case in cases:
        graph = load_model(case.data, shapes=case.shapes).graph
        rewritten, _ = optimise(graph)
        feeds = {name: array for name, array in case.feeds.items() if name in graph.inputs}
        for engine, is_rewritten in (
            *(("onnxruntime", False), ("onnxruntime", True)),
            *(("openvino", True), ("native", True)),
        ):
            recipe = Recipe(engine=engine, rewrites=is_rewritten)
            try:
                made = ENGINES[engine].prepare(rewritten if is_rewritten else graph, recipe, 1)
                found = made.run(feeds)
                made.close()
            except (SlipstreamError, RuntimeError):  # OpenVINO finds out some things as it runs
                refused[engine] |= {case.name}
                continue
            if not case.is_right(found) and case.name not in TOLERATED.get(engine, ()):
                wrong.append(f"{case.name} by {engine}{'' if is_rewritten else ' as imported'}")
    assert wrong == []
    # 63 tests are in a part; plain ONNX Runtime passes 41 to 58, and OpenVINO all but 2 to 11.
    assert len(cases) >= 41
    assert refused["onnxruntime"] <= MISSING
    assert len(refused["openvino"]) <= 11


def test_our_kernels_answer_what_they_are_made_for() -> None:
    """Most of ONNX's tests are of operators that they leave to others."""
    kinds = ("test_Conv2d", "test_averagepool_2d", "test_maxpool_2d", "test_softmax_")
    tests = [test for test in backend_tests() if test.name.startswith(kinds)]
    answered: set[str] = set()
    for case in cases_of(tests):
        graph, _ = optimise(load_model(case.data, shapes=case.shapes).graph)
        try:
            made = ENGINES["native"].prepare(graph, Recipe(engine="native"), 1)
        except SlipstreamError:
            continue
        assert case.is_right(made.run(case.feeds)), case.name
        answered.add(case.name)
        made.close()
    assert len(answered) >= 30, answered


WHOLE_WAYS = 12


@pytest.mark.sweep
@pytest.mark.parametrize("way", range(WHOLE_WAYS))
def test_the_whole_way_from_a_model_to_answers(way: int, tmp_path: Path) -> None:
    """Every engine is a candidate and is judged on random inputs, before those of ONNX are used."""
    for case in cases_of(backend_tests()[way * 7 :: 97]):
        graph = load_model(case.data, shapes=case.shapes).graph
        arrays = (*case.feeds.values(), *case.outputs)
        if graph.inputs and all(array.dtype.kind == "f" for array in arrays):
            break
    else:
        pytest.fail("no such case")
    path = tmp_path / f"{case.name}.slip"
    options = {"snr_db": 60.0, "seconds": 0.5, "threads": 1, "shapes": case.shapes}
    infer.compile(case.data, path, infer.CompileOptions(**options))
    with infer.load(path) as model:
        found = model({name: case.feeds[name] for name in graph.inputs})
    names = [each.name for each in case.model.graph.output]
    found = found if isinstance(found, dict) else {names[0]: found}
    assert case.is_right(found), case.name


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.test)
def test_openvino_is_still_wrong_at_what_it_is_refused_for(
    defect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails with a newer OpenVINO, the entry can be removed."""
    (test,) = (each for each in backend_tests() if each.name == defect.test)
    case = Case(test)
    graph, _ = optimise(load_model(case.data, shapes=case.shapes).graph)
    nodes = [node for node in graph.nodes if node.op in defect.ops]
    assert any(defect.applies(graph, node) for node in nodes)
    with pytest.raises(
        SlipstreamError, match="OpenVINO computes wrong results here: .*" + defect.description[:20]
    ):
        ENGINES["openvino"].prepare(graph, Recipe(engine="openvino"), 1)
    monkeypatch.setattr("slipstream.infer.engines.openvino.defects_of", lambda graph: [])
    made = ENGINES["openvino"].prepare(graph, Recipe(engine="openvino"), 1)
    assert not case.is_right(made.run(case.feeds))
