"""Calibration: lines through timed all-reduces, the file that is written, and who reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.bench.forecast.calibrate import fit_noisy
from slipstream.errors import ConfigError, UsageError
from slipstream.forecast.calibrate import comm, file
from slipstream.forecast.calibrate.line import LinkSpeed, TimedAllReduce, fit
from slipstream.forecast.calibrate.measured import CalibratedDevice, Calibration
from slipstream.forecast.calibrate.products import ProductPeak, TimedProduct, peak, share
from slipstream.forecast.hardware import load
from slipstream.forecast.search import machines
from slipstream.forecast.simulate import parameters
from slipstream.forecast.simulate.compute import Rates, Runtime, Work
from slipstream.forecast.simulate.network import Dimension, WireRates, all_reduce, dimensions
from slipstream.forecast.work.workload import Operator, OperatorKind, Product, TrainingPhase

SIZES = (4e3, 64e3, 1e6, 16e6, 100e6)
WIRE = WireRates(inside=1.0, between=1.0, launch_us=0.0, ramp_us=0.0)
DEVICE = CalibratedDevice(
    kind="cpu",
    title='a "quick" one',
    memory_gib=16.0,
    processors=4,
    cache_mib=8.0,
    tflops={"float32": 0.25, "bfloat16": 0.5},
    half_sum=90.0,
    vector_half_sum=40.0,
    windows={"float32": 0.8, "bfloat16": 0.6},
    winograd=2.0,
    depthwise=0.1,
    memory_gb_per_s=20.0,
    gather=0.7,
    batch_norms={"float32": 0.8, "bfloat16": 0.5},
    forward_us=8.0,
    backward_us=12.0,
    update_us=6.0,
)


def _samples(ranks: int, latency: float, rate: float) -> list[TimedAllReduce]:
    group = (Dimension(ranks, rate, latency),)
    return [TimedAllReduce(ranks, size, all_reduce(size, group, WIRE)) for size in SIZES]


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(("latency", "rate"), [(30e-6, 1.2e9), (1e-3, 1e8), (2e-6, 50e9)])
def test_a_line_through_what_the_forecast_says_is_the_one_it_was_made_of(
    ranks: int, latency: float, rate: float
) -> None:
    line = fit(_samples(ranks, latency, rate))
    assert line.latency == pytest.approx(latency, rel=1e-6)
    assert line.rate == pytest.approx(rate, rel=1e-6)


def test_errors_of_small_ones_count_like_those_of_large_ones() -> None:
    exact = _samples(4, 50e-6, 1e9)
    off = [
        TimedAllReduce(each.ranks, each.num_bytes, each.seconds * factor)
        for each, factor in zip(exact, (1.05, 0.95, 1.05, 0.95, 1.0), strict=True)
    ]
    line = fit(off)
    assert line.latency == pytest.approx(50e-6, rel=0.06)
    assert line.rate == pytest.approx(1e9, rel=0.06)


def test_no_latency_is_below_zero() -> None:
    line = fit([TimedAllReduce(2, 1e6, 0.5e-3), TimedAllReduce(2, 1e8, 0.1)])
    assert line.latency == 0
    assert 1e9 < line.rate < 2e9


@pytest.mark.parametrize("small", [0.006, 0.0075, 0.00765, 0.012])
def test_a_small_allreduce_that_was_slow_once_leaves_a_line(small: float) -> None:
    """Two rounds of it would have taken more time than the six steps of the large one leave."""
    line = fit([TimedAllReduce(4, 250e3, small), TimedAllReduce(4, 16e6, 0.0226)])
    assert 0.4e9 < line.rate < 4e9
    assert 0 < line.latency < small


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "none bytes were timed; time at least two"),
        (
            [TimedAllReduce(2, 1e6, 1.0), TimedAllReduce(2, 1e6, 2.0)],
            "1,000,000 bytes were timed; time at least two",
        ),
        (
            [TimedAllReduce(2, 1e3, 2.0), TimedAllReduce(2, 1e6, 1.0)],
            "took no longer than small ones",
        ),
    ],
)
def test_what_makes_no_line_is_a_wrong_call(samples: list[TimedAllReduce], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit(samples)


def test_samples_that_make_no_line_are_measured_again() -> None:
    held_up = [TimedAllReduce(2, 64_000, 9e-4), TimedAllReduce(2, 1_000_000, 2e-4)]
    calm = [TimedAllReduce(2, 64_000, 5e-5), TimedAllReduce(2, 1_000_000, 2e-4)]
    turns = iter([held_up, calm, calm, calm])
    line = fit_noisy(lambda: next(turns))
    assert 1e9 < line.rate < 2e10
    with pytest.raises(UsageError, match="took no longer"):
        fit_noisy(lambda: held_up)


def test_peaks_are_those_that_the_forecast_turns_into_the_times_measured() -> None:
    device = (
        load().device("A100").model_copy(update={"tflops": {"float32": 1.0, "bfloat16": 200.0}})
    )
    rates = Rates(matrix=1.0, matrix_windows=0.5, half_sum=90.0, memory=1e9, gap_us=0.0)

    def timed(m: int, n: int, k: int, kind: OperatorKind = OperatorKind.PRODUCT) -> TimedProduct:
        operator = Operator(
            name="mm", module="", phase=TrainingPhase.FORWARD, kind=kind,
            products=(Product(1, m, n, k),),
            reads=(), writes=(), bytes_moved=1.0, dtype="bfloat16",
        )  # fmt: skip
        seconds, _ = Work.of([operator]).seconds(device, rates, Runtime(), "fp32")
        return TimedProduct(m, n, k, float(seconds[0]))

    found = peak(timed(8192, 8192, 128), timed(8192, 8192, 1024))
    assert found.flops_per_second == pytest.approx(200e12)
    assert found.half_sum == pytest.approx(90)
    window = timed(50176, 256, 256, OperatorKind.CONVOLUTION)
    assert share(window, found) == pytest.approx(0.5)
    assert share(TimedProduct(8192, 8192, 1024, 1e-9), found) == 1


def test_a_longer_sum_takes_longer() -> None:
    with pytest.raises(UsageError, match="length 1024 took no longer than one of 128, so other"):
        peak(TimedProduct(512, 512, 128, 1.0), TimedProduct(512, 512, 1024, 1.0))
    # A convolution with the same FLOP rate has too many tiles to leave processors idle.
    assert peak(TimedProduct(1, 1, 1, 2.0), TimedProduct(1, 1, 2, 5.0)) == ProductPeak(0.8, 0.0)


def _calibration(**links: LinkSpeed) -> Calibration:
    return Calibration(name="node", day="2026-11-24", device=DEVICE, **links)


def test_the_file_is_read_back_as_any_other(tmp_path: Path) -> None:
    path = tmp_path / "new" / "node.toml"
    ranks, hosts = LinkSpeed(20e-6, 5e9), LinkSpeed(100e-6, 0.117e9)
    file.write(_calibration(ranks=ranks, hosts=hosts), path)
    hardware = load(path)
    device = hardware.device("node")
    assert device.tflops == {"float32": 0.25, "bfloat16": 0.5}
    assert (device.kind, device.processors, device.memory_gb_per_s) == ("cpu", 4, 20.0)
    assert device.source == 'measured 2026-11-24: a "quick" one'
    assert hardware.device("A100").tflops["bfloat16"] == 312
    fitted = parameters.load(over=path)
    network = machines.network(hardware, "node-network")
    cluster = machines.own(hardware, "node", 2, network).cluster
    inner, outer = dimensions(cluster, fitted.wire, 8)
    assert (inner.size, inner.rate, inner.latency) == pytest.approx((2, 5e9, 20e-6))
    # Both ranks of a host share its link.
    assert (outer.size, outer.rate, outer.latency) == pytest.approx((4, 0.0585e9, 100e-6))


def test_what_was_measured_takes_the_place_of_what_was_fitted_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "node.toml"
    file.write(_calibration(), path)
    usual, found = parameters.load(), parameters.load(over=path)
    assert found.wire == usual.wire  # no link was measured
    assert found.rates.vector == found.rates.memory == 1
    assert (found.rates.half_sum, found.rates.winograd, found.rates.gather) == (90.0, 2.0, 0.7)
    runtime = found.runtime("pytorch2")
    assert (runtime.forward_us, runtime.backward_us) == (8.0, 12.0)
    assert (runtime.step_ms, runtime.update_us) == (0.0, 6.0)
    assert (runtime.batch_norm, runtime.half_batch_norm) == (1.25, 2.0)
    assert found.rates.vector_half_sum == 40.0
    assert found.rates.gap_us == 10.0  # a processor's: what issues operators
    assert runtime.spread == pytest.approx(usual.runtime("pytorch2").spread)
    assert found.runtime("megatron") == usual.runtime("megatron")


def test_a_gpu_has_a_gap_and_a_context_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    device = replace(DEVICE, kind="gpu", gap_us=2.0, context_mib=842.0, host_gb_per_s=50.0)
    file.write(replace(_calibration(), device=device), path)
    assert parameters.load(over=path).rates.gap_us == 2.0
    assert load(path).device("node").context_mib == 842
    # A device without bfloat16 takes its shares from float16.
    older = replace(
        device,
        tflops={"float32": 8.0, "float16": 65.0},
        windows={"float32": 0.8, "float16": 0.7},
        batch_norms={"float32": 0.8, "float16": 0.4},
    )
    file.write(replace(_calibration(), device=older), path)
    found = parameters.load(over=path)
    assert (found.rates.matrix_windows, found.runtime("pytorch2").half_batch_norm) == (0.7, 2.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rates]\nmatrices = 1.0", "rates has 'matrices'; allowed: matrix"),
        ("[wire]\nbetween = 'all'", "cannot be read as calibrated parameters"),
        ("[runtimes.pytorch2]\nforward = 1", "runtimes.pytorch2 has 'forward'"),
    ],
)
def test_a_name_or_value_that_is_not_known_is_a_wrong_file(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        parameters.load(over=path)


def _comm(**changed: Any) -> dict[str, Any]:
    lab = {"hosts": 4, "ranks_per_host": 1, "rate": "1gbit"}
    rows = [
        {"collective": what, "contender": who, "size": size, "median_seconds": size / 1e8}
        for what in ("broadcast", "allreduce")
        for who in ("gloo", "slipstream", "slipstream int8")
        for size in (1000, 2000)
    ]
    return {"spec": {"lab": lab, "local": 0}, "rows": rows, **changed}


def test_all_reduces_of_the_engine_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "comm.json"
    path.write_text(json.dumps(_comm()))
    found = comm.read(path)
    assert (found.contender, found.is_network) == ("slipstream", True)
    assert found.samples == (TimedAllReduce(4, 1000.0, 1e-5), TimedAllReduce(4, 2000.0, 2e-5))
    path.write_text(json.dumps(_comm(spec={"lab": None, "local": 2})))
    found = comm.read(path)
    assert not found.is_network
    assert {sample.ranks for sample in found.samples} == {2}


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"rows": []}, UsageError, "no allreduce of nccl, slipstream, gloo"),
        ({"rows": 1}, ConfigError, "cannot be read as output of slipstream bench comm"),
        (
            {"spec": {"lab": {"hosts": 2, "ranks_per_host": 2}, "local": 0}},
            UsageError,
            "2 ranks on each of 2 hosts",
        ),
    ],
)
def test_a_file_of_something_else_says_so(
    tmp_path: Path, changed: dict[str, Any], kind: type[Exception], message: str
) -> None:
    path = tmp_path / "comm.json"
    path.write_text(json.dumps(_comm(**changed)))
    with pytest.raises(kind, match=message):
        comm.read(path)


@pytest.mark.parametrize(
    ("spec", "ranks", "is_network"),
    [
        ({"lab": {"hosts": 1, "ranks_per_host": 4}, "local": 0}, 4, False),
        ({"lab": {"hosts": 2, "ranks_per_host": 1}, "local": 0}, 2, True),
        ({"lab": None, "local": 3}, 3, False),
    ],
)
def test_ranks_of_one_host_measure_no_network(
    spec: dict[str, Any], ranks: int, is_network: bool
) -> None:
    found = comm.timed(_comm(spec=spec), "it")
    assert found.is_network == is_network
    # Broadcasts, and all-reduces with codecs, are different lines of the file.
    assert found.samples == (
        TimedAllReduce(ranks, 1000.0, 1e-5),
        TimedAllReduce(ranks, 2000.0, 2e-5),
    )


@pytest.mark.parametrize(
    ("who", "first"),
    [
        (("gloo", "slipstream", "nccl"), "nccl"),
        (("gloo", "slipstream"), "slipstream"),
        (("gloo",), "gloo"),
    ],
)
def test_the_first_that_was_measured_counts(who: tuple[str, ...], first: str) -> None:
    rows = [
        {"collective": "allreduce", "contender": each, "size": 8, "median_seconds": 1.0}
        for each in who
    ]
    assert comm.timed(_comm(rows=rows), "it").contender == first


@pytest.mark.parametrize("name", ["size", "median_seconds"])
def test_sizes_and_seconds_are_above_0(name: str) -> None:
    row = {"collective": "allreduce", "contender": "nccl", "size": 8, "median_seconds": 1.0}
    with pytest.raises(ValueError, match=name):
        comm.timed(_comm(rows=[row | {name: 0}]), "it")


def test_what_was_measured_is_all_that_software_reaches(tmp_path: Path) -> None:
    path = tmp_path / "some" / "folders" / "node.toml"
    named = replace(DEVICE, title="Prüfstand", host_gb_per_s=None)
    ranks = LinkSpeed(0.0, 5e9)
    file.write(replace(_calibration(ranks=ranks), device=named), path)
    fitted, hardware = parameters.load(over=path), load(path)
    assert (fitted.wire.launch_us, fitted.wire.ramp_us, fitted.wire.inside) == (0, 0, 1)
    assert fitted.wire.between == parameters.load().wire.between  # no network was measured
    runtime = fitted.runtime("pytorch2")
    assert (runtime.memory, runtime.compute) == (1, 1)
    rates = fitted.rates
    assert (rates.matrix, rates.tf32, rates.vector, rates.memory) == (1, 1, 1, 1)
    assert (rates.vector_windows, rates.matrix_windows, rates.depthwise) == (0.8, 0.6, 0.1)
    # A processor uses the host's memory itself, and no latency is 0.
    host, device = hardware.link("node-host"), hardware.link("node-ranks")
    assert (host.kind, host.gbyte_per_s, host.latency_us) == ("host", 20.0, 1.0)
    assert (device.kind, device.gbyte_per_s, device.latency_us) == ("device", 5.0, 1e-3)
    found = hardware.device("node")
    assert (found.year, found.cache_mib, found.memory_gib) == (2026, 8.0, 16.0)
    assert (found.device_link, found.host_link) == ("node-ranks", "node-host")
    assert found.source == "measured 2026-11-24: Prüfstand"
    assert "Prüfstand" in path.read_text(encoding="utf-8")
    assert "--own 1xnode --hardware node.toml" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "dtype", "tflops"), [("gpu", "bfloat16", 60.0), ("gpu", "bfloat16", 15.0),
                                  ("cpu", "float32", 60.0)],
)  # fmt: skip
def test_convolutions_of_one_channel_take_as_long_as_they_were_timed(
    tmp_path: Path, kind: Any, dtype: str, tflops: float
) -> None:
    timed = replace(DEVICE, kind=kind, processors=100, tflops={"float32": tflops, "bfloat16": 900})
    file.write(replace(_calibration(), device=timed), tmp_path / "node.toml")
    found, device = parameters.load(over=tmp_path / "node.toml"), load(tmp_path / "node.toml")
    narrow = Operator(
        name="op", module="", phase=TrainingPhase.FORWARD, kind=OperatorKind.DEPTHWISE,
        reads=(), writes=(), products=(Product(256, 1 << 16, 1, 9),), bytes_moved=0.0, dtype=dtype,
    )  # fmt: skip
    rates = replace(found.rates, gap_us=0.0)
    runtime = found.runtime("pytorch2")
    seconds, _ = Work.of([narrow]).seconds(device.device("node"), rates, runtime, "fp32")
    # This is a tenth of the float32 rate of `DEVICE`.
    assert seconds[0] == pytest.approx(2 * 256 * (1 << 16) * 9 / (0.1 * tflops * 1e12), rel=1e-3)


def test_a_machine_without_timed_links_has_its_hosts(tmp_path: Path) -> None:
    file.write(_calibration(), tmp_path / "node.toml")
    hardware = load(tmp_path / "node.toml")
    assert hardware.device("node").device_link == "node-host"
    assert {name for name in hardware.links if name.startswith("node")} == {"node-host"}


def test_what_makes_no_data_file_is_said_when_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="memory_gib is 0: "):
        file.write(
            replace(_calibration(), device=replace(DEVICE, memory_gib=0.0)), tmp_path / "a.toml"
        )
    with pytest.raises(ConfigError, match="cannot be read as calibrated parameters"):
        file.write(
            replace(_calibration(), device=replace(DEVICE, gather="fast")), tmp_path / "b.toml"
        )


def test_a_product_that_is_as_slow_as_a_plain_one_has_all_of_its_rate() -> None:
    reached = ProductPeak(1e12, 100.0)
    plain = TimedProduct(100, 100, 100, 2 * 2e6 / 1e12)
    assert share(plain, reached) == pytest.approx(1)
    assert share(replace(plain, seconds=2 * plain.seconds), reached) == pytest.approx(0.5)
    # Twice the sum takes 1.5 times as long, so a sum of 1 reaches half of the rate.
    found = peak(TimedProduct(1, 1, 1, 2.0), TimedProduct(1, 1, 2, 3.0))
    assert (found.flops_per_second, found.half_sum) == (2.0, 1.0)
