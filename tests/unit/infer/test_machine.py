"""The machine that measurements are of."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from slipstream.infer.machine import Machine, this_machine, usable_cores


def test_a_machine_is_named_as_the_system_names_it():
    found = this_machine()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    assert found.processor in (names or {platform.machine()})
    assert found.system == " ".join([platform.system(), platform.release(), platform.machine()])
    assert found.cores == usable_cores() == len(os.sched_getaffinity(0))
    assert found.versions["python"] == platform.python_version()
    for name in ("slipstream", "numpy", "onnx", "onnxruntime"):
        assert found.versions[name] == version(name)
    assert set(found.versions) <= {
        "python", "slipstream", "numpy", "onnx", "onnxruntime", "openvino", "torch",
    }  # fmt: skip
    assert Machine.model_validate_json(found.model_dump_json()) == found


def test_cores_are_those_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
