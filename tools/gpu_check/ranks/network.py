"""Benchmarks of ranks that share one GPU, on hosts whose links are a relay, and their bars.

Slipstream must be installed for this Python. The benchmarks are those of `slipstream bench`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RATE = "10gbit"
LIMIT_SECONDS = 200.0

COMM = ("comm", "--sizes", "64m", "--codecs", "none,int8", "--rounds", "7")
TRAIN = ("train", "--codecs", "none,bf16,int8", "--rounds", "3", "--steps", "3")

# Bars of training: how many times faster than gloo a contender must be.
FASTER = {"slipstream": 1.5, "slipstream int8": 2.5}
# Bar of an allreduce: the time of the slower of link and bus, divided by its own.
SHARE = 0.9


class NetworkError(Exception):
    """A benchmark has failed."""


def network(folder: Path, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Run a benchmark of tensors on the GPU; yield a row for each contender, with its bar.

    Args:
        folder: Folder for built files; not used.
        arguments: "comm" or the name of a model of `slipstream bench train`, the number of hosts,
            and the peers, separated by commas.

    Raises:
        NetworkError: The benchmark has failed.
    """
    what, hosts, peers = arguments
    benchmark = COMM if what == "comm" else (*TRAIN, "--models", what)
    links = ("--num-hosts", hosts, "--rate", RATE, "--relay")
    command = [*benchmark, *links, "--peers", peers, "--device", "cuda", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "slipstream.cli", "bench", *command],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if not done.stdout:
        raise NetworkError(f"exit status {done.returncode}: {done.stderr[-1500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    yield from comm_rows(found) if what == "comm" else train_rows(found)


def comm_rows(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of collectives, each with its share of the slower of link and bus."""
    rows = found["rows"]
    bus = max(row["median_seconds"] for row in rows if row["contender"].startswith("copies"))
    for row in rows:
        seconds = row["median_seconds"]
        result = {"contender": row["contender"], "median_ms": round(seconds * 1e3, 2)}
        if row["limit_seconds"] is not None:
            copies = bus if row["codec"] == "none" else 0.0
            result["share"] = round(max(row["limit_seconds"], copies) / seconds, 3)
        if row["contender"] == "slipstream":
            result |= {"bar": SHARE, "holds": result["share"] >= SHARE}
        yield result
    yield from ({"contender": "", "missing": note} for note in found["notes"])


def train_rows(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of training, each with its speed relative to gloo."""
    for row in found["results"]:
        faster = row["times_gloo"]
        result = {
            "contender": row["contender"],
            "median_ms": round(row["median_seconds"] * 1e3, 2),
            "times_gloo": round(faster, 3),
            "share": row["limit_share"] and round(row["limit_share"], 3),
            "agrees": row["agrees"],
        }
        if (bar := FASTER.get(row["contender"])) is not None:
            result |= {"bar": bar, "holds": faster >= bar}
        yield result
    yield from ({"contender": peer, "missing": reason} for peer, reason in found["missing"].items())
