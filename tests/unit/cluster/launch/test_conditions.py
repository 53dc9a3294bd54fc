"""What the kernel tells about processes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipstream.cluster.launch.conditions import count_oom_kills, state_of_process


def test_a_stopped_process_is_told_from_a_sleeping_one() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        process.send_signal(signal.SIGSTOP)
        while state_of_process(process.pid) != "stopped":
            time.sleep(0.01)
        process.send_signal(signal.SIGCONT)
        while state_of_process(process.pid) != "sleeping":
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert state_of_process(process.pid) == ""


@pytest.mark.skipif(
    "oom_kill " not in Path("/proc/vmstat").read_text(), reason="the kernel does not count kills"
)
def test_the_kills_of_the_kernel_are_counted() -> None:
    assert count_oom_kills() is not None
