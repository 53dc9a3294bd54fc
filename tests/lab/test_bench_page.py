"""The commands of docs/benchmarks.md, made short."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.bench import comm_bars

pytestmark = [pytest.mark.netns, pytest.mark.multiprocess]

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
COMM = "--hosts 2 --sizes 4k --rounds 1 --rate 200mbit"
TRAIN = "--hosts 2 --model resnet --steps 1 --rounds 1"
BARS = "slipstream bench comm --preset bars --json bars.json"

# What makes each command short; later options win.
SHORTER = {
    "slipstream bench comm": COMM,
    "slipstream bench comm --local 2": "--sizes 4k --rounds 1",
    "slipstream bench comm --collective all_gather,reduce_scatter,broadcast,all_to_all": COMM,
    "slipstream bench comm --codec none,fp16,int8,int8+feedback --sizes 100m": COMM,
    "slipstream bench comm --ranks-per-host 2 --racks 2 --uplink 250mbit --peers gloo,ring": COMM,
    "slipstream bench comm --cross-traffic 500mbit --sizes 25m --rounds 100": (
        f"{COMM} --cross-traffic 50mbit"
    ),
    "slipstream bench train": TRAIN,
    "slipstream bench train --model large --flow-rate 250mbit --codec none,fp16": TRAIN,
    "slipstream bench replay resnet50 vgg16 --limits": "",
    "slipstream bench forecast resnet50 --hosts 4 --rates 1gbit": "--hosts 2 --steps 1",
    "slipstream bench forecast --published": "",
    "slipstream bench infer mobilenetv3_large --cache build/infer": (
        "--peer ort --rounds 1 --seconds 0.05 --search 5"
    ),
}


def test_every_command_of_the_page_is_run() -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    shown = {line.split(" #")[0].strip() for line in block.splitlines()}
    assert shown == {*SHORTER, BARS}


@pytest.mark.slow("command of the benchmark page")
@pytest.mark.parametrize("command", SHORTER)
def test_a_command_of_the_page_runs(command: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(f"{command} {SHORTER[command]}")
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert all(len(line.rstrip()) <= 100 for line in done.stdout.splitlines())


@pytest.mark.slow("command of the benchmark page")
def test_every_promise_is_measured() -> None:
    """As `--preset bars` does, with 2 MB in place of 100; whether a promise holds is no matter."""
    cases = comm_bars.cases(large=2_000_000, rounds=1)
    outcomes = list(comm_bars.run(cases, lambda _: None))
    assert [outcome.error for outcome in outcomes] == [""] * len(cases)
    for case in comm_bars.bars_as_json(outcomes):
        assert all(bar["measured"] > 0 for bar in case["bars"])
