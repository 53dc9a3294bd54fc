"""The commands of docs/benchmarks.md, made short, where no test elsewhere runs them."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from shown_commands import ROOT, shown_commands, wrong_claims

from slipstream.bench.comm import bars as comm_bars

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.multiprocess]

COMM = "--num-hosts 2 --sizes 4k --rounds 1 --rate 200mbit"

ELSEWHERE = {
    "slipstream bench comm --local 2": (
        "tests/unit/bench/test_comm.py::test_the_command_prints_a_table_and_writes_all_samples"
    ),
    "slipstream bench comm --preset bars -o bars.json": (
        "tests/lab/test_bench_page.py::test_every_promise_is_measured"
    ),
    "slipstream bench train": (
        "tests/lab/test_bench_train.py::test_the_demo_s_model_trains_alike_over_all"
    ),
    "slipstream bench comm --device cuda --num-hosts 2 --rate 10gbit": (
        "tests/torch/test_bench_devices.py::test_collectives"
    ),
    "slipstream bench train --device cuda --num-hosts 2 --rate 10gbit": (
        "tests/torch/test_bench_devices.py::test_training_has_the_losses_of_gloo"
    ),
    "slipstream bench replay resnet50 --device cuda --num-hosts 2 --rate 10gbit": (
        "tests/torch/test_bench_devices.py::test_replays_send_what_the_device_has"
    ),
    "slipstream bench replay resnet50 vgg16 --limits": (
        "tests/unit/bench/test_replay.py::test_the_command_prints_limits_without_running_anything"
    ),
    "slipstream bench forecast resnet50 --num-hosts 4 --rates 1gbit": (
        "tests/lab/test_forecast.py::test_a_small_model_is_forecast_and_measured"
    ),
    "slipstream bench forecast --published": (
        "tests/unit/bench/test_forecast_published.py"
        "::test_the_command_prints_the_table_and_its_assumptions"
    ),
    "slipstream bench infer mobilenetv3_large --cache build/infer": (
        "tests/e2e/test_bench_infer.py"
        "::test_contenders_are_measured_and_files_in_the_cache_are_not_made_again"
    ),
}
# What makes each command short; later options win.
SHORTER = {
    "slipstream bench comm": COMM,
    "slipstream bench comm --collectives all_gather,reduce_scatter,broadcast,all_to_all": COMM,
    "slipstream bench comm --codecs none,fp16,int8,int8+feedback --sizes 100m": COMM,
    "slipstream bench comm --ranks-per-host 2 --racks 2 --uplink 250mbit --peers gloo,ring": COMM,
    "slipstream bench comm --cross-traffic 500mbit --sizes 25m --rounds 100": (
        f"{COMM} --cross-traffic 50mbit"
    ),
    "slipstream bench comm --relay --delay 5ms": COMM,
    "slipstream bench train --models large --flow-rate 250mbit --codecs none,fp16": (
        "--num-hosts 2 --models resnet --steps 1 --rounds 1"
    ),
}


def test_every_command_of_the_page_is_run() -> None:
    assert set(shown_commands(ROOT / "docs" / "benchmarks.md")) == {*SHORTER, *ELSEWHERE}
    assert wrong_claims(ELSEWHERE) == []


@pytest.mark.slow("shown command in a lab")
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


@pytest.mark.slow("shown command in a lab", represents=False)
def test_every_promise_is_measured() -> None:
    """The test runs `--preset bars -o` with 2 MB instead of 100; no promise has to hold here."""
    cases = comm_bars.cases(large=2_000_000, rounds=1)
    outcomes = list(comm_bars.run(cases, lambda _: None))
    assert [outcome.error for outcome in outcomes] == [""] * len(cases)
    for case in comm_bars.bars_as_json(outcomes):
        assert all(bar["measured"] > 0 for bar in case["bars"])
