"""What a process of an elastic job does before the others wait for it."""

import subprocess
import sys

PROGRAM = """
import gc, sys
import torch
from slipstream.comm import elastic as core
from slipstream.train import elastic

begin = core.session

def joins():
    assert "torch._dynamo" in sys.modules, "the first optimizer would import it"
    assert gc.get_freeze_count() > 100_000, "a collection after a fault would look at all objects"
    print("joins", flush=True)
    return begin()

core.session = joins
elastic.init()
"""


def test_slow_imports_come_before_a_process_joins() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "joins\n"
