"""Models with trained weights, compiled with real inputs, are as right on others as before."""

from __future__ import annotations

import functools

import pytest

pytest.importorskip("torch")

from slipstream.bench.pretrained.case import Pretrained
from slipstream.bench.pretrained.measure import OPENVINO, ORT, OURS, PretrainedRow, measure
from slipstream.bench.pretrained.zoo import PRETRAINED
from slipstream.errors import UsageError

# Of each search, at most: all samples are judged, in a few rounds of timing. On a busy machine less
# would let a candidate pass that only the later samples show to be wrong.
SECONDS = 20.0
LEAST_RIGHT = 0.7  # of the originals: they do on these inputs what they were trained for
MOST_LOST = 4.4  # percentage points: one answer of thirty, or two of 46, which some models have

KIND = "pretrained model"
LONG = {"ocr-text", "sentences"}  # a minute or two each, where the others take 10 to 20 s
NAMES = [
    pytest.param(name, marks=pytest.mark.slow(KIND, represents=False)) if name in LONG else name
    for name in PRETRAINED
]


def _needs(model: Pretrained) -> None:
    try:
        model.model()
        model.task(True)
    except UsageError as error:
        pytest.skip(str(error))


@functools.cache
def _measured(name: str) -> PretrainedRow:
    """Compile and measure a model; once, for all tests of it."""
    _needs(PRETRAINED[name])
    return measure(PRETRAINED[name], seconds=SECONDS, is_short=True)


@pytest.mark.pretrained
@pytest.mark.slow(KIND)
@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_model_answers_as_its_original_does(name: str) -> None:
    row = _measured(name)
    assert row.original >= LEAST_RIGHT
    assert row.lost <= MOST_LOST
    assert row.report.chosen.snr_db is not None
    assert {OURS, ORT} <= row.milliseconds.keys()
    assert (OPENVINO in row.milliseconds) is (name != "voice"), row.troubles


@pytest.mark.pretrained
@pytest.mark.slow(KIND)
def test_real_data_is_what_bytes_are_calibrated_and_judged_with() -> None:
    """Right or wrong, int8 is tried for a model of convolutions, and judged by its answers."""
    report = _measured("ocr-upright").report
    tried = [item for item in report.candidates if item.precision == "int8"]
    assert {item.engine for item in tried} >= {"native", "onnxruntime", "openvino"}
    assert all(item.top1_loss is not None for item in tried if item.snr_db is not None)
