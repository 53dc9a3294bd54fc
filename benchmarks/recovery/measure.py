"""Seconds from kill -9 of a rank to the next completed step: Slipstream, torchrun, torchft.

Each round starts one job of every contender, one after the other, and kills ranks in it: first rank
0, then ranks drawn at random, each time when all ranks train together. The time of a recovery ends
when the last survivor has completed a step in the new group of ranks; with torchrun, which starts
all ranks again, when the last rank has. Install torchft for its rows.

    python benchmarks/recovery/measure.py --ranks 4 8 --rounds 2 -o recovery.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from jobs import KINDS, Job, JobError

from slipstream.processor import processor_name

BAR_RATIO = 5.0  # times faster than torchrun
BAR_SECONDS = 3.0  # for eight ranks
_SETTLE_SECONDS = 1.0


def recover(job: Job, rank: int) -> dict[str, Any]:
    """Kill a rank and wait until the others have completed a step without it."""
    job.wait_for(job.is_whole, "training of all ranks")
    time.sleep(_SETTLE_SECONDS)
    job.wait_for(job.is_whole, "training of all ranks")
    before = job.living()
    victim = next(pid for pid, entry in before.items() if entry.rank == rank)
    generation = before[victim].generation
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    survivors = before.keys() - {victim}

    def ends() -> dict[int, float]:
        """Return when each process completed its first step in a later generation."""
        first: dict[int, float] = {}
        for pid, entries in job.entries.items():
            later = (entry.seconds for entry in entries if entry.generation > generation)
            if (seconds := next(later, None)) is not None:
                first[pid] = seconds
        return first

    def is_over() -> bool:
        if job.restarts_everybody:
            return len(ends()) >= job.ranks
        return survivors <= ends().keys()

    job.wait_for(is_over, f"recovery from the loss of rank {rank}")
    done = ends()
    last = max(done.values() if job.restarts_everybody else (done[pid] for pid in survivors))
    return {"rank": rank, "seconds": last - killed, "same_processes": survivors <= done.keys()}


def run_job(kind: type[Job], ranks: int, kills: int, draw: random.Random) -> dict[str, Any]:
    """Run one job with its kills; return the recoveries, and why they ended too early if so."""
    victims = [0, *(draw.randrange(ranks) for _ in range(kills - 1))]
    recoveries: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="recovery-", ignore_cleanup_errors=True) as folder:
        job = kind(Path(folder), ranks)
        try:
            job.start()
            for rank in victims:
                recoveries.append(recover(job, rank))
                print(f"  {kind.name}, {ranks} ranks: {recoveries[-1]}", flush=True)
        except JobError as error:
            print(f"  {error}", file=sys.stderr, flush=True)
            print(job.output.read_text()[-3000:], file=sys.stderr, flush=True)
            return {"recoveries": recoveries, "problem": str(error)}
        finally:
            job.end()
    return {"recoveries": recoveries, "problem": ""}


def summary(jobs: list[dict[str, Any]], kills: int) -> dict[str, Any]:
    """Return the medians of a contender's jobs."""
    recoveries = [each for job in jobs for each in job["recoveries"]]
    seconds = [each["seconds"] for each in recoveries]
    return {
        "kills": kills * len(jobs),
        "recovered": len(recoveries),
        "median_seconds": statistics.median(seconds) if seconds else None,
        "longest_seconds": max(seconds, default=None),
        "median_seconds_of_rank_0": statistics.median(
            each["seconds"] for each in recoveries if each["rank"] == 0
        )
        if any(each["rank"] == 0 for each in recoveries)
        else None,
        "same_processes": all(each["same_processes"] for each in recoveries),
    }


def measure(options: argparse.Namespace, names: list[str]) -> list[dict[str, Any]]:
    """Run all rounds, contenders by turns; return one result for each number of ranks."""
    draw = random.Random(options.seed)
    results: list[dict[str, Any]] = []
    for ranks in options.ranks:
        jobs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name in names:
                jobs[name].append(run_job(KINDS[name], ranks, options.kills, draw))
        rows = {name: summary(each, options.kills) for name, each in jobs.items()}
        results.append({"ranks": ranks, "rows": rows, "jobs": jobs})
    return results


def print_table(results: list[dict[str, Any]]) -> None:
    """Print a row for each contender and number of ranks."""
    print("ranks  contender   recovered  median     longest    rank 0     same processes  ratio")
    for result in results:
        ours = result["rows"]["slipstream"]["median_seconds"]
        for name, row in result["rows"].items():
            times = ("median_seconds", "longest_seconds", "median_seconds_of_rank_0")
            cells = ["-" if row[key] is None else f"{row[key]:.3f} s" for key in times]
            same = "yes" if row["same_processes"] else "no"
            known = ours and row["median_seconds"]
            ratio = f"{row['median_seconds'] / ours:.1f}" if known else "-"
            recovered = f"{row['recovered']} of {row['kills']}"
            print(
                f"{result['ranks']:5}  {name:10}  {recovered:9}  {cells[0]:9}  {cells[1]:9} "
                f" {cells[2]:9}  {same:14}  {ratio}"
            )


def missed_bars(results: list[dict[str, Any]]) -> list[str]:
    """Return the targets that Slipstream has missed, in words."""
    missed: list[str] = []
    for result in results:
        rows, ranks = result["rows"], result["ranks"]
        ours = rows["slipstream"]
        if ours["recovered"] < ours["kills"] or not ours["same_processes"]:
            missed.append(f"{ranks} ranks: a recovery failed, or a survivor was replaced")
            continue
        if ranks == 8 and ours["median_seconds"] > BAR_SECONDS:
            missed.append(f"{ranks} ranks: over {BAR_SECONDS:g} s")
        peer = rows.get("torchrun")
        if peer and peer["median_seconds"]:
            ratio = peer["median_seconds"] / ours["median_seconds"]
            if ratio < BAR_RATIO:
                missed.append(f"{ranks} ranks: {ratio:.1f} times faster than torchrun")
    return missed


def machine() -> dict[str, Any]:
    """Return what the measurement ran on."""
    names = ("torch", "torchft")
    versions = {each: metadata.version(each) for each in names if _is_installed(each)}
    return {
        "processor": processor_name(),
        "processors": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "versions": versions,
    }


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    """Run the command line; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8], help="ranks (4 8)")
    parser.add_argument("--rounds", type=int, default=2, help="jobs of each contender (2)")
    parser.add_argument("--kills", type=int, default=3, help="kills in each job (3)")
    parser.add_argument("--peers", nargs="*", default=["torchrun", "torchft"], choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=1, help="seed of the killed ranks (1)")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    begun, on = time.monotonic(), machine()
    print(f"seed {options.seed}; {on}", flush=True)
    names = ["slipstream", *(name for name in options.peers if name != "slipstream")]
    for name in list(names):
        if missing := KINDS[name].missing():
            print(f"{name} is left out, because it is not installed: pip install {missing}")
            names.remove(name)
    results = measure(options, names)
    print_table(results)
    print(f"{time.monotonic() - begun:.0f} s")
    if options.output:
        report = {"seed": options.seed, "machine": on, "results": results}
        options.output.write_text(json.dumps(report, indent=2) + "\n")
    missed = missed_bars(results)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
