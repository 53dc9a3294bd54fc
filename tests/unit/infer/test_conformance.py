"""ONNX's own tests of its operators: what plain ONNX Runtime passes is right on each engine of
ours, or refused by name.

They are 2,024 in ONNX 1.23. Those whose inputs or outputs are no arrays, or of types that NumPy
lacks, are not met, nor are those of a newer ONNX than the ONNX Runtime here knows.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from slipstream import infer
from slipstream.errors import SlipstreamError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.engines.openvino_wrong import WRONG
from slipstream.infer.importers import load_model
from slipstream.infer.rewrites import optimise

PARTS = 32
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
        """Whether the outputs are those that ONNX has, in dtype and shape too."""
        pairs = zip(self.model.graph.output, self.outputs, strict=False)
        return all(self._is_same(np.asarray(found[each.name]), right) for each, right in pairs)

    def _is_same(self, found: Any, right: Any) -> bool:
        if (found.dtype, found.shape) != (right.dtype, right.shape):
            return False
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
    """All of them; making them takes some seconds."""
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [test for kind in KINDS for test in load_model_tests(kind=kind)]


def cases_of(part: int) -> Iterator[Case]:
    """Those of a part that plain ONNX Runtime passes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for test in backend_tests()[part::PARTS]:
        try:
            case = Case(test)
            session = onnxruntime.InferenceSession(case.data, options)
            names = [each.name for each in session.get_outputs()]
            found = dict(zip(names, session.run(None, case.feeds), strict=True))
        except Exception:  # noqa: BLE001  of classes of its own, without a common one
            continue
        if case.is_right(found):
            yield case


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_what_onnx_runtime_passes_is_right_or_refused_on_each_engine(part: int) -> None:
    wrong: list[str] = []
    missing: set[str] = set()
    for case in cases_of(part):
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
            except (SlipstreamError, RuntimeError):
                if engine == "onnxruntime":
                    missing.add(case.name)
                continue
            if not case.is_right(found) and case.name not in TOLERATED.get(engine, ()):
                wrong.append(f"{case.name} by {engine}{'' if is_rewritten else ' as imported'}")
    assert wrong == []
    assert missing <= MISSING


WHOLE_WAY = 199  # of so many one goes the whole way


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(WHOLE_WAY // 50))
def test_the_whole_way_from_a_model_to_answers(part: int, tmp_path: Path) -> None:
    """Every engine is a candidate, and what is chosen is right on other inputs than it was judged
    on: there are no samples."""
    count = 0
    for case in cases_of(part * 7 % PARTS):
        if count == 4:
            break
        graph = load_model(case.data, shapes=case.shapes).graph
        if any(array.dtype.kind not in "fiub" for array in (*case.feeds.values(), *case.outputs)):
            continue
        count += 1
        path = tmp_path / f"{case.name}.slip"
        data = [{name: case.feeds[name] for name in graph.inputs}] * 4
        options = {"seconds": 0.5, "threads": 1, "shapes": case.shapes}
        infer.compile(case.data, path, data=data, **options)
        with infer.load(path) as model:
            found = model({name: case.feeds[name] for name in graph.inputs})
        names = [each.name for each in case.model.graph.output]
        found = found if isinstance(found, dict) else {names[0]: found}
        assert case.is_right(found), case.name


@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: each.test)
def test_what_openvino_is_wrong_at_is_still_there_to_be_wrong_at(wrong: Any) -> None:
    (test,) = (each for each in backend_tests() if each.name == wrong.test)
    case = Case(test)
    graph, _ = optimise(load_model(case.data, shapes=case.shapes).graph)
    nodes = [node for node in graph.nodes if node.op in wrong.ops]
    assert any(wrong.applies(graph, node) for node in nodes)
    with pytest.raises(SlipstreamError, match="OpenVINO is wrong here: .*" + wrong.what[:20]):
        ENGINES["openvino"].prepare(graph, Recipe(engine="openvino"), 1)
