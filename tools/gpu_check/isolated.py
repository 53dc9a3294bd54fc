"""Functions that run each case in its own process, so that a hang or crash ends no other case."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
MODULE = "tools.gpu_check.case"
LAST_LINES = 5
PATIENCE_SECONDS = 5


@dataclass
class Result:
    """The rows that a case printed, and the reason why it ended early.

    Args:
        rows: JSON objects that the case printed.
        failed: Last lines of the case's errors, or the reason why the case ended; "" after success.
        hung: True if the case was ended because it printed nothing for too long.
    """

    rows: list[dict[str, Any]] = field(default_factory=lambda: [])
    failed: str = ""
    hung: bool = False


def end(process: subprocess.Popen[str], *, at_once: bool) -> int:
    """End a process and its children; return its exit code."""
    try:
        process.wait(0 if at_once else PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return process.wait()


def run_case(
    case: str,
    folder: Path,
    arguments: list[str],
    variables: dict[str, str],
    *,
    silence: float,
    limit: float,
) -> Result:
    """Run a case, and end it if it is silent or runs for too long.

    Args:
        case: Name of the case.
        folder: Folder for the built files.
        arguments: Arguments of the case.
        variables: Environment variables in addition to those of this process.
        silence: Limit in seconds for the time between two rows.
        limit: Limit in seconds for the case.
    """
    command = [sys.executable, "-m", MODULE, case, str(folder), *arguments]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: queue.Queue[str] = queue.Queue()
    errors: list[str] = []
    readers = [
        threading.Thread(target=forward, args=(process.stdout, lines)),
        threading.Thread(target=errors.extend, args=(process.stderr,)),
    ]
    for reader in readers:
        reader.start()
    result = collect(lines, silence, time.monotonic() + limit)
    code = end(process, at_once=bool(result.failed))
    for reader in readers:
        reader.join()
    if not result.failed and code:
        result.failed = "".join(errors[-LAST_LINES:]).strip() or f"exit code {code}"
    return result


def forward(output: IO[str], lines: queue.Queue[str]) -> None:
    """Put lines into a queue, and an empty line at the end."""
    for line in output:
        lines.put(line)
    lines.put("")


def collect(lines: queue.Queue[str], silence: float, deadline: float) -> Result:
    """Return the results that a case prints until it ends, is silent too long or runs too long."""
    result = Result()
    while True:
        wait = min(silence, deadline - time.monotonic())
        try:
            line = lines.get(timeout=max(wait, 0.001))
        except queue.Empty:
            result.hung = wait == silence
            result.failed = f"silent for {silence:.0f} s" if result.hung else "out of time"
            return result
        if not line:
            return result
        result.rows.append(json.loads(line))


def case_text(case: dict[str, Any]) -> str:
    """Return the results of one case as JSON text, with one measurement per line."""
    head = {key: value for key, value in case.items() if key != "rows"}
    rows = ",\n".join(f"   {json.dumps(row)}" for row in case.get("rows", []))
    return f'  {json.dumps(head)[:-1]}, "rows": [\n{rows}\n  ]}}'


def text_of(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the results of all parts as JSON text, with one measurement per line."""
    parts = [
        f" {json.dumps(name)}: [\n" + ",\n".join(map(case_text, cases)) + "\n ]"
        for name, cases in results.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"
