"""Count ranks that are taken for lost although they live, on a machine with too much to do.

    python tests/soak/false_alarms.py --minutes 60 --load 8 --seed 1

Busy processes of normal priority compete with the eight ranks of a job, which pause between their
operations. No rank may lose another one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RANK = Path(__file__).with_name("false_alarms_rank.py")
RANKS = 8
SPARE_SECONDS = 600.0  # for the start and the end on a busy machine


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the job beside the busy processes; return what its ranks report."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)
    ]
    try:
        command = [
            *(sys.executable, "-m", "slipstream.cli", "run", "-np", str(RANKS)),
            *(str(RANK), str(options.seed), str(options.minutes * 60)),
        ]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=options.minutes * 60 + SPARE_SECONDS,
        )
        load = os.getloadavg()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    lines = [line for line in done.stdout.splitlines() if "{" in line]
    reports = [json.loads(line[line.index("{") :]) for line in lines]
    return {
        "seed": options.seed,
        "minutes": options.minutes,
        "load_average_at_the_end": [round(each, 1) for each in load],
        "exit_code": done.returncode,
        "sums": sum(report["sums"] for report in reports),
        "lost": sum(report["lost"] for report in reports),
        "problems": [report["problem"] for report in reports if report["problem"]],
        "ranks": len(reports),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="time of training (60)")
    parser.add_argument("--load", type=int, default=8, help="number of busy processes (8)")
    parser.add_argument("--seed", type=int, default=1, help="seed of sizes and pauses (1)")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    result = run(options)
    print(json.dumps(result, indent=2))
    if result["lost"] or result["problems"] or result["exit_code"] or result["ranks"] != RANKS:
        sys.exit(f"false_alarms.py with seed {options.seed}: a rank that lives was lost")


if __name__ == "__main__":
    main()
