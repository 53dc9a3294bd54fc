"""The measurements of a GPU on a machine that has none: its messages, its plan, its isolation."""

from __future__ import annotations

import ctypes
import json
import queue
import time
from pathlib import Path

import pytest
from gpu_check import __main__ as command
from gpu_check.bench import microseconds
from gpu_check.build import BuildError, compile_once
from gpu_check.case import CASES, PROGRAMS, TENSORS
from gpu_check.driver import LIBRARY, Driver, NoDriverError
from gpu_check.isolated import collect, text_of
from gpu_check.ranks.network import comm_rows, train_rows
from gpu_check.staging import CORE, StagingError, build_staging, run_program, sources, staging


def has_driver() -> bool:
    """Return whether this machine has a CUDA driver."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def lines_of(*lines: str) -> queue.Queue[str]:
    """Return lines as a case's output brings them."""
    lines_ = queue.Queue[str]()
    for line in lines:
        lines_.put(line)
    return lines_


def test_a_missing_driver_is_named() -> None:
    with pytest.raises(NoDriverError, match=r"^no CUDA driver here: libnone\.so\.1 cannot be op"):
        Driver("libnone.so.1")


@pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")
def test_without_a_driver_the_command_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--output", str(tmp_path / "gpu.json")]) == 2
    assert capsys.readouterr().err.startswith("no CUDA driver here: libcuda.so.1 ")
    assert not list(tmp_path.iterdir())


def test_an_unknown_part_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--parts", "copies,wires"])
    assert ended.value.code == 2
    assert "the part is 'wires'; allowed: machine, " in capsys.readouterr().err


def test_every_case_is_planned_and_every_planned_case_exists() -> None:
    assert {step.case for step in command.plan()} == set(CASES) | set(PROGRAMS) | set(TENSORS)


def program(folder: Path, *lines: str) -> Path:
    """Return a program of the shell."""
    path = folder / "program"
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o755)
    return path


def test_a_program_that_fails_tells_its_reason_after_its_rows(tmp_path: Path) -> None:
    failing = program(tmp_path, """echo '{"a": 1}'""", "echo cuInit failed: 100 >&2", "exit 1")
    rows = run_program(failing, ["rates"])
    assert next(rows) == {"a": 1}
    with pytest.raises(StagingError, match=r"^cuInit failed: 100$"):
        next(rows)


def test_a_program_that_crashes_is_said_to_have(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match=r"^signal 11 ended rates"):
        list(run_program(program(tmp_path, "kill -SEGV $$"), ["rates"]))


@pytest.mark.parametrize(
    ("row", "broken"),
    [
        ('{"case": "copies", "holds": false, "failed": "expected 3"}', "^copies: expected 3$"),
        ('{"wrong_words_at_host": 2, "wrong_words_at_device": 0}', "^wrong words: "),
    ],
)
def test_a_broken_promise_is_a_failure_after_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, broken: str
) -> None:
    built = program(tmp_path, f"echo '{row}'", """echo '{"case": "waits", "holds": true}'""")
    monkeypatch.setattr("gpu_check.staging.build_staging", lambda _: built)
    found = staging(tmp_path, ["contract"])
    assert next(found) == json.loads(row)
    assert next(found)["holds"] is True
    with pytest.raises(StagingError, match=broken):
        next(found)


def test_staging_is_built_from_all_sources_that_cmake_links() -> None:
    folders = {path.parent.relative_to(CORE) for path in sources() if path.is_relative_to(CORE)}
    assert {str(folder) for folder in folders} >= {"gate", "device", "device/cuda"}
    assert all(path.is_file() for path in sources())


def test_staging_needs_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"^g\+\+ is not installed, and \w+\.cc needs it$"):
        build_staging(tmp_path)


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    source = Path(__file__)
    with pytest.raises(BuildError, match=r"^no-such-cc is not installed, and test_"):
        compile_once(source, tmp_path, ".so", ["no-such-cc"])


def test_rows_are_read_until_the_output_ends() -> None:
    result = collect(lines_of('{"a": 1}\n', '{"b": 2}\n', ""), 5, time.monotonic() + 5)
    assert (result.rows, result.failed, result.hung) == ([{"a": 1}, {"b": 2}], "", False)


@pytest.mark.parametrize(
    ("silence", "limit", "failed", "hung"),
    [(0.01, 5, "silent for 0 s", True), (5, 0.01, "out of time", False)],
)
def test_a_case_without_end_keeps_its_rows(
    silence: float, limit: float, failed: str, hung: bool
) -> None:
    result = collect(lines_of('{"a": 1}\n'), silence, time.monotonic() + limit)
    assert (result.rows, result.failed, result.hung) == ([{"a": 1}], failed, hung)


def test_spread_of_times() -> None:
    found = microseconds(range(1000, 101_000, 1000))
    expected = {"median_microseconds": 51, "p99_microseconds": 100, "max_microseconds": 100}
    assert json.loads(json.dumps(found)) == expected


def test_results_are_json_with_a_row_a_line() -> None:
    results: dict[str, list[dict[str, object]]] = {
        "copies": [{"case": "a", "rows": [{"b": 1}, {"b": 2}], "seconds": 3.0}, {"failed": "late"}],
        "machine": [],
    }
    text = text_of(results)
    results["copies"][1]["rows"] = []
    assert json.loads(text) == results
    assert text.count('"b"') == sum('"b"' in line for line in text.splitlines())


def test_rows_of_the_network_say_whether_bars_hold() -> None:
    row = {"contender": "slipstream", "codec": "none", "median_seconds": 0.1}
    row["limit_seconds"] = 0.095
    copies = {"contender": "copies to host and back", "median_seconds": 0.02, "limit_seconds": None}
    found = list(comm_rows({"rows": [row, copies], "notes": ["nccl is left out: no NCCL"]}))
    assert found[0] == {
        **{"contender": "slipstream", "median_ms": 100.0, "share": 0.95},
        **{"bar": 0.9, "holds": True},
    }
    assert found[2] == {"contender": "", "missing": "nccl is left out: no NCCL"}
    slow = {"contender": "slipstream int8", "median_seconds": 0.1, "times_gloo": 2.4}
    (trained, missing) = train_rows(
        {
            "results": [{**slow, "limit_share": None, "agrees": True}],
            "missing": {"nccl": "no NCCL"},
        }
    )
    assert trained["bar"] == 2.5
    assert not trained["holds"]
    assert missing == {"contender": "nccl", "missing": "no NCCL"}
