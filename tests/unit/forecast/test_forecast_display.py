"""A forecast on a terminal and as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic")

import typer
from rich.console import Console
from run_kinds import KIND, SETUP

from slipstream.cli import app
from slipstream.cli.run_hosts import HostArguments, choose_hosts
from slipstream.forecast.hardware import load
from slipstream.forecast.memory import PeakMemory
from slipstream.forecast.observed.correction import Correction
from slipstream.forecast.report.as_json import as_json
from slipstream.forecast.report.terminal import (
    corrections,
    duration,
    gib,
    launch_command,
    losers,
    rounded,
    share,
    strategy_words,
    table,
)
from slipstream.forecast.search import machines
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.search.plan import Interval, Loss, Plan
from slipstream.forecast.search.search import Result
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.strategy import Agreement, Exchange, Strategy

HARDWARE = load()
STEP = SimulatedStep(
    seconds=0.123, compute=0.1, moved=0.06, tensor=0.0, bubble=0.0, exchange=0.02,
    optimizer=0.002, host=0.001, input=0.0, spans=(),
)  # fmt: skip
PEAK = PeakMemory(
    reserved=30 << 30, allocated=29 << 30, parameters=4 << 30, gradients=4 << 30, states=8 << 30,
    activations=13 << 30, workspace=0, communication=0, at="block.3 mm",
)  # fmt: skip
HYBRID = Strategy(
    data=8, tensor=4, pipeline=2, zero=1, checkpoint=True, micro_batch=4, micro_batches=16,
    codec="fp16",
)  # fmt: skip


def _around(value: float) -> Interval:
    return Interval(value, value * 0.8, value * 1.3)


def _rented(device: str) -> HostType:
    return next(machines.rented(HARDWARE, devices=(device,), clouds=("aws",)))


def _own() -> HostType:
    return machines.own(HARDWARE, "A100", 8)


def _plan(machine: HostType, step: float, **more: Any) -> Plan:
    given: dict[str, Any] = {
        "hosts": 1, "strategy": Strategy(data=8, micro_batch=32), "peak": PEAK,
        "seconds_per_epoch": None, "seconds": None, "dollars": None,
        "efficiency": Interval(0.934, 0.81, 0.99), "mfu": Interval(0.41, 0.36, 0.45),
        "memory": Interval(30 << 30, 27 << 30, 33 << 30),
        "limit": "memory bandwidth", "kind": KIND, "setup": SETUP,
    }  # fmt: skip
    return Plan(machine=machine, step=STEP, seconds_per_step=_around(step), **{**given, **more})


def _shown(what: Any, width: int = 100) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(what)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1234, ("0.12", "0.10-0.16")),
        (123.4, ("120", "100-160")),
        (950.0, ("950", "760-1,240")),
        (6213.0, ("6,200", "5,000-8,100")),
    ],
)
def test_numbers_have_the_digits_that_intervals_allow(value: float, shown: tuple[str, str]) -> None:
    assert rounded(_around(value)) == shown


def test_a_narrow_interval_shows_more_digits() -> None:
    assert rounded(Interval(123.456, 123.4, 123.5)) == ("123.46", "123.40-123.50")
    assert rounded(Interval(2.0, 2.0, 2.0)) == ("2.00", "2.00-2.00")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0004, "0.4 ms"), (0.123, "120 ms"), (1.0, "1.0 s"), (90.0, "90 s"), (600.0, "10 min"),
        (7200.0, "2.0 h"), (86400 * 10.0, "10 days"),
    ],
)  # fmt: skip
def test_durations_have_units_that_suit_them(seconds: float, shown: str) -> None:
    value, _ = duration(_around(seconds))
    assert value.split()[1] == shown.split()[1]
    assert float(value.split()[0]) == pytest.approx(float(shown.split()[0]), rel=0.05)


@pytest.mark.parametrize(("high", "tight"), [(39 << 30, False), (41 << 30, True)])
def test_plans_that_may_not_fit_say_so(high: int, *, tight: bool) -> None:
    memory = Interval(37 << 30, 33 << 30, high)
    result = Result(plans=(_plan(_rented("A100-40GB"), 0.1, memory=memory),), losses=())
    assert ("of 40, tight" in _shown(table(result, 5))) == tight


def test_strategies_are_words() -> None:
    words = ["data 8 x tensor 4 x pipeline 2", "ZeRO 1", "checkpoints", "codec fp16"]
    assert strategy_words(HYBRID) == words
    assert strategy_words(Strategy()) == ["one device"]


def test_the_widest_plan_fits_in_100_columns() -> None:
    machine = _rented("A100-40GB")
    plan = _plan(
        machine, 0.123, strategy=HYBRID, hosts=8, seconds_per_epoch=_around(620.0),
        seconds=_around(56_000.0), dollars=_around(2734.0),
    )  # fmt: skip
    text = _shown(table(Result((plan,), ())))
    assert max(map(len, text.splitlines())) <= 100
    for part in (
        "64 A100-40GB, fp32", "8 x aws p4d.24xlarge", "400 Gbit/s", "data 8 x tensor 4",
        "ZeRO 1, checkpoints,", "16 x micro-batch 4",
        "120 ms", "100-160", "10 min", "16 h", "$2,700", "30.0 GiB", "27-33", "of 40", "93%",
        "81-99%", "MFU 41%", "bandwidth",
    ):  # fmt: skip
        assert part in text, part


def test_columns_of_what_is_not_known_stay_away() -> None:
    text = _shown(table(Result((_plan(_own(), 0.1),), ())))
    heading = text.splitlines()[0].split()
    assert heading == ["hardware", "strategy", "step", "memory", "efficiency"]


def test_without_a_target_dollars_are_of_what_is_known() -> None:
    machine = _rented("A100-40GB")
    assert "/1k steps" in _shown(table(Result((_plan(machine, 0.1),), ())))
    epoch = _plan(machine, 0.1, seconds_per_epoch=_around(600.0))
    assert "/epoch" in _shown(table(Result((epoch,), ())))


def test_only_the_best_plans_are_in_the_table() -> None:
    result = Result(tuple(_plan(_own(), 0.1 * place) for place in range(1, 6)), ())
    assert _shown(table(result, 2)).count("A100-80GB") == 2
    shown = _shown(losers(result, 2)).strip()
    assert shown == "3 more plans that fit: all are slower than the first"


def test_dearer_plans_that_are_faster_are_counted() -> None:
    machine = _rented("A100-40GB")
    seconds = (0.2, 0.1, 0.3)
    result = Result(tuple(_plan(machine, each) for each in seconds), ())
    assert "1 of them faster than the first" in _shown(losers(result, 1))
    slower = Result(result.plans[1:], ())
    assert "1 more plan that fits: more expensive" in _shown(losers(slower, 1))


def test_corrections_are_said_for_each_device() -> None:
    used, outdated = Correction(1.166, 0.4, 2), Correction(outdated=1)
    plans = [
        _plan(_rented("A100-40GB"), 0.1, correction=used),
        _plan(_rented("T4"), 0.2, correction=outdated),
        _plan(_rented("V100"), 0.3),
    ]
    assert corrections(plans) == [
        "corrected by 2 earlier runs on A100-40GB: seconds x 1.17 (--no-observations: without)",
        "1 earlier run on T4 had forecasts with other parameters or tables, so nothing is"
        " corrected by them",
    ]


def test_losers_are_grouped_with_the_nearest_first() -> None:
    needs = [Loss(f"{n} x T4", f"does not fit: {n}.0 GiB, of 16") for n in (90, 17, 40, 30)]
    late = [Loss("1 x V100", "takes 9.0 h; the deadline is 6.0 h")]
    lines = _shown(losers(Result((), (*needs, *late)))).splitlines()
    assert [line.strip() for line in lines] == [
        "17 x T4: does not fit: 17.0 GiB, of 16",
        "30 x T4: does not fit: 30.0 GiB, of 16",
        "40 x T4: does not fit: 40.0 GiB, of 16",
        "and 1 more like these",
        "1 x V100: takes 9.0 h; the deadline is 6.0 h",
    ]


def test_json_has_everything() -> None:
    plan = _plan(_rented("A100-40GB"), 0.123, strategy=HYBRID, hosts=8)
    content = json.loads(json.dumps(as_json(Result((plan,), (Loss("a", "b"),)), "gpt2")))
    (found,) = content["plans"]
    assert found["machine"] == "aws p4d.24xlarge"
    assert found["network"]["name"] == "400 Gbit/s"
    assert found["offer"]["dollars_per_hour"] == pytest.approx(21.957642)
    assert found["strategy"]["zero"] == 1
    assert found["strategy"]["exchange"] == "all-reduce"
    assert found["seconds_per_step"]["low"] < 0.123 < found["seconds_per_step"]["high"]
    assert found["seconds"] is None
    assert found["step"]["exchange"] == pytest.approx(0.02)
    assert found["memory_bytes"]["activations"] == 13 << 30
    assert found["memory"] == {"value": 30 << 30, "low": 27 << 30, "high": 33 << 30}
    assert found["efficiency"] == {"value": 0.934, "low": 0.81, "high": 0.99}
    assert found["limit"] == "memory bandwidth"
    assert content["losses"] == [{"what": "a", "why": "b", "change": ""}]
    own = as_json(Result((_plan(_own(), 0.1),), ()), "gpt2")["plans"][0]
    assert own["network"] is None
    assert own["offer"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"context": 2}, ["context 2"]),
        ({"pipeline": 2, "virtual": 2}, ["pipeline 2", "2 interleaved stages"]),
        ({"tensor": 2, "sequence": True}, ["tensor 2", "sequence parallel"]),
        ({"data": 2, "expert": 2}, ["data 2", "experts over 2"]),
        (
            {"data": 2, "exchange": Exchange.PARAMETER_SERVER, "servers": 3},
            ["data 2", "parameter servers on 3 hosts"],
        ),
        (
            {"data": 2, "exchange": Exchange.PARAMETER_SERVER, "servers": 1},
            ["data 2", "parameter servers on 1 host"],
        ),
        (
            {"data": 2, "exchange": Exchange.PARAMETER_SERVER, "servers": 0},
            ["data 2", "parameter servers on all hosts"],
        ),
        (
            {"data": 2, "exchange": Exchange.LOCAL, "period": 16},
            ["data 2", "local SGD, 16 steps"],
        ),
        ({"data": 2, "across": True}, ["data 2", "exchange across steps"]),
        (
            {
                "layers": (
                    ("a", Agreement.SHARD), ("b", Agreement.FACTORS), ("c", Agreement.SHARD),
                ),
            },
            ["one device", "1 layer late multiply", "2 layers sharded"],
        ),
        ({"data": 2, "bucket_bytes": 4 << 20}, ["data 2", "buckets of 4 MiB"]),
    ],
)  # fmt: skip
def test_each_part_of_a_strategy_has_its_words(changes: dict[str, Any], words: list[str]) -> None:
    assert strategy_words(Strategy(**changes)) == words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.99, "990 ms"), (1.0, "1.0 s"), (119.0, "119 s"), (120.0, "2.0 min"),
        (7199.0, "120.0 min"), (7200.0, "2.0 h"), (259199.0, "72.0 h"), (259200.0, "3.0 days"),
    ],
)  # fmt: skip
def test_a_unit_is_used_from_so_many_of_it_on(seconds: float, shown: str) -> None:
    digits = shown.split()[0].partition(".")[2]
    width = 0.9 if digits else 9.0
    unit = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}[shown.split()[1]]
    around = Interval(seconds, seconds, seconds + width * unit)
    assert duration(around)[0] == shown


def test_gigabytes_have_fractions_where_they_are_few() -> None:
    assert gib(Interval(3 << 30, 2.5 * 2**30, 9.94 * 2**30)) == ("3.0 GiB", "2.5-9.9")
    assert gib(Interval(3 << 30, 2.5 * 2**30, 10 << 30)) == ("3.0 GiB", "2-10")


def test_a_certain_share_has_no_interval() -> None:
    assert share(Interval(0.934, 0.81, 0.99)) == ("93%", "81-99%")
    assert share(Interval(1.0, 1.0, 1.0)) == ("100%", "")


def test_own_hosts_are_counted_and_joined() -> None:
    one = _shown(table(Result((_plan(_own(), 0.1),), ())))
    assert "hosts" not in one
    joined = machines.own(HARDWARE, "A100", 8, machines.ethernet(25))
    two = _plan(joined, 0.1, hosts=2, strategy=Strategy(data=16))
    text = _shown(table(Result((two,), ())))
    for part in ("16 A100-80GB", "2 hosts", "25 Gbit/s", "micro-batch 1"):
        assert part in text


def test_dollars_are_of_all_hosts_and_of_an_epoch_or_a_thousand_steps() -> None:
    machine = machines.own(HARDWARE, "A100", 8, machines.ethernet(25), 36.0)
    # Two hosts cost 72 dollars an hour, two cents a second.
    steps = _plan(machine, 10.0, hosts=2)
    assert "$200" in _shown(table(Result((steps,), ())))
    epoch = _plan(machine, 10.0, hosts=2, seconds_per_epoch=_around(50_000.0))
    assert "$1,000" in _shown(table(Result((epoch,), ())))
    target = _plan(machine, 10.0, hosts=2, dollars=_around(300.0))
    text = _shown(table(Result((target,), ())))
    assert "$300" in text
    assert "/1k" not in text


@pytest.mark.parametrize(("more", "tight"), [(0, False), (1, True)])
def test_a_plan_is_tight_above_the_memory_of_its_device(more: int, *, tight: bool) -> None:
    memory = Interval(70 << 30, 60 << 30, (80 << 30) + more)
    assert _plan(_own(), 0.1, memory=memory).is_tight == tight


@pytest.mark.parametrize(
    ("hosts", "command"),
    [
        (1, "slipstream run -n 8 train.py"),
        (2, "slipstream run -n 8 -H host1,host2 train.py"),
        (16, "slipstream run -np 128 --hostfile hosts train.py"),
    ],
)
def test_a_plan_has_the_command_that_starts_it(
    hosts: int, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(_own(), 0.1, hosts=hosts, strategy=Strategy(data=8 * hosts))
    assert launch_command(plan) == command
    monkeypatch.chdir(tmp_path)
    lines = [f"host{number} slots=8\n" for number in range(hosts)]
    (tmp_path / "hosts").write_text("".join(lines))
    root: Any = typer.main.get_command(app)
    name, *arguments = command.split()[1:]
    said = root.commands[name].make_context(name, arguments).params
    names = [field.name for field in fields(HostArguments)]
    started = choose_hosts(HostArguments(**{name: said[name] for name in names}))
    assert said["program"] == ["train.py"]
    assert [host.slots for host in started] == [8] * hosts
