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


EPOCHS = """
import sys
from slipstream.torch.epoch_group import enter_epoch, leave_epoch
from slipstream.train import elastic

elastic.init()
hook = sys.excepthook
for _ in range(2):
    leave_epoch()
    enter_epoch()
    assert sys.excepthook is hook, sys.excepthook
"""


def run(program: str) -> str:
    """Run a program of one process, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_slow_imports_come_before_a_process_joins() -> None:
    assert run(PROGRAM) == "joins\n"


def test_errors_are_printed_as_usual_after_any_number_of_epochs() -> None:
    """Each line of an error once began with "[rank0]: [rank1]: [rank1]: "."""
    run(EPOCHS)
