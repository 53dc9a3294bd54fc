"""Fit the forecast's parameters to a table of measurements, and write Slipstream's data files.

    python tools/fit_forecast.py TABLE.csv [--traces FILE] [--intervals | --checked]

The command writes three files to src/slipstream/forecast/data. A row of the table is one published
measurement, and its source is the publication. `parameters.toml` has the parameters that were
fitted to all published measurements. `fit.json` has the results of several fits: one to all
measurements, one without each source, and, for some sources, one without each model.
`intervals.toml` has quantiles of the ratio of measured to forecast values; the forecasts use
parameters that were fitted without the source of the measurement.

The command takes about fifteen minutes. A quarter of the time goes into tracing models; with
--traces, the traced models are stored in a file, and later runs read them. With --intervals, the
existing fit is used, and only intervals.toml is written. With --checked, only the parameters of
PyTorch 2 are fitted, to the measurements in benchmarks/forecast/h100.csv.
"""

from __future__ import annotations

import argparse
import pickle
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from slipstream.forecast.search.intervals import Bounds, Intervals, quantiles, save
from slipstream.forecast.simulate import parameters as fitted
from slipstream.forecast.simulate.compute import Runtime
from slipstream.forecast.simulate.parameters import USUAL, Parameters
from slipstream.forecast.validate import checked
from slipstream.forecast.validate.case import PublishedCase
from slipstream.forecast.validate.fit import Fit
from slipstream.forecast.validate.folds import Folds, fold_of
from slipstream.forecast.validate.folds import load as load_folds
from slipstream.forecast.validate.folds import save as save_folds
from slipstream.forecast.validate.memory import ratios
from slipstream.forecast.validate.predict import CasePredictor
from slipstream.forecast.validate.scaling import Singles
from slipstream.forecast.validate.score import group_of
from slipstream.forecast.validate.table import read

ROOT = Path(__file__).parents[1]
DATA = ROOT / "src" / "slipstream" / "forecast" / "data"
STEPS, STEPS_DEVICE = ROOT / "benchmarks" / "forecast" / "h100.csv", "H100"
# Times that the host of this H100 needs per operator, step and update, measured by `slipstream
# forecast calibrate`.
_MEASURED = {"forward_us": 19.3, "backward_us": 30.5, "step_ms": 0.0, "update_us": 7.9}
# Highest number of rows of a source. Larger sources are sampled at random, because more rows add
# little to the fit.
MOST_ROWS = 200
# Sources for which the fit is repeated without each of their models.
MODELS_APART = ("vTrain ground truth single-node", "llm-foundry MPT benchmarks")
# Recommenders are limited by their embedding tables. They can be forecast, but are not fitted yet.
NOT_FITTED = ("wide-deep", "ncf", "dlrm")
# Relative error that PyTorch's own tests allow between its memory trackers and CUDA's numbers.
TRACKED = 0.1

_HOST = {"forward_us": 40.0, "backward_us": 30.0, "collective_us": 40.0}
_EAGER = (
    "pytorch", "ngc-pytorch", "tensorflow1", "ngc-tensorflow1", "ngc-tensorflow2", "tensorflow2",
    "mxnet", "ngc-mxnet", "paddle", "ngc-paddle", "paddle-dali", "oneflow", "horovod", "caffe",
    "caffe2", "mindspore", "byteps", "torch7", "hugectr",
)  # fmt: skip


def guess() -> Parameters:
    """Return the parameters at which the fit starts, for each runtime (such as "tensorflow2")."""
    usual = replace(Runtime(name=USUAL, flash=False), **_HOST)
    runtimes = {name: replace(usual, name=name) for name in (USUAL, *_EAGER)}
    for name in ("tensorflow1", "ngc-tensorflow1", "tensorflow2", "ngc-tensorflow2"):
        runtimes[name] = replace(runtimes[name], composed=True, wide=True)
    for name in ("paddle", "ngc-paddle", "paddle-dali"):
        runtimes[name] = replace(runtimes[name], wide=True)
    # In BytePS, each device sums the gradients of the devices of its host and copies its share
    # (Jiang et al. 2020).
    runtimes["byteps"] = replace(runtimes["byteps"], sums=True)
    runtimes["xla"] = replace(usual, name="xla", memory=0.7)
    # Megatron-DeepSpeed, in the set-up of vTrain, sums gradients after the backward pass.
    runtimes["megatron"] = replace(usual, name="megatron", overlap=0.05)
    runtimes["fsdp"] = replace(usual, name="fsdp", flash=True)
    runtimes["fsdp-compile"] = replace(usual, name="fsdp-compile", flash=True, memory=0.7)
    return Parameters(runtimes=runtimes)


def chosen(cases: Sequence[PublishedCase]) -> list[PublishedCase]:
    """Return the measurements to which parameters are fitted, at most `MOST_ROWS` per source.

    Only times of training steps on synthetic data are used, and no recommenders, because embedding
    tables limit their speed.
    """
    by_source: defaultdict[str, list[PublishedCase]] = defaultdict(list)
    for case in cases:
        is_step = case.measures == "step" and not case.real_data
        if is_step and not case.architecture.startswith(NOT_FITTED):
            by_source[case.source].append(case)
    draw = random.Random(0)
    return [
        case
        for group in by_source.values()
        for case in (group if len(group) <= MOST_ROWS else draw.sample(group, MOST_ROWS))
    ]


def folds_of(cases: Sequence[PublishedCase], fit: Fit, point: np.ndarray) -> dict[str, list[float]]:
    """Return fitted parameters, by the name of the source or model that the fit left out.

    Each source is left out once. Models are left out for the sources in `MODELS_APART`.
    """
    folds: dict[str, list[float]] = {}
    for leave in ("source", "model"):
        names = [fold_of(case, leave) for case in cases]
        for name in sorted(set(names)):
            if leave == "source" or name.startswith(MODELS_APART):
                excluded = np.array([fold == name for fold in names])
                folds[name] = fit.without(excluded, point).tolist()
                print(f"without {name}", flush=True)
    return folds


def intervals_of(
    cases: Sequence[PublishedCase], folds: Folds, predictor: CasePredictor
) -> Intervals:
    """Return the intervals of forecasts: quantiles of the ratio of measured to forecast value.

    The quantiles are for step times and speed-ups (by group of models), for efficiencies and for
    memory. The forecasts, except those of memory, use parameters that were fitted without the
    source of the measurement. For step times and speed-ups, each measurement from a source with few
    measurements gets a larger weight, and times of a whole training are left out.
    """
    parameters = folds.parameters()
    by_group: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for case in cases:
        if case.measures != "to-target":
            judge = parameters.get(fold_of(case, "source"), parameters[""])
            ratio = case.measured / predictor.forecast(case, judge)
            for group in ("", group_of(case)):
                by_group[group][case.source].append(ratio)
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for group, sources in by_group.items():
        most = max(len(ratios) for ratios in sources.values())
        weighted = [
            ratio
            for ratios in sources.values()
            for ratio in ratios * max(1, round((most / len(ratios)) ** 0.5))
        ]
        low[group], high[group] = quantiles(weighted)
    return Intervals(
        low, high, _efficiency(cases, parameters, predictor), _memory(cases, predictor)
    )


def _efficiency(
    cases: Sequence[PublishedCase], parameters: Mapping[str, Parameters], predictor: CasePredictor
) -> Bounds:
    singles = Singles(cases)
    found = [
        singles.efficiency(case, predictor, parameters.get(case.source, parameters[""]))
        for case in cases
    ]
    return Bounds(*quantiles([each.measured / each.forecast for each in found if each]))


def _memory(cases: Sequence[PublishedCase], predictor: CasePredictor) -> Bounds:
    """Return two quantiles of the ratio of measured to forecast peak memory.

    The lower one is at most 1 - `TRACKED`, and the upper one is at least 1 + `TRACKED`. `TRACKED`
    is the tolerance of PyTorch's memory trackers.
    """
    low, high = quantiles([each for found in ratios(cases, predictor).values() for each in found])
    return Bounds(min(low, 1 - TRACKED), max(high, 1 + TRACKED))


def main() -> None:
    """Fit the parameters, and write the data files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--traces", type=Path, help="File for traced models, read and updated.")
    parser.add_argument("--intervals", action="store_true", help="Write only intervals.toml.")
    parser.add_argument("--checked", action="store_true", help="Fit only PyTorch 2's parameters.")
    arguments = parser.parse_args()
    if arguments.checked:
        _write(fitted.load(), len(chosen(read(arguments.table)[0])))
        return
    cases, unread = read(arguments.table)
    print(f"{len(cases)} rows read, {len(unread)} not")
    start = guess()
    predictor = CasePredictor(start)
    if arguments.traces and arguments.traces.exists():
        predictor.traced.update(pickle.loads(arguments.traces.read_bytes()))
    for case in cases:
        predictor.workload(case)
    if arguments.traces:
        arguments.traces.write_bytes(pickle.dumps(predictor.traced))
    folds = load_folds() if arguments.intervals else _fitted(cases, predictor, start)
    save(intervals_of(cases, folds, predictor), DATA / "intervals.toml")


def _fitted(cases: Sequence[PublishedCase], predictor: CasePredictor, start: Parameters) -> Folds:
    """Fit the parameters with all data and with data left out; write and return all fits."""
    taken = chosen(cases)
    fit = Fit(
        taken, predictor, Singles(cases), start, lambda done, of: print("round", done, "of", of)
    )
    point = fit.all()
    folds = Folds(
        guess=start,
        runtimes=fit.space.runtimes,
        all=point.tolist(),
        without=folds_of(taken, fit, point),
    )
    save_folds(folds, DATA / "fit.json")
    _write(fit.space.parameters(point.tolist()), len(taken))
    return folds


def _write(found: Parameters, rows: int) -> None:
    """Fit the parameters of PyTorch 2 to measured steps, and write all parameters."""
    steps = checked.read(STEPS)
    # How gradients are exchanged was fitted to the measurements of FSDP.
    start = replace(found.runtimes["fsdp"], name="pytorch2", memory=1.0, compute=1.0, **_MEASURED)
    off = [abs(each) for each in checked.errors(steps, STEPS_DEVICE, found, start)]
    print(f"PyTorch 2, model left out: {np.mean(off):.1%}, nine in ten {np.quantile(off, 0.9):.1%}")
    current = checked.fit(steps, STEPS_DEVICE, found, start)
    found = replace(found, runtimes={**found.runtimes, "pytorch2": current})
    note = (
        f"Fitted by tools/fit_forecast.py on {rows} published measurements;\n"
        f"PyTorch 2 on {len(steps)} steps of an H100."
    )
    fitted.save(found, DATA / "parameters.toml", note)


if __name__ == "__main__":
    main()
