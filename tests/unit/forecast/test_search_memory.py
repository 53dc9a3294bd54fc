"""Host memory that the forecast of a large model takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

CODE = """
import re
from functools import partial
from pathlib import Path
from slipstream.forecast.work.resize import resizable
from slipstream.forecast.trace.sources import source

found = source("llama3-70b", shape=None, tokens=8192)
model = resizable(partial(found.trace, precision="bf16", whole=True))
numbers = sum(each.elements for each in model.at(1).parameters)
# Of this program alone: what getrusage says begins with what the parent held as it forked.
print(numbers, re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow("forecast of a large model")
def test_70_billion_parameters_are_traced_without_memory_for_them():
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    numbers, kib = map(int, ran.stdout.split())
    assert numbers == pytest.approx(70.55e9, rel=0.001)
    # This is a hundredth of the size of the parameters in 16 bits.
    assert kib << 10 < 1.4e9
