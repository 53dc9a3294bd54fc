"""The process of one case of the check, which prints one JSON object per line.

python -m tools.gpu_check.case NAME BUILD_FOLDER [ARGUMENTS]
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import (
    copies,
    launches,
    machine,
    pending,
    pipeline,
    processes,
    queues,
    registration,
    signals,
)
from .bench import Bench, Row, open_bench
from .ranks.launch import ranks
from .ranks.network import network
from .staging import sharing, staging

CASES: dict[str, Callable[[Bench, list[str]], Iterator[Row]]] = {
    "facts": machine.facts,
    "copy engines": copies.engines,
    "two streams a direction": copies.two_streams,
    "copying kernels": copies.kernels,
    "launch costs": launches.launch_costs,
    "pageable copies": copies.pageable,
    "registration": registration.registration,
    "round trips": signals.round_trips,
    "signals": signals.signals,
    "neighbours": processes.neighbours,
    "operations": pending.operations,
    "other streams": queues.other_streams,
    "queue depth": queues.queue_depth,
    "pipeline": pipeline.pipeline,
}
# These need neither kernels nor the driver's API in Python.
PROGRAMS: dict[str, Callable[[Path, list[str]], Iterator[Row]]] = {
    "staging": staging,
    "staging in several processes": sharing,
    "ranks": ranks,
    "network": network,
}
# Modules with a function `measure`, which import PyTorch and need no build, so they are imported
# only when they run.
TENSORS = {"codecs": "codecs.bits", "codec rates": "codecs.rates", "inference": "models.latency"}


def rows(name: str, folder: Path, arguments: list[str]) -> Iterator[Row]:
    """Return the results of a case (JSON objects), one after another as they are measured."""
    if name in PROGRAMS:
        return PROGRAMS[name](folder, arguments)
    if name in TENSORS:
        return importlib.import_module(f".{TENSORS[name]}", __package__).measure(arguments)
    return CASES[name](open_bench(folder), arguments)


def main() -> None:
    """Run a case; print each result as soon as it is measured."""
    name, folder, *arguments = sys.argv[1:]
    for row in rows(name, Path(folder), arguments):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
