"""Measurements of collectives: arithmetic, samples, tables, promises and the command."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli import usage_error
from rich.console import Console

from slipstream.bench.comm import bars as comm_bars
from slipstream.bench.comm import limits as comm_limits
from slipstream.bench.comm import table as comm_table
from slipstream.bench.comm.job import (
    CommJob,
    CommSamples,
    calls_in_a_row,
    read_samples,
    write_samples,
)
from slipstream.bench.comm.measure import CommReport, CommRow, CommSpec, measure
from slipstream.errors import UsageError
from slipstream.lab import LabSpec

COMMAND = str(Path(sys.executable).with_name("slipstream"))
MB = 1_000_000


def samples(contender: str, *seconds: float, size: int = 100 * MB) -> CommSamples:
    return CommSamples(
        collective="allreduce", size=size, contender=contender, calls=1, seconds=seconds
    )


@pytest.mark.parametrize(
    ("collective", "host", "uplink"),
    [
        ("allreduce", 1.5, 1.0),
        ("reduce_scatter", 0.75, 0.5),
        ("all_gather", 0.75, 0.5),
        ("broadcast", 1.0, 1.0),
        # Of 8, 2 send an eighth to each of 6 on other hosts, 4 to each of 4 of the other rack.
        ("all_to_all", 12 / 8, 16 / 8),
    ],
)
def test_least_bytes_of_two_racks_of_two_hosts(collective: str, host: float, uplink: float) -> None:
    spec = LabSpec(hosts=4, ranks_per_host=2, racks=2, uplink="250mbit")
    assert comm_limits.host_bytes(spec, collective, 1.0) == pytest.approx(host)
    assert comm_limits.uplink_bytes(spec, collective, 1.0) == pytest.approx(uplink)


def test_the_limit_is_that_of_the_busiest_link() -> None:
    plain = comm_limits.limit_seconds(LabSpec(), "allreduce", 100 * MB)
    assert plain == pytest.approx(1.5 * 0.8 / 0.956)
    half = comm_limits.limit_seconds(LabSpec(), "allreduce", 100 * MB, "bf16")
    assert half == pytest.approx(plain / 2)
    racks = LabSpec(racks=2, uplink="250mbit")
    assert comm_limits.limit_seconds(racks, "allreduce", 100 * MB) == pytest.approx(0.8 * 4 / 0.956)
    slow = LabSpec(rates=("1gbit", "1gbit", "1gbit", "100mbit"))
    assert comm_limits.limit_seconds(slow, "allreduce", 100 * MB) == pytest.approx(plain * 10)


def test_flows_that_fill_no_link_are_the_limit() -> None:
    unequal = LabSpec(flow_rates=("250mbit", "250mbit", "250mbit", "62.5mbit"))
    assert comm_limits.host_bits_per_second(unequal) == 812_500_000
    assert comm_limits.host_bits_per_second(LabSpec(flow_rate="250mbit")) == 1_000_000_000


def test_bus_bandwidth_is_that_of_a_link() -> None:
    row = CommRow(samples=samples("gloo", 2.0, 1.5, 1.0), limit_seconds=1.2)
    assert row.bus_bandwidth(4) == pytest.approx(100 * MB)
    assert row.limit_share == pytest.approx(0.8)


def test_a_round_has_as_many_calls_as_fit() -> None:
    assert calls_in_a_row(1.0) == 1
    assert calls_in_a_row(0.01) == 15
    assert calls_in_a_row(1e-6) == 5000


def test_jobs_and_samples_survive_json(tmp_path: Path) -> None:
    job = CommJob(
        collectives=("allreduce",),
        sizes=(4000,),
        contenders=("gloo",),
        rounds=2,
        warmup=0,
        folder=str(tmp_path),
        ping_ranks=(0, 2),
    )
    assert CommJob.from_text(job.as_text()) == job
    write_samples(job.output, [samples("gloo", 1.0, 2.0)])
    assert read_samples(job.output) == [samples("gloo", 1.0, 2.0)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"collectives": ("scan",)}, "collective is 'scan'; allowed: allreduce"),
        ({"codecs": ("fp8",)}, "codec is 'fp8'; allowed: none"),
        ({"codecs": ()}, "no codec is given; allowed: none"),
        ({"peers": ("horovod",)}, "peer is 'horovod'; allowed: gloo"),
        ({"rounds": 0}, "rounds is 0; allowed: at least 1"),
        ({"sizes": ()}, "sizes is empty; allowed: one or more sizes"),
        ({"local": 1}, "number of ranks is 1; allowed: at least 2"),
        ({"lab": LabSpec()}, "lab and local are both given"),
    ],
)
def test_a_measurement_that_cannot_be_is_a_wrong_call(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        CommSpec(**{"local": 2, **wrong})


def report(spec: CommSpec, *rows: CommRow) -> CommReport:
    return CommReport(spec=spec, rows=rows, missing={})


def shown(result: CommReport) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        for table in comm_table.tables(result):
            console.print(table)
    return captured.get()


def test_a_table_has_times_shares_ratios_and_bytes_within_100_columns() -> None:
    spec = CommSpec(lab=LabSpec(ranks_per_host=2, racks=2, uplink="250mbit"), sizes=(100 * MB,))
    counted = {"least_host_bytes": 150e6, "least_uplink_bytes": 100e6}
    counted |= {"host_bytes": 151 * MB, "uplink_bytes": 175 * MB}
    text = shown(
        report(
            spec,
            CommRow(samples=samples("gloo", 10.0), limit_seconds=3.35, **counted),
            CommRow(samples=samples("slipstream int8+feedback", 4.0), limit_seconds=2.0, **counted),
            CommRow(samples=samples("tcp ping-pong", 50e-6)),
        )
    )
    assert all(len(line) <= 100 for line in text.splitlines())
    (ours,) = [line for line in text.splitlines() if "slipstream int8+ef" in line]
    assert " ".join(ours.split()[2:]) == "4 s 0.0437 0.500 2.50x 151 MB 1.007 175 MB 1.750"
    assert "4 lab hosts of 2 at 1gbit, 2 racks at 250mbit" in text
    (ping,) = [line for line in text.splitlines() if "tcp ping-pong" in line]
    assert ping.split()[-2:] == ["25", "us"]


def test_on_one_machine_the_limit_is_the_loop() -> None:
    text = shown(
        report(
            CommSpec(local=2, sizes=(100 * MB,)),
            CommRow(samples=samples("slipstream", 0.02)),
            CommRow(samples=samples("copy and add", 0.012)),
        )
    )
    (ours,) = [line for line in text.splitlines() if " 20 ms " in line]
    assert ours.split()[-1] == "0.600"


def test_promises_are_met_or_not() -> None:
    case = comm_bars.cases()[1]
    assert case.spec.lab == LabSpec(flow_rate="250mbit")
    for seconds, verdict in ((2.0, "met"), (5.0, "not met")):
        measured = report(
            case.spec,
            CommRow(samples=samples("gloo", 10.0)),
            CommRow(samples=samples("slipstream", seconds)),
        )
        console = Console(width=100)
        with console.capture() as captured:
            console.print(comm_bars.bars_table([comm_bars.Outcome(case=case, report=measured)]))
        (line,) = [line for line in captured.get().splitlines() if "at least 3.6" in line]
        assert line.replace("│", " ").split()[-len(verdict.split()) :] == verdict.split()


def test_every_promise_finds_what_it_compares() -> None:
    for case in comm_bars.cases():
        spec = case.spec
        names = ["slipstream", "gloo", "slipstream ring", "copy and add"]
        names += [f"slipstream {codec}" for codec in spec.codecs]
        rows = [
            CommRow(samples=samples(name, 1.0, size=size), limit_seconds=1.0, least_host_bytes=1.0)
            for name in names
            for size in spec.sizes
        ]
        for bar in case.bars:
            assert 0 <= bar.measured(report(spec, *rows)) <= 1
        assert (spec.lab is None) == bool(spec.local)


def test_a_case_that_fails_is_shown_as_failed() -> None:
    case = comm_bars.cases()[2]
    outcome = comm_bars.Outcome(case=case, report=None, error="rank 0 failed")
    (fields,) = comm_bars.bars_as_json([outcome])
    assert fields["error"] == "rank 0 failed"
    assert [bar["is_met"] for bar in fields["bars"]] == [False]


@pytest.mark.slow("bench of communication")
@pytest.mark.multiprocess
def test_all_collectives_are_measured_on_this_machine() -> None:
    """The result of each contender is compared with the right one before it is timed."""
    spec = CommSpec(
        collectives=comm_limits.COLLECTIVES,
        sizes=(20, 1_000_000),
        local=2,
        codecs=("none", "int8+feedback"),
        peers=("gloo",),
        rounds=1,
        warmup=0,
    )
    notes: list[str] = []
    result = measure(spec, notes.append)
    assert "broadcast of 20 bytes" in notes
    for collective in comm_limits.COLLECTIVES:
        for contender in ("gloo", "slipstream"):
            row = result.row(contender, 1_000_000, collective)
            assert row.samples.median > 0
            assert row.limit_share is None
    assert result.row("slipstream int8+feedback", 20).samples.calls > 1
    assert result.row("copy and add", 1_000_000).samples.median > 0
    with pytest.raises(KeyError):
        result.row("slipstream int8+feedback", 20, "broadcast")


@pytest.mark.slow("bench of communication")
@pytest.mark.multiprocess
@pytest.mark.launcher("mpirun")
def test_the_command_prints_a_table_and_writes_all_samples(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "comm.json"
    options = ["--local", "2", "--sizes", "4k", "--rounds", "3", "-o", str(file)]
    done = subprocess.run(
        [COMMAND, "bench", "comm", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "allreduce of float32, 2 ranks of this machine" in done.stdout
    fields = json.loads(file.read_text())
    found = {row["contender"]: row for row in fields["rows"]}
    assert set(found) == {"gloo", "slipstream", "mpi"}
    for row in found.values():
        assert len(row["seconds"]) == 3
    assert fields["machine"]["cores"] > 0
    assert fields["versions"]["torch"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--peers", "none,gloo"], "allowed: names separated by commas, or none"),
        (["--sizes", "much"], "the size is 'much'"),
        (["--racks", "2"], "give uplink if, and only if"),
    ],
)
def test_wrong_options_are_explained(options: list[str], said: str) -> None:
    assert said in usage_error("bench", "comm", *options)


def test_the_99th_percentile_leaves_out_one_of_a_hundred() -> None:
    seconds = tuple(float(i) for i in range(1, 101))
    measured = CommSamples(
        collective="allreduce", size=4, contender="gloo", calls=1, seconds=seconds
    )
    assert measured.p99 == 99.0
    assert dataclasses.replace(measured, seconds=(3.0, 1.0, 2.0)).p99 == 3.0


def test_cross_traffic_needs_hosts_and_a_rate() -> None:
    with pytest.raises(UsageError, match="at least two hosts"):
        CommSpec(local=2, cross_traffic="100mbit")
    with pytest.raises(UsageError, match="cross_traffic is '1'"):
        CommSpec(lab=LabSpec(), cross_traffic="1")
