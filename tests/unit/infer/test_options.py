"""Options of a compilation: what is refused before a model is read."""

from __future__ import annotations

import pytest

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.machine import usable_cores
from slipstream.infer.search.objective import Objective


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "speed"}, "the target is 'speed'; allowed: latency, throughput, memory"),
        ({"budget": -0.1}, "the budget is -0.1; allowed: 0 and more"),
        ({"snr_db": float("nan")}, "the snr is nan; allowed: a number"),
        ({"agreement": 101}, "the agreement is 101 %; allowed: 0 to 100"),
        ({"seconds": 0}, "seconds is 0; allowed: more than 0"),
        ({"threads": 0}, "threads is 0; allowed: 1 and more"),
        ({"most_rounds": 4}, "most_rounds is 4; allowed: 5 and more"),
        ({"engines": ("turbo",)}, "no engine is called turbo; allowed: onnxruntime, openvino"),
        ({"top": 1, "boxes": infer.BoxOptions()}, "top and boxes are both given"),
    ],
)
def test_options_that_are_not_allowed_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        infer.CompileOptions(**options)


def test_a_compilation_uses_all_cores_and_is_an_objective():
    options = infer.CompileOptions(snr_db=30)
    assert isinstance(options, Objective)
    assert (options.threads, options.snr_db, options.data) == (usable_cores(), 30, None)


def test_a_compilation_cannot_be_changed_and_has_no_other_options():
    with pytest.raises(AttributeError):
        infer.CompileOptions().seconds = 1.0
    with pytest.raises(TypeError, match="unexpected keyword argument 'pictures'"):
        infer.CompileOptions(pictures=None)
