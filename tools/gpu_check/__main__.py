"""Measure, on one NVIDIA GPU, the properties on which staging through host memory relies.

    python -m tools.gpu_check [--output FILE] [--parts copies,signals] [--seconds 240]

The check needs Python 3.10 or later, g++ and nvcc, but no network. Most parts use PyTorch only to
keep the GPU busy. The part "staging" needs no nvcc, because it builds and runs the code of the
engine. The part "codecs" needs PyTorch, and for half of its cases Triton, but no nvcc. The
parts "collectives" and "horovod" need PyTorch and an installed slipstream. So does the part
"network", which takes about eight minutes, and the part "inference", which compiles two models and
also needs the extra "infer"; both run only if they are named:

    python -m tools.gpu_check --parts network --seconds 560
    python -m tools.gpu_check --parts inference --seconds 240

Every case runs in its own process, with a time limit. After each part, the results of the part are
printed and FILE is written.

Exit codes: 0 if all parts ran; 1 if a part failed or the time was over; 2 if there is no CUDA
driver or no compiler, and for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .bench import open_bench
from .build import BuildError
from .case import CASES, PROGRAMS, TENSORS
from .driver import NoDriverError, load_library
from .isolated import ROOT, Result, run_case, text_of
from .load import LOADS
from .operations import OPERATIONS
from .staging import PARTS, build_staging

OUTPUT = ROOT / "build" / "gpu_check.json"
SILENCE_SECONDS = 30.0
HANG_SECONDS = 20.0
ONE_CONNECTION = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
MANY_CONNECTIONS = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
EAGER = {"CUDA_MODULE_LOADING": "EAGER"}
NO_TIME = {"failed": "no time was left"}
TRAIN_PEERS = "gloo,nccl,nccl-tuned,nccl-plugin,nccl-fp16,nccl-bf16,nccl-powersgd"
BACKENDS = ("slipstream", "gloo", "slipstream", "gloo")  # interleaved
HOROVOD_CHECKS = ("collectives", "training")
CODEC_KERNELS = ("triton", "torch")
NETWORK, INFERENCE = "network", "inference"
NAMED = (NETWORK, INFERENCE)  # parts that run only if they are named
HUNG = "does not come back"


@dataclass(frozen=True)
class Step:
    """One run of a case (a measurement), with its arguments and environment variables.

    A part of the check, such as "copies", consists of several steps.
    """

    part: str
    case: str
    arguments: list[str] = field(default_factory=lambda: [])
    variables: dict[str, str] = field(default_factory=lambda: {})


def plan() -> list[Step]:
    """Return all steps, the most important steps first."""
    driver_calls = [name for name in OPERATIONS if not name.startswith("torch: ")]
    torch_calls = [name for name in OPERATIONS if name.startswith("torch: ")]
    loading = [name for name in driver_calls if "module" in name or "first" in name]
    return [
        Step("machine", "facts"),
        *[Step("staging", "staging", [name]) for name in PARTS],
        *[Step("staging", "staging", [name], ONE_CONNECTION) for name in ("correctness", "rates")],
        *[Step("staging", "staging in several processes", [count]) for count in ("2", "4")],
        *[Step("collectives", "ranks", ["results", count]) for count in ("2", "4")],
        Step("collectives", "ranks", ["encoded", "2"]),
        Step("collectives", "ranks", ["stages", "2", "encoded"]),
        Step("collectives", "ranks", ["stages", "4", "hierarchy"]),
        Step("collectives", "ranks", ["killed", "2"]),
        *[Step("collectives", "ranks", ["rates", "2", backend]) for backend in BACKENDS],
        Step(NETWORK, "network", ["comm", "2", "gloo,nccl,nccl-tuned,nccl-plugin"]),
        Step(NETWORK, "network", ["resnet50", "2", TRAIN_PEERS]),
        Step(NETWORK, "network", ["gpt2", "2", "gloo,nccl"]),
        Step(NETWORK, "network", ["resnet50", "4", "gloo"]),
        Step(NETWORK, "network", ["gpt2", "4", "gloo"]),
        *[Step("horovod", "ranks", ["hvd_results", "2", checks]) for checks in HOROVOD_CHECKS],
        Step("horovod", "ranks", ["hvd_results", "4", "collectives"]),
        *[Step(INFERENCE, "inference", [model]) for model in ("resnet50", "bert_base")],
        *[Step("codecs", "codecs", [kernels]) for kernels in CODEC_KERNELS],
        *[Step("codecs", "codec rates", [kernels]) for kernels in CODEC_KERNELS],
        Step("signals", "round trips"),
        *[Step("signals", "signals", [load]) for load in LOADS if load != "busy"],
        Step("copies", "copy engines"),
        Step("copies", "two streams a direction"),
        Step("copies", "copying kernels"),
        Step("copies", "pageable copies"),
        Step("copies", "launch costs"),
        Step("pipeline", "pipeline"),
        Step("processes", "neighbours"),
        Step("processes", "neighbours", variables=ONE_CONNECTION),
        Step("pending", "operations", driver_calls),
        Step("pending", "operations", driver_calls, ONE_CONNECTION),
        Step("pending", "operations", loading, EAGER),
        Step("pending", "operations", torch_calls),
        Step("pending", "operations", ["torch: first double product"], EAGER),
        Step("pending", "other streams"),
        Step("pending", "other streams", variables=ONE_CONNECTION),
        Step("pending", "other streams", variables=MANY_CONNECTIONS),
        Step("pending", "queue depth"),
        Step("registration", "registration"),
    ]


def run_operations(step: Step, folder: Path, limit: float) -> Result:
    """Run a step that tries operations; if an operation hangs, go on with the next operation."""
    total = Result()
    names = list(step.arguments)
    deadline = time.monotonic() + limit
    while names:
        seconds = deadline - time.monotonic()
        result = run_case(
            step.case, folder, names, step.variables, silence=HANG_SECONDS, limit=seconds
        )
        rows = [row for row in result.rows if "operation" in row]
        total.rows += rows
        names = names[len(rows) :]
        if not result.hung:
            total.failed = result.failed
            return total
        total.rows.append({"operation": names.pop(0), "outcome": HUNG})
    return total


def run_step(step: Step, folder: Path, limit: float) -> dict[str, Any]:
    """Run a step; return its results in the form in which the JSON file stores them."""
    start = time.monotonic()
    if step.case == "operations":
        result = run_operations(step, folder, limit)
    else:
        result = run_case(
            step.case,
            folder,
            step.arguments,
            step.variables,
            silence=limit if step.part in NAMED else min(SILENCE_SECONDS, limit),
            limit=limit,
        )
    has_variants = step.case in PROGRAMS or step.case in TENSORS
    name = " ".join([step.case, *step.arguments]) if has_variants else step.case
    content: dict[str, Any] = {"case": name, **step.variables, "rows": result.rows}
    if result.failed:
        content["failed"] = result.failed
    return content | {"seconds": round(time.monotonic() - start, 1)}


def parts(steps: list[Step]) -> Iterator[tuple[str, list[Step]]]:
    """Yield the name and the steps of each part."""
    for name in dict.fromkeys(step.part for step in steps):
        yield name, [step for step in steps if step.part == name]


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    names = [name for name, _ in parts(plan())]
    default = [name for name in names if name not in NAMED]
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file for the results")
    parser.add_argument(
        "--parts", help=f"parts to run, comma-separated (default: {','.join(default)})"
    )
    parser.add_argument(
        "--seconds", type=float, default=240, help="time limit for all parts (default: 240)"
    )
    parsed = parser.parse_args(arguments)
    parsed.parts = parsed.parts.split(",") if parsed.parts else default
    for name in parsed.parts:
        if name not in names:
            parser.error(f"the part is {name!r}; allowed: {', '.join(names)}")
    return parsed


def build(steps: list[Step], folder: Path) -> None:
    """Build the programs and libraries that the steps need.

    Raises:
        NoDriverError: There is no driver or no GPU.
        BuildError: There is no compiler.
    """
    load_library()
    if any(step.case in CASES for step in steps):
        open_bench(folder)
    if any(step.part == "staging" for step in steps):
        build_staging(folder)


def main(arguments: list[str]) -> int:
    """Run the chosen parts; return the exit code."""
    options = parse(arguments)
    folder = options.output.resolve().parent / "gpu_check_build"
    chosen = [step for step in plan() if step.part in options.parts]
    try:
        build(chosen, folder)
    except (NoDriverError, BuildError) as error:
        print(error, file=sys.stderr)
        return 2
    deadline = time.monotonic() + options.seconds
    results: dict[str, Any] = {}
    failed = False
    for name, steps in parts(chosen):
        results[name] = []
        for step in steps:
            limit = deadline - time.monotonic()
            result = run_step(step, folder, limit) if limit > 1 else {**NO_TIME, "case": step.case}
            failed = failed or "failed" in result
            results[name].append(result)
            options.output.write_text(text_of(results), encoding="utf-8")
        print(json.dumps({name: results[name]}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
