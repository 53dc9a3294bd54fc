"""Allreduce on this machine: Slipstream beside gloo (both through torch) and Open MPI (mpi4py).

    python benchmarks/allreduce.py [--ranks 2 4] [--rounds 7] [--json build/allreduce.json]

The backends of torch take turns within one run; Open MPI, which needs its own launcher, runs right
after. Medians; bus bandwidth is 2 (n-1)/n times the bytes, divided by the time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

RANKS = Path(__file__).parent / "ranks"
SIZES = [4 << 10, 64 << 10, 1 << 20, 10_000_000, 100_000_000, 256 << 20]
MARK = "RESULT "


def run(command: list[str]) -> list[dict[str, Any]]:
    """Returns what rank 0 measured.

    Raises:
        RuntimeError: the command failed; with its last lines.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    for line in done.stdout.splitlines():
        if MARK in line:
            return json.loads(line.split(MARK, 1)[1])
    tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
    raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")


def measure(ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Returns {peer, bytes, seconds} of every peer that is installed."""
    arguments = [json.dumps(SIZES), str(rounds)]
    launcher = str(Path(sys.executable).parent / "slipstream")
    script = str(RANKS / "allreduce_torch.py")
    results = run([launcher, "run", "-n", str(ranks), script, *arguments])
    if mpirun := shutil.which("mpirun"):
        options = ["--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
        script = str(RANKS / "allreduce_mpi.py")
        results += run([mpirun, *options, sys.executable, script, *arguments])
    return [{"ranks": ranks, **each} for each in results]


def table(results: list[dict[str, Any]], ranks: int) -> Table:
    """Returns the results of one world size, a row for each number of bytes."""
    rows = [each for each in results if each["ranks"] == ranks]
    peers = list(dict.fromkeys(each["peer"] for each in rows))
    shown = Table(
        title=f"allreduce of float32, {ranks} ranks of this machine",
        caption="microseconds, bus bandwidth in GB/s; last column: gloo's time over ours",
    )
    shown.add_column("bytes", justify="right", no_wrap=True)
    for peer in peers:
        shown.add_column(f"{peer}\nus   GB/s", justify="right", no_wrap=True)
    shown.add_column("", justify="right", no_wrap=True)
    for size in dict.fromkeys(each["bytes"] for each in rows):
        seconds = {each["peer"]: each["seconds"] for each in rows if each["bytes"] == size}
        bus = 2 * (ranks - 1) / ranks * size
        cells = [f"{seconds[p] * 1e6:,.1f} {bus / seconds[p] / 1e9:5.2f}" for p in peers]
        ratio = f"{seconds['gloo'] / seconds['slipstream']:.1f}x"
        shown.add_row(f"{size:,}", *cells, ratio)
    return shown


def main() -> None:
    """Measures, prints a table for each world size, and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, default=Path("build/allreduce.json"))
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    progress = Console(stderr=True)
    for ranks in track(options.ranks, "measuring", console=progress, transient=True):
        results += measure(ranks, options.rounds)
    for ranks in options.ranks:
        Console().print(table(results, ranks))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
