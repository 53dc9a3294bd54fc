"""Forecasts of replays: buckets, a step by hand, the table, and a short judgement in a lab."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from slipstream.bench.forecast.lab import LabNumbers, Wires
from slipstream.bench.forecast.measure import ForecastReport, ForecastRow, ForecastSpec
from slipstream.bench.forecast.step import Hosts, StepBucket, buckets, forecast_step
from slipstream.bench.forecast.table import table
from slipstream.bench.limits import GOODPUT
from slipstream.bench.models import ModelLayer, Parameter, ReplayModel, model
from slipstream.bench.replay.job import ReplaySamples
from slipstream.errors import UsageError
from slipstream.forecast.calibrate.line import LinkSpeed
from slipstream.forecast.hardware import Link
from slipstream.lab import LabSpec

COMMAND = str(Path(sys.executable).with_name("slipstream"))


def layer(name: str, elements: int) -> ModelLayer:
    return ModelLayer(
        name=name, parameters=(Parameter(name=f"{name}.w", shape=(elements,)),), flops=1
    )


# In backward order 2 MB, which are enough for the first bucket, and then 40 MB.
TWO_LAYERS = ReplayModel(
    name="two",
    layers=(layer("first", 10_000_000), layer("second", 500_000)),
    batch=1,
    sample="a number",
)


def hosts(count: int, rate: float) -> Hosts:
    link = Link(
        name="by hand", kind="network", gbyte_per_s=rate / 1e9, latency_us=1e5, source="by hand"
    )
    # 10.5 million numbers, of which 20 bytes each are read and written, take 0.1 s.
    return Hosts(count=count, per_host=1, between=link, inside=link, update_bytes_per_second=2.1e9)


def test_buckets_are_those_of_ddp() -> None:
    assert list(buckets(TWO_LAYERS.layers)) == [StepBucket(500_000, 1), StepBucket(10_000_000, 0)]
    resnet = list(buckets(model("resnet50").layers))
    assert sum(bucket.num_elements for bucket in resnet) == 25_557_032
    # The classifier, in front of which there is more than a megabyte, then 25 MiB and what tops it.
    assert resnet[0].num_elements == 2_049_000 - 1000
    assert all(25 << 20 <= bucket.num_elements * 4 < 35 << 20 for bucket in resnet[1:-1])


@pytest.mark.parametrize(
    ("count", "rate", "seconds"),
    [
        # 6 s of compute, then 0.1 s + 40 MB, then the update; the first bucket went meanwhile.
        (2, 1e9, 6 + 0.1 + 0.04 + 0.1),
        # The link is busy from the first bucket on, after 1 + 1 + 2 s.
        (2, 1e6, 4 + 0.1 + 2 + 0.1 + 40 + 0.1),
        # Two rounds in which everything is sent, or six in which a quarter is: the latter here.
        (4, 1e6, 4 + (0.6 + 3) + (0.6 + 60) + 0.1),
    ],
)
def test_a_step_is_as_computed_by_hand(count: int, rate: float, seconds: float) -> None:
    step = forecast_step(TWO_LAYERS, 6.0, hosts(count, rate))
    assert step.seconds == pytest.approx(seconds)
    assert step.compute == pytest.approx(6)
    assert step.optimizer == pytest.approx(0.1)


def test_links_and_processors_limit_each_other() -> None:
    wires = Wires(share=0.8, latency=1e-4, processed=300e6)
    assert wires.link(1e6, 2).gbyte_per_s == pytest.approx(1e-4, rel=1e-3)
    assert wires.link(1e12, 3).gbyte_per_s == pytest.approx(0.1, rel=1e-3)
    assert wires.link(1e9, 3).gbyte_per_s == pytest.approx(0.1 / 2**0.5)


def numbers() -> LabNumbers:
    wires = Wires(share=0.9, latency=1e-4, processed=3e9)
    return LabNumbers(wires={"gloo": wires, "slipstream": wires}, updated=8e9)


def test_all_ranks_share_the_processors_when_they_update() -> None:
    found = numbers().hosts("gloo", LabSpec(hosts=4, rate="1gbit"))
    assert (found.count, found.update_bytes_per_second) == (4, 2e9)


def test_ranks_of_a_host_share_what_it_moves() -> None:
    several = replace(numbers(), inside=LinkSpeed(latency=1e-5, rate=8e9))
    spec = ForecastSpec(hosts=(4,), ranks=4, backends=("slipstream",))
    (lab, *_) = spec.labs()
    found = several.hosts("slipstream", lab)
    assert (found.count, found.per_host, found.update_bytes_per_second) == (4, 4, 5e8)
    assert found.inside.gbyte_per_s == pytest.approx(0.5)
    assert found.between == several.wires["slipstream"].link(500e6, 4)


def test_compute_is_as_slow_as_asked() -> None:
    usual, slow = ForecastSpec(), ForecastSpec(slower=60.0)
    assert usual.compute_seconds(model("resnet50")) == pytest.approx(30 * 0.055)
    assert slow.compute_seconds(model("resnet50")) == pytest.approx(60 * 0.055)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hosts": (1,)}, "hosts is 1; allowed: at least 2"),
        ({"hosts": ()}, "hosts is 0"),
        ({"warmup": 2}, "warmup is 2; allowed: at least 3"),
        ({"ranks": 0}, "ranks is 0; allowed: at least 1"),
        ({"ranks": 2}, "ranks is 2, but the backend gloo"),
        ({"slower": 0.0}, "slower is 0; allowed: numbers above 0"),
        ({"backends": ("mpi",)}, "backend is 'mpi'; allowed: gloo, slipstream"),
        ({"models": ("lenet",)}, "the model is 'lenet'; allowed: "),
        ({"rates": ("fast",)}, "fast"),
    ],
)
def test_what_cannot_be_judged_is_a_wrong_call(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ForecastSpec(**wrong)  # pyright: ignore[reportArgumentType]


def test_the_table_has_errors_and_their_mean() -> None:
    rows = tuple(
        ForecastRow(
            model="vgg16",
            backend="gloo",
            hosts=4,
            ranks=1,
            rate="1gbit",
            forecast=forecast,
            measured=ReplaySamples(seconds=(2.0, 1.0, 9.0)),
        )
        for forecast in (2.2, 1.9, 2.0, 2.4)
    )
    report = ForecastReport(spec=ForecastSpec(), numbers=numbers(), rows=rows)
    assert report.mean_error == pytest.approx((0.1 + 0.05 + 0 + 0.2) / 4)
    assert report.high_error == pytest.approx(0.2)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(report))
    text = captured.get()
    assert "Mean error 8.8%, 90th percentile 20.0%" in text
    assert "DDP over gloo: 8.8%" in text
    assert "4 x 1" in text
    lines = [line.split() for line in text.splitlines() if "vgg16" in line]
    assert lines[0][-3:] == ["2.000", "2.200", "+10.0%"]
    assert lines[1][-1] == "-5.0%"


@pytest.mark.netns
@pytest.mark.alone
@pytest.mark.multiprocess
@pytest.mark.slow("benchmark in a lab")
@pytest.mark.parametrize(
    "ranks", [1, pytest.param(2, marks=pytest.mark.slow("benchmark in a lab", represents=False))]
)
def test_a_small_model_is_forecast_and_measured(tmp_path: Path, ranks: int) -> None:
    path = tmp_path / "forecast.json"
    options = ["--num-hosts", "2", "--rates", "4gbit", "--steps", "1", "--backends", "slipstream"]
    options += ["--ranks-per-host", str(ranks), "--quick"]
    done = subprocess.run(
        [COMMAND, "bench", "forecast", "wide-deep", *options, "-o", str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Mean error" in done.stdout
    content = json.loads(path.read_text())
    assert 0.5 < content["numbers"]["wires"]["slipstream"]["share"] <= GOODPUT + 1e-6
    (row,) = content["rows"]
    assert (row["model"], row["backend"]) == ("wide-deep", "slipstream")
    assert (row["hosts"], row["ranks"]) == (2, ranks)
    assert (content["numbers"]["inside"] is None) == (ranks == 1)
    # Neither can be shorter than compute alone.
    compute = content["compute_seconds"]["wide-deep"]
    assert min(row["forecast_seconds"], row["median_seconds"]) >= compute
