"""`.ci/run` on a Makefile whose stages do nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
STAGES = ["setup", "check", "docs", "test", "sanitize-share", "wheel"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a tree in which every stage prints its arguments."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci")
    (tmp_path / "Makefile").write_text(
        f"{' '.join(STAGES)}:\n\t@echo '<$@$(PYTEST_ARGS)$(SHARE)>'; test $@ != $(FAIL)\n"
    )
    return tmp_path


def run(checkout: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / ".ci" / "run"],
        env={**os.environ, "FAIL": "none", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_stage_runs_and_is_timed(checkout: Path) -> None:
    ran = run(checkout, PYTEST_ARGS="-k x", SHARE="0", MAKEFLAGS="-i", SECONDS="9999")
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stdout.splitlines() if line.startswith("<")] == [
        f"<{stage}>" for stage in STAGES
    ]
    assert [line.split()[1] for line in ran.stdout.splitlines()[-7:]] == [*STAGES, "total"]


@pytest.mark.parametrize("stage", [STAGES[0], STAGES[2], STAGES[-1]])
def test_a_stage_that_fails_is_named_and_timed(checkout: Path, stage: str) -> None:
    ran = run(checkout, FAIL=stage, MAKEFLAGS="-i")
    assert ran.returncode == 1
    assert f"FAILED: make {stage} after" in ran.stderr
    timed = STAGES[: STAGES.index(stage) + 1]
    assert [line.split()[1] for line in ran.stdout.splitlines()[-len(timed) - 1 :]] == [
        *timed,
        "total",
    ]


def test_a_report_that_fails_and_a_budget_that_is_exceeded_fail(checkout: Path) -> None:
    makefile = checkout / "Makefile"
    makefile.write_text(makefile.read_text() + "\t@mkdir -p build/results\n")
    assert run(checkout).returncode != 0  # there is no environment that could report
    text = (checkout / ".ci" / "run").read_text()
    (checkout / ".ci" / "run").write_text(text.replace("BUDGET_SECONDS=5000", "BUDGET_SECONDS=-1"))
    makefile.write_text(makefile.read_text().replace("\t@mkdir -p build/results\n", ""))
    ran = run(checkout)
    assert ran.returncode == 1
    assert "over the budget of -1 s" in ran.stderr
