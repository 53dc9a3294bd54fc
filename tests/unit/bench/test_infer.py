"""The arithmetic of `slipstream bench infer`, what it refuses, and its tables."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from slipstream.bench.infer.bars import best_bar, fp32_bar, geometric_mean
from slipstream.bench.infer.contenders import CONTENDERS, OURS_BEST, OURS_FP32, chosen, obstacle
from slipstream.bench.infer.job import InferJob, InferTiming
from slipstream.bench.infer.measure import InferReport, InferSpec, ModelResult
from slipstream.bench.infer.models import folder_name
from slipstream.bench.infer.peak import peaks
from slipstream.bench.infer.process import peak_bytes, turn
from slipstream.bench.infer.processes import ProcessError, cores_of, run_to_end
from slipstream.bench.infer.samples import read_samples, signal_to_noise, write_samples
from slipstream.bench.infer.table import as_json, caption, share_of_peak, tables
from slipstream.errors import UsageError

MS = 1e-3


def timed(contender: str, ms: float, snr_db: float, detail: str = "") -> InferTiming:
    return InferTiming(
        contender=contender,
        turns=((ms * MS, 1.1 * ms * MS), (0.9 * ms * MS,)),
        snr_db=snr_db,
        prepare_seconds=0.0,
        load_seconds=1.0,
        peak_bytes=100_000_000,
        detail=detail,
    )


def result(model: str = "resnet50", ours_ms: float = 10.0, ours_db: float = 20.0) -> ModelResult:
    return ModelResult(
        model=model,
        flops=8_000_000_000,
        bytes_moved=1,
        asked_db=18.5,
        timings=(
            timed("pytorch", 100.0, 200.0),
            timed("ort", 50.0, 130.0),
            timed("openvino-int8-weights", 45.0, 40.0),
            timed("openvino-int8", 20.0, 18.0),
            timed(OURS_FP32, 40.0, 120.0, "native fp32"),
            timed(OURS_BEST, ours_ms, ours_db, "native int8"),
        ),
    )


def report(*results: ModelResult) -> InferReport:
    spec = InferSpec(models=tuple(each.model for each in results))
    return InferReport(
        spec=spec, peaks={"fp32": 4e11, "int8": 16e11}, results=results, notes=("a note",)
    )


def test_the_fastest_peer_of_each_kind_is_the_bar():
    fp32, best = fp32_bar(result()), best_bar(result())
    assert fp32 is not None
    assert best is not None
    assert (fp32.peer.contender, fp32.ours.contender) == ("ort", OURS_FP32)
    assert fp32.ratio == pytest.approx(50 / 40)
    assert fp32.holds
    assert (best.peer.contender, best.ours.contender) == ("openvino-int8", OURS_BEST)
    assert best.ratio == pytest.approx(2.0)
    assert best.holds


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (result(ours_ms=20.0), True),
        (result(ours_ms=20.1), False),
        (result(ours_db=17.9), False),  # fast, and worse than the peer
        (result("detector", ours_ms=13.0), True),
        (result("detector", ours_ms=14.0), False),  # there more is wanted
    ],
)
def test_a_bar_holds_where_ours_is_as_fast_and_as_accurate_as_wanted(
    found: ModelResult, holds: bool
):
    bar = best_bar(found)
    assert bar is not None
    assert bar.holds == holds


def test_of_a_peer_in_float32_no_more_than_faithful_results_are_asked():
    only = ModelResult(
        model="resnet50",
        flops=1,
        bytes_moved=1,
        asked_db=60.0,
        timings=(timed("ort", 50.0, 130.0), timed(OURS_BEST, 40.0, 61.0)),
    )
    bar = best_bar(only)
    assert bar is not None
    assert bar.is_accurate
    assert fp32_bar(only) is None


@pytest.mark.parametrize(
    ("unseen_db", "said"),
    [
        (None, ""),
        (18.6, "Slipstream was asked for 18.5 dB; kept on 7 other inputs: 18.6 dB."),
        (18.4, "Slipstream was asked for 18.5 dB; BROKEN on 7 other inputs: 18.4 dB."),
    ],
)
def test_a_promise_is_kept_or_broken_on_unseen_inputs(unseen_db: float | None, said: str):
    found = report(dataclasses.replace(result(), unseen_db=unseen_db))
    found = dataclasses.replace(found, spec=dataclasses.replace(found.spec, unseen=7))
    assert (tables(found)[0].caption or "") == said
    assert as_json(found)["models"][0]["unseen_db"] == unseen_db


def test_the_mean_is_geometric_and_leaves_out_what_is_missing():
    bars = [best_bar(result(ours_ms=10.0)), None, best_bar(result(ours_ms=40.0))]
    assert geometric_mean(bars) == pytest.approx(1.0)
    assert geometric_mean([None]) is None


def test_the_share_of_the_peak_is_of_the_precision_that_products_have():
    found = report(result())
    shares = {each.contender: share_of_peak(found, result(), each) for each in result().timings}
    assert shares["ort"] == pytest.approx(8e9 / 0.05 / 4e11)
    assert shares["openvino-int8"] == pytest.approx(8e9 / 0.02 / 16e11)
    assert shares["openvino-int8-weights"] is None
    assert shares[OURS_BEST] == pytest.approx(8e9 / 0.01 / 16e11)
    no_bf16 = timed("openvino-bf16", 30.0, 30.0)
    assert share_of_peak(found, result(), no_bf16) is None


def test_tables_and_json_have_everything():
    found = report(result(), result("detector"))
    file = io.StringIO()
    console = Console(file=file, width=100)
    for table in tables(found):
        console.print(table)
    console.print(caption(found))
    text = file.getvalue()
    for part in ("resnet50: 8.00 GFLOP", "native int8", "OpenVINO int8 weights", "2.00", "50%"):
        assert part in text
    assert "geometric mean" in text
    assert "…" not in text  # nothing is cut at 100 columns
    content = json.loads(json.dumps(as_json(found)))
    (first, second) = content["models"]
    assert first["bars"]["best"] == {
        **{"peer": "openvino-int8", "ratio": pytest.approx(2.0), "at_least": 1.0},
        "ratio_of_best_turns": pytest.approx(2.0),
        **{"is_accurate": True, "holds": True},
    }
    assert second["bars"]["best"]["at_least"] == 1.5
    assert first["contenders"][1]["title"] == "ONNX Runtime fp32"
    assert content["geometric_means"]["best"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InferSpec(models=("resnet51",)), "the model is 'resnet51'; allowed: resnet50"),
        (lambda: InferSpec(models=("os:getcwd",)), "it has to be a ZooModel"),
        (lambda: InferSpec(models=("no.such:thing",)), "package.module:function"),
        (lambda: InferSpec(peers=("tensorrt",)), "the peer is 'tensorrt'; allowed: pytorch"),
        (lambda: InferSpec(threads=0), "threads is 0; allowed: 1 to"),
        (lambda: InferSpec(threads=10_000), "the cores of this process"),
        (lambda: InferSpec(rounds=0), "rounds is 0"),
        (lambda: InferSpec(seconds=0.0), "above 0"),
        (lambda: InferSpec(unseen=-1), "unseen -1"),
    ],
)
def test_what_is_not_allowed_is_refused(make: Callable[[], InferSpec], message: str):
    with pytest.raises(UsageError, match=r"allowed|has to be|write") as refused:
        make()
    assert message in str(refused.value)


def test_named_peers_take_part_and_ours_always_do():
    assert [each.name for each in chosen(["inductor", "ort"])] == [
        *("inductor", "ort"),
        *(OURS_FP32, OURS_BEST),
    ]
    assert "inductor" not in [each.name for each in chosen(None)]
    assert [each.name for each in chosen([])] == [OURS_FP32, OURS_BEST]


def test_who_cannot_take_part_is_told_why():
    assert "documented for" in obstacle(CONTENDERS["ort-int8-dynamic"], "resnet50")
    assert obstacle(CONTENDERS["ort-int8-dynamic"], "bert_base") == ""
    assert obstacle(CONTENDERS[OURS_BEST], "resnet50") == ""


def test_the_folder_of_the_zoo_is_the_same_each_time():
    assert folder_name("resnet50") == folder_name("resnet50")
    assert folder_name("resnet50") != folder_name("resnet26d")
    assert folder_name("resnet50").startswith("resnet50-")


def test_samples_are_read_as_they_were_written(tmp_path: Path):
    samples = [
        {"ids": np.arange(3, dtype=np.int64), "mask": np.ones((1, 2), np.float32) * number}
        for number in range(12)
    ]
    write_samples(tmp_path / "samples.npz", samples)
    again = read_samples(tmp_path / "samples.npz")
    assert len(again) == 12
    for one, other in zip(samples, again, strict=True):
        assert one.keys() == other.keys()
        assert all((one[name] == other[name]).all() for name in one)
        assert one["ids"].dtype == other["ids"].dtype


def test_signal_to_noise_is_over_all_samples_and_of_the_worst_output():
    right = [{"a": np.full(4, 10.0), "b": np.full(4, 10.0)}] * 2
    found = [{"a": np.full(4, 10.0), "b": np.full(4, 11.0)}] * 2
    assert signal_to_noise(found, right) == pytest.approx(20.0)


def test_a_turn_has_one_call_that_counts_at_least():
    calls: list[int] = []

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        calls.append(1)
        return inputs

    assert len(turn(run, {}, 0.0)) == 1
    assert len(calls) == 2


def test_quartiles_of_few_calls():
    assert timed("ort", 10.0, 1.0).quartiles == pytest.approx((9.5 * MS, 10.5 * MS))
    one = InferTiming(
        contender="ort",
        turns=((0.5,),),
        snr_db=1.0,
        prepare_seconds=0.0,
        load_seconds=0.0,
        peak_bytes=0,
    )
    assert one.quartiles == (0.5, 0.5)
    assert one.median == one.best == 0.5
    assert not one.was_disturbed
    assert timed("ort", 10.0, 1.0).best == pytest.approx(9 * MS)


def test_a_job_goes_through_text():
    job = InferJob(model="resnet50", folder="/tmp", file="model.onnx", snr_db=1.5)
    assert InferJob.from_text(job.as_text()) == job


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_peak_of_memory_is_more_than_an_interpreter():
    assert 10_000_000 < peak_bytes() < 10**12


def test_cores_are_the_last_ones_that_may_be_used():
    allowed = sorted(os.sched_getaffinity(0))
    assert cores_of(1) == {allowed[-1]}
    assert cores_of(len(allowed)) == set(allowed)


def test_a_process_that_fails_says_its_last_lines():
    job = InferJob(model="resnet50", folder="/nowhere", contender="ort")
    with pytest.raises(ProcessError, match="No such file"):
        run_to_end("infer.process", job.as_text(), cores_of(1))
    assert os.sched_getaffinity(0)  # as it was


def test_the_peak_is_measured_in_what_the_processor_multiplies():
    found = peaks(1)
    assert "fp32" in found
    assert all(rate > 0 for rate in found.values())


def test_calls_of_very_different_times_say_that_something_else_ran():
    calm, disturbed = timed("ort", 10.0, 1.0), timed("ort", 10.0, 1.0)
    disturbed = dataclasses.replace(disturbed, turns=((0.01,) * 5, (0.02,) * 5))
    assert not calm.was_disturbed
    assert disturbed.was_disturbed
    assert disturbed.best == 0.01
