"""Records what gloo does with PyTorch's distributed suite: writes gloo_baseline.json.

Run it again when the pinned PyTorch changes (about five minutes on two cores):

    python tests/torch/record_gloo_baseline.py

World size 3 is what PyTorch's own CI uses without GPUs. The suite skips some tests unless there
are exactly four ranks, or at least eight, and those of all_to_all unless the backend is called
"mpi", though gloo passes them; each later run takes only what the earlier ones skipped.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SERVER = HERE / "suite_server.py"
BASELINE = HERE / "gloo_baseline.json"


def main() -> None:
    """Run every test with gloo and write the outcomes."""
    runs: dict[str, dict[str, str]] = {}
    names = test_names()
    for seen_as, world_size in (("gloo", 3), ("gloo", 4), ("gloo", 8), ("mpi", 3)):
        found = outcomes(seen_as, world_size, names)
        names = [name for name in names if found[name] == "skipped"]
        runs[f"{seen_as} {world_size}"] = {n: o for n, o in found.items() if o != "skipped"}
    baseline = {
        "torch": importlib.metadata.version("torch").split("+")[0],
        "runs": runs,
        "skipped": names,
    }
    BASELINE.write_text(json.dumps(baseline, indent=1, sort_keys=True) + "\n", encoding="ascii")


def test_names() -> list[str]:
    """Return the names of all tests of the suite."""
    command = [sys.executable, str(SERVER), "--list"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def outcomes(seen_as: str, world_size: int, names: list[str]) -> dict[str, str]:
    """Run `names` with gloo and return the outcome of each; shows progress on stderr."""
    command = [sys.executable, str(SERVER), "--backend", "gloo", "--seen-as", seen_as]
    command += ["--world-size", str(world_size)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    found: dict[str, str] = {}
    for name in names:
        server.stdin.write(name + "\n")
        server.stdin.flush()
        answer: dict[str, Any] = json.loads(server.stdout.readline())
        found[name] = answer["outcome"]
        print(
            f"{seen_as} {world_size}: {answer['outcome']:8} {answer['seconds']:6.1f} s {name}",
            answer["detail"][:200].replace("\n", " "),
            file=sys.stderr,
            flush=True,
        )
    server.stdin.close()
    server.wait()
    return found


if __name__ == "__main__":
    main()
