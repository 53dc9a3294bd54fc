"""The forecast's public call: what it takes, what it refuses, and how it ranks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic")

from slipstream import forecast
from slipstream.errors import UsageError

SMALL = """
import torch
from torch import nn

class Differs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        return (x.relu() if len(x) > 1 else x).sum()

def differs():
    return Differs()

def alone():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

def wide():
    return nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)])
"""


@pytest.fixture
def small(tmp_path: Path) -> Callable[[str], str]:
    """Return the name of a function in a user's file of models."""
    path = tmp_path / "small_models.py"
    path.write_text(SMALL)
    return lambda name: f"{path}:{name}"


@pytest.fixture(scope="module")
def ranked() -> forecast.Result:
    return forecast.forecast(
        "resnet18",
        forecast.ForecastOptions(
            batch=256, gpus=("T4", "A100"), samples=50_000, epochs=10, precision="fp16"
        ),
    )


@pytest.mark.slow("plans of a forecast")
def test_plans_are_ranked_by_dollars_to_the_target(ranked: forecast.Result) -> None:
    dollars = [plan.dollars.value for plan in ranked.plans if plan.dollars]
    assert len(dollars) == len(ranked.plans) > 4
    assert dollars == sorted(dollars)
    for plan in ranked.plans:
        assert plan.strategy.global_batch == 256
        assert plan.strategy.ranks == plan.hosts * plan.machine.cluster.per_host <= 64
        assert plan.memory.low < plan.memory.value == plan.peak.reserved < plan.memory.high
        assert plan.efficiency.low <= plan.efficiency.value <= plan.efficiency.high
        assert plan.peak.reserved <= plan.machine.cluster.device.memory_gib * 2**30
        assert plan.seconds_per_step.low < plan.seconds_per_step.value < plan.seconds_per_step.high


def test_time_to_the_target_follows_from_steps(ranked: forecast.Result) -> None:
    plan = ranked.plans[0]
    assert plan.seconds_per_epoch
    assert plan.seconds
    assert plan.dollars
    assert plan.machine.dollars_per_hour
    epoch = 196 * plan.seconds_per_step.value
    assert plan.seconds_per_epoch.value == pytest.approx(epoch)
    assert plan.seconds.value == pytest.approx(10 * epoch)
    hours = plan.hosts * plan.seconds.value / 3600
    assert plan.dollars.value == pytest.approx(hours * plan.machine.dollars_per_hour)


def test_without_prices_more_devices_rank_before_fewer_only_where_they_are_faster() -> None:
    found = forecast.forecast(
        "resnet18",
        forecast.ForecastOptions(
            batch=64, own="1xA100", max_hosts=16, network="10g", precision="bf16"
        ),
    )
    seconds = [plan.seconds_per_step.value for plan in found.plans]
    assert seconds == sorted(seconds)
    assert {plan.devices for plan in found.plans} == {1, 2, 4, 8, 16}
    slower = [plan for plan in found.plans if plan.devices > found.plans[0].devices]
    assert all(plan.seconds_per_step.value >= seconds[0] for plan in slower)


def test_a_faster_network_is_never_slower() -> None:
    def best(network: str) -> float:
        asked = forecast.forecast(
            "resnet18",
            forecast.ForecastOptions(batch=64, own="1xV100", max_hosts=8, network=network),
        )
        return min(plan.seconds_per_step.value for plan in asked.plans)

    assert best("100g") <= best("25g") <= best("10g")


def test_a_measured_device_sets_the_pace_and_narrows_intervals() -> None:
    asked: dict[str, Any] = {"batch": 512, "own": "4xV100", "max_hosts": 2, "network": "25g"}
    plain, paced = (
        forecast.forecast("resnet18", forecast.ForecastOptions(**asked, alone=alone)).plans[-1]
        for alone in (None, (200, 128))
    )
    assert (paced.devices, paced.strategy.micro_batch) == (4, 128)
    # No plan is faster than as many measured devices without any communication.
    assert 512 / 4 / 200 <= 1.0001 * paced.seconds_per_step.low <= paced.seconds_per_step.value
    assert paced.seconds_per_step.value > plain.seconds_per_step.value
    wide, narrow = (
        plan.seconds_per_step.high / plan.seconds_per_step.low for plan in (plain, paced)
    )
    assert narrow < wide
    # Compute takes longer and the exchange does not; the wait for the slowest keeps its share.
    assert paced.efficiency.value > plain.efficiency.value - 0.01


def test_a_pace_as_forecast_changes_nothing() -> None:
    asked: dict[str, Any] = {"batch": 64, "own": "1xV100", "codec": "none"}
    (plain,) = forecast.forecast("resnet18", forecast.ForecastOptions(**asked)).plans
    rate = 64 / plain.seconds_per_step.value
    (paced,) = forecast.forecast(
        "resnet18", forecast.ForecastOptions(**asked, alone=(rate, 64))
    ).plans
    assert paced.step.seconds == pytest.approx(plain.step.seconds)
    assert paced.seconds_per_step.low == pytest.approx(plain.step.seconds)
    assert paced.seconds_per_step.high == pytest.approx(plain.step.seconds)


def test_hosts_that_read_slowly_limit_a_step() -> None:
    asked: dict[str, Any] = {"batch": 512, "own": "4xV100", "max_hosts": 2, "network": "25g"}
    (two, one) = forecast.forecast(
        "resnet18", forecast.ForecastOptions(**asked, input_rate=100.0)
    ).plans
    assert (one.limit, two.limit) == ("input", "input")
    assert one.step.seconds == pytest.approx(512 / 100)
    assert two.step.seconds == pytest.approx(512 / 2 / 100)
    assert 0 < one.step.input < one.step.seconds
    plenty = forecast.forecast("resnet18", forecast.ForecastOptions(**asked, input_rate=1e6)).plans[
        0
    ]
    assert plenty.step.input == 0
    assert (
        plenty.step
        == forecast.forecast("resnet18", forecast.ForecastOptions(**asked)).plans[0].step
    )


def test_deadline_and_budget_leave_out_what_misses_them(ranked: forecast.Result) -> None:
    times = sorted(plan.seconds.value for plan in ranked.plans if plan.seconds)
    deadline = times[len(times) // 2]
    costs = sorted(plan.dollars.value for plan in ranked.plans if plan.dollars)
    budget = costs[len(costs) // 2]
    found = forecast.forecast(
        "resnet18",
        forecast.ForecastOptions(
            batch=256,
            gpus=("T4", "A100"),
            samples=50_000,
            epochs=10,
            precision="fp16",
            deadline=deadline,
            budget=budget,
        ),
    )
    assert 0 < len(found.plans) < len(ranked.plans)
    assert all(plan.seconds and plan.seconds.value <= deadline for plan in found.plans)
    assert all(plan.dollars and plan.dollars.value <= budget for plan in found.plans)
    why = " ".join(loss.why for loss in found.losses)
    assert "the deadline is" in why
    assert "the budget is" in why


@pytest.mark.slow("forecast of a large model")
def test_what_does_not_fit_says_the_least_memory() -> None:
    found = forecast.forecast(
        "llama2-70b", forecast.ForecastOptions(batch=4, tokens=16, own="1xT4")
    )
    assert not found.plans
    (loss,) = found.losses
    assert "does not fit" in loss.why
    assert "GiB and has 16" in loss.why


def test_undercut_offers_say_by_what() -> None:
    found = forecast.forecast(
        "resnet18", forecast.ForecastOptions(batch=64, gpus=("H200",), max_devices=8)
    )
    (azure,) = [loss for loss in found.losses if loss.what.startswith("azure")]
    assert "coreweave HGX H200 has the same devices and network for $50.44" in azure.why


def test_a_model_may_run_other_operators_for_one_sample(small: Callable[[str], str]) -> None:
    for name in ("differs", "alone"):
        found = forecast.forecast(
            small(name), forecast.ForecastOptions(batch=64, shape=(8,), own="1xT4")
        )
        assert found.plans[0].strategy.global_batch == 64


def test_progress_is_told(small: Callable[[str], str]) -> None:
    told: list[tuple[str, int, int]] = []
    forecast.forecast(
        small("wide"),
        forecast.ForecastOptions(batch=16, shape=(4096,), own="2xV100", max_hosts=2, network="25g"),
        progress=lambda *what: told.append(what),
    )
    assert [each[1:] for each in told] == [(0, 0), (0, 0), (0, 0), (0, 2), (1, 2)]


@pytest.mark.slow("plans of a forecast")
@pytest.mark.parametrize(
    "hosts", [{"gpus": ("T4", "A100", "H100")}, {"own": "1xV100", "max_hosts": 8, "network": "25g"}]
)
def test_better_plans_are_told_as_they_are_found(hosts: dict[str, Any]) -> None:
    tried: list[int] = []
    told: list[tuple[int, forecast.Plan]] = []
    found = forecast.forecast(
        "resnet18",
        forecast.ForecastOptions(batch=256, **hosts),
        progress=lambda what, done, of: tried.append(done),
        better=lambda plan: told.append((tried[-1], plan)),
    )
    # The first hosts are always tried, and the last plan that is reported ranks first.
    assert told[0][0] == 0
    assert tried[-1] > len(told)
    places = [found.plans.index(plan) for _, plan in told]
    assert places == sorted(places, reverse=True)
    assert places[-1] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch": 0}, "batch is 0; at least 1"),
        ({"precision": "fp8"}, "allowed: bf16, fp16, fp32, tf32"),
        ({"optimizer": "lamb"}, "allowed: adam, momentum, sgd"),
        ({"runtime": "torch"}, "runtime is 'torch'; allowed: .*pytorch"),
        ({"codec": "int4"}, "allowed: any, bf16, fp16, int8, none"),
        ({"markets": ("reserved",)}, "allowed: on-demand, spot"),
        ({"gpus": ("A1000",)}, "no device is called 'A1000'; near: a100"),
        ({"clouds": ("asw",)}, "no cloud is called 'asw'; known: aws"),
        ({"gpus": ("K80",)}, "no offer is known for K80"),
        (
            {"gpus": ("L40S",), "clouds": ("coreweave",), "max_devices": 4},
            "has 8 devices: increase max_devices",
        ),
        ({"own": "A100"}, "such as 8xA100"),
        ({"own": "8xA1000"}, "no device is called"),
        ({"own": "0xA100"}, "such as 8xA100"),
        ({"own": "8xA100", "gpus": ("T4",)}, "nothing is rented"),
        ({"own": "8xA100", "max_hosts": 2}, "set network"),
        ({"own": "8xA100", "max_devices": 4}, "has 8 devices: increase max_devices"),
        ({"max_hosts": 2}, "name them, such as own=8xA100"),
        ({"price": 2.0}, "name them, such as own=8xA100"),
        ({"alone": (100.0, 8)}, "name them, such as own=8xA100"),
        ({"own": "8xA100", "alone": (0.0, 8)}, "alone is 0; more than 0"),
        ({"own": "8xA100", "alone": (10.0, 0)}, "alone is 0; at least 1"),
        ({"own": "8xA100", "alone": (10.0, 8), "input_rate": 9.0}, "a host reads at least"),
        ({"input_rate": -1.0}, "input_rate is -1; more than 0"),
        ({"network": "fast"}, "no link is called 'fast'"),
        ({"epochs": 3}, "set samples per epoch too"),
        ({"samples": 9, "epochs": 3, "total_tokens": 1e9}, "only one target is allowed"),
        ({"total_tokens": 0.0}, "total_tokens is 0; more than 0"),
        ({"total_tokens": 1e9, "own": "1xT4"}, "resnet18 reads no sequences of tokens"),
        ({"search_seconds": -1.0}, "search_seconds is -1; more than 0"),
        ({"deadline": 60.0}, "deadline needs a target"),
        ({"samples": 10, "epochs": 1, "budget": -1.0}, "budget is -1; more than 0"),
        ({"own": "8xA100", "samples": 10, "epochs": 1, "budget": 9.0}, "has no price"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        forecast.forecast("resnet18", forecast.ForecastOptions(**{"batch": 32, **arguments}))


def test_unknown_models_list_near_ones() -> None:
    with pytest.raises(UsageError, match=r"the nearest are: .*resnet50"):
        forecast.forecast("resnet5O", forecast.ForecastOptions(batch=32, own="1xT4"))


def test_importing_is_fast() -> None:
    code = "import sys, slipstream.forecast; print({'torch', 'pydantic'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
    code = "import sys; from slipstream import forecast; forecast.forecast"
    code += "; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_a_missing_package_is_named() -> None:
    code = """
import sys
sys.modules['tomli'] = None
from slipstream import forecast
from slipstream.errors import UnsupportedError
try:
    forecast.forecast
except UnsupportedError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs the package tomli; pip install 'slipstream[forecast]'" in ran.stdout


def test_missing_pytorch_is_named() -> None:
    code = """
import sys
sys.modules['torch'] = None
from slipstream import forecast
from slipstream.errors import UnsupportedError
try:
    forecast.forecast('resnet18', forecast.ForecastOptions(batch=8, own='1xT4'))
except UnsupportedError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs the package torch" in ran.stdout


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'forcast'"):
        _ = forecast.forcast  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("device", "precision"), [("A100", "bf16"), ("V100", "fp16"), ("M60", "fp32")]
)
def test_devices_that_are_made_for_16_bits_use_them(device: str, precision: str) -> None:
    asked: dict[str, Any] = {"batch": 64, "own": f"1x{device}"}
    plan = forecast.forecast("resnet18", forecast.ForecastOptions(**asked)).plans[0]
    assert plan.machine.precision == precision
    said = forecast.forecast(
        "resnet18", forecast.ForecastOptions(**asked, precision=precision)
    ).plans[0]
    assert plan.seconds_per_step == said.seconds_per_step


@pytest.mark.slow("plans of a forecast")
def test_hosts_of_one_search_have_precisions_of_their_own() -> None:
    found = forecast.forecast(
        "resnet18", forecast.ForecastOptions(batch=64, gpus=("T4", "L4"), max_devices=4)
    )
    used = {(plan.machine.cluster.device.name, plan.machine.precision) for plan in found.plans}
    assert used == {("T4", "fp16"), ("L4", "bf16")}


@pytest.mark.parametrize(
    ("model", "tokens", "per_sample"),
    [
        ("gpt2", 512, 512),
        pytest.param("bert-base", None, 128, marks=pytest.mark.slow("forecast of a large model")),
    ],
)
def test_tokens_in_all_give_steps_time_and_cost(
    model: str, tokens: int | None, per_sample: int
) -> None:
    found = forecast.forecast(
        model,
        forecast.ForecastOptions(batch=8, tokens=tokens, own="1xA100", price=2.0, total_tokens=1e9),
    )
    plan = found.plans[0]
    assert found.steps is not None
    assert found.steps == -(-1_000_000_000 // (8 * per_sample))
    assert plan.seconds is not None
    assert plan.dollars is not None
    assert plan.seconds.value == pytest.approx(found.steps * plan.seconds_per_step.value)
    assert plan.dollars.value == pytest.approx(plan.seconds.value / 3600 * 2.0)
    assert plan.seconds_per_epoch is None


def test_mfu_is_of_the_flops_that_a_transformer_needs() -> None:
    plan = forecast.forecast(
        "gpt2", forecast.ForecastOptions(batch=8, tokens=1024, own="1xA100")
    ).plans[0]
    # PaLM's appendix B: 6 FLOPs for each parameter in a product, and attention, for each token.
    token = 6 * 124.4e6 + 12 * 12 * 768 * 1024
    rate = 8 * 1024 / plan.seconds_per_step.value
    assert plan.mfu.value == pytest.approx(token * rate / 312e12, rel=0.01)
    assert plan.mfu.low < plan.mfu.value < plan.mfu.high


def test_a_search_whose_time_is_over_says_what_was_not_tried() -> None:
    asked: dict[str, Any] = {"batch": 64, "own": "1xA100", "max_hosts": 8, "network": "100g"}
    whole = forecast.forecast("resnet18", forecast.ForecastOptions(**asked))
    found = forecast.forecast("resnet18", forecast.ForecastOptions(**asked, search_seconds=1e-6))
    assert len(found.plans) == 1
    assert found.plans[0] in whole.plans
    left = [loss for loss in found.losses if loss.why.startswith("not tried")]
    assert len(left) == len(whole.plans) - 1
    assert {loss.change for loss in left} == {"a longer search time"}
    assert not [loss for loss in whole.losses if "not tried" in loss.why]
