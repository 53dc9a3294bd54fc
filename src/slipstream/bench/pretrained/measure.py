"""Comparison of a pretrained model with its compiled version in accuracy and speed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipstream import infer
from slipstream.bench.infer.calls import of_onnxruntime, of_ours
from slipstream.bench.pretrained.case import (
    Inputs,
    Module,
    Pretrained,
    Run,
    Sample,
    Task,
)
from slipstream.bench.pretrained.peers import onnx_of, openvino
from slipstream.infer.measure import MOST_ROUNDS, interleave
from slipstream.infer.package.report import Report

SHORT_ROUNDS = 5
OURS, ORT, OPENVINO = "slipstream", "ONNX Runtime fp32", "OpenVINO fp32"


@dataclass(frozen=True, kw_only=True)
class PretrainedRow:
    """Results of one pretrained model.

    Args:
        model: Pretrained model.
        report: Report of the compilation.
        original: Accuracy of the original model, 0 to 1, which ONNX Runtime runs in float32.
        compiled: Accuracy of the compiled model, 0 to 1, on the same inputs as `original`.
        milliseconds: Median milliseconds for one sample, by name of the engine.
        troubles: Reasons why engines cannot run the model, by engine.
    """

    model: Pretrained
    report: Report
    original: float
    compiled: float
    milliseconds: Mapping[str, float]
    troubles: Mapping[str, str]

    @property
    def lost(self) -> float:
        """Loss of accuracy caused by the compilation, in percentage points."""
        return 100 * (self.original - self.compiled)

    @property
    def ratio(self) -> float:
        """Time of the original model in its fastest engine divided by the compiled model's time."""
        best = min(self.milliseconds[name] for name in self.milliseconds if name != OURS)
        return best / self.milliseconds[OURS]


def measure(
    model: Pretrained, *, seconds: float, threads: int = 1, is_short: bool = False
) -> PretrainedRow:
    """Compile a pretrained model with real inputs, judge it on other inputs, and time it.

    Args:
        model: Pretrained model, one of `zoo.PRETRAINED`.
        seconds: Time limit, in seconds, of the compiler's search for the fastest variant. The
            final measurement of speed takes another tenth of this limit, at least one second.
        threads: Number of threads that run the model (default 1).
        is_short: Whether to use fewer inputs and rounds, as in tests (default False).

    Raises:
        UsageError: a Python package or its data are missing.
    """
    source, task = model.model(), model.task(is_short)
    rounds = SHORT_ROUNDS if is_short else MOST_ROUNDS
    original = onnx_of(source)
    example = _inputs(task.samples[0])
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as folder:
        path = Path(folder, "model.slip")
        report = _compile(model, source, task, path, seconds, rounds, threads)
        with infer.load(path, threads) as ours:
            run = of_ours(ours)
            plain = of_onnxruntime(original, threads)
            runs: dict[str, Run] = {OURS: run, ORT: plain}
            troubles: dict[str, str] = {}
            try:
                runs[OPENVINO] = openvino(original, example, threads)
            except RuntimeError as error:
                troubles[OPENVINO] = str(error).strip().splitlines()[-1]
            return PretrainedRow(
                model=model,
                report=report,
                original=task.judge(plain),
                compiled=task.judge(run),
                milliseconds=_measure_milliseconds(runs, example, max(seconds / 10, 1.0), rounds),
                troubles=troubles,
            )


def _compile(
    model: Pretrained,
    source: Path | Module,
    task: Task,
    path: Path,
    seconds: float,
    rounds: int,
    threads: int,
) -> Report:
    is_module = isinstance(source, Module)
    return infer.compile(
        source.network if is_module else source,
        path,
        infer.CompileOptions(
            example_inputs=source.example if is_module else None,
            shapes=model.shapes or {},
            data=task.samples,
            snr_db=model.snr_db,
            seconds=seconds,
            most_rounds=rounds,
            threads=threads,
        ),
    )


def _measure_milliseconds(
    runs: Mapping[str, Run], example: Inputs, seconds: float, rounds: int
) -> dict[str, float]:
    def turn(run: Run) -> Callable[[], object]:
        return lambda: run(example)

    turns = {name: turn(run) for name, run in runs.items()}
    timings = interleave(turns, seconds, most_rounds=rounds, final=1000.0)
    return {name: 1e3 * timing.median for name, timing in timings.items()}


def _inputs(sample: Sample) -> Inputs:
    return sample[0] if isinstance(sample, tuple) else sample
