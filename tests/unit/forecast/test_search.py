"""Each strategy wins its own scenario, and the search is near the best of all strategies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic")

from slipstream import forecast
from slipstream.forecast.hardware import load
from slipstream.forecast.search import machines
from slipstream.forecast.search.candidates import Allowed, refinements, strategies
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.search.strategy_search import BestStrategy, StrategySearch
from slipstream.forecast.search.trials import Trials
from slipstream.forecast.simulate import parameters
from slipstream.forecast.trace.precision import traced
from slipstream.forecast.work.resize import Resizable, resizable
from slipstream.forecast.work.strategy import Agreement, Exchange, Optimizer, Strategy

HARDWARE = load()
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 8192,
    "num_local_experts": 16, "num_experts_per_tok": 2, "vocab_size": 32000,
    "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 2816, "vocab_size": 32000,
    "max_position_embeddings": 131072,
}  # fmt: skip


def _largest(model: str, **asked: Any) -> Strategy:
    """Return the strategy of the plan with most devices."""
    found = forecast.forecast(model, forecast.ForecastOptions(**asked))
    return max(found.plans, key=lambda plan: plan.devices).strategy


def _config(folder: Path, content: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(content))
    return str(folder / "config.json")


@pytest.mark.slow("plan for a network")
def test_replicas_on_a_fast_network_share_nothing_out():
    found = _largest(model="resnet50", batch=512, own="8xV100", max_hosts=2, network="200g")
    assert (found.data, found.zero, found.exchange) == (16, 0, Exchange.ALL_REDUCE)
    assert (found.codec, found.layers, found.checkpoint) == ("none", (), False)


def test_large_layers_of_vgg_are_multiplied_late_or_shared_out_on_a_slow_network():
    found = _largest(model="vgg16", batch=128, own="1xV100", max_hosts=8, network="1g")
    assert found.data == 8
    assert {name for name, _ in found.layers} >= {"classifier.1.weight", "classifier.4.weight"}
    assert found.across


def test_layers_too_large_for_a_device_are_shared_out(tmp_path: Path):
    path = tmp_path / "wide.py"
    path.write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Flatten(),\n"
        "        nn.Linear(64 * 31 * 31, 16384), nn.ReLU(), nn.Linear(16384, 16384))\n"
    )
    found = _largest(
        model=f"{path}:make",
        shape=(3, 128, 128),
        batch=4096,
        own="1xV100",
        max_hosts=8,
        network="10g",
        optimizer="momentum",
    )
    assert found.data == 8
    assert Agreement.SHARD in {choice for _, choice in found.layers}


@pytest.mark.parametrize(("own", "hosts", "codec"), [("1xV100", 4, "int8"), ("4xV100", 1, "none")])
def test_any_codec_is_small_between_hosts_on_a_slow_network(own: str, hosts: int, codec: str):
    found = _largest(
        model="resnet50", batch=256, own=own, max_hosts=hosts, network="2g", codec="any"
    )
    assert (found.data, found.codec) == (4, codec)


def test_no_codec_is_best_where_the_wire_is_faster_than_a_core_codes():
    asked: dict[str, Any] = {"model": "vgg16", "batch": 16, "own": "1xA100", "max_hosts": 4}
    assert _largest(**asked, network="400g", codec="any").codec == "none"
    assert _largest(**asked, network="25g", codec="any").codec != "none"


@pytest.mark.parametrize("codec", ["fp16", "int8"])
def test_a_codec_that_was_asked_for_is_used(codec: str):
    found = _largest(
        model="resnet18", batch=128, own="1xT4", max_hosts=2, network="10g", codec=codec
    )
    assert found.codec == codec


@pytest.mark.slow("plan for a network")
def test_local_sgd_is_for_slow_links_where_it_is_allowed():
    asked: dict[str, Any] = {
        "model": "resnet50", "batch": 512, "own": "4xV100", "max_hosts": 4, "network": "0.3g",
        "codec": "any", "precision": "fp32",
    }  # fmt: skip
    found = _largest(**asked, local_steps=16)
    assert (found.exchange, found.period) == (Exchange.LOCAL, 16)
    assert not found.across
    assert not found.layers
    assert _largest(**asked).exchange is not Exchange.LOCAL


@pytest.mark.slow("plan that shares a model out")
def test_experts_are_shared_among_replicas(tmp_path: Path):
    found = _largest(
        model=_config(tmp_path, MIXTRAL),
        tokens=1024,
        batch=64,
        own="8xA100-40GB",
        precision="bf16",
    )
    assert found.expert > 1
    assert found.data % found.expert == 0


def test_long_sequences_are_shared(tmp_path: Path):
    found = _largest(
        model=_config(tmp_path, LLAMA),
        tokens=100_000 // 8192 * 8192,
        batch=1,
        own="8xA100-40GB",
        precision="bf16",
    )
    assert found.context > 1


@pytest.mark.slow("forecast of a large model")
def test_70_billion_parameters_need_tensor_ranks_stages_or_zero_3():
    found = _largest(model="llama3-70b", tokens=4096, batch=8, own="8xH200", precision="bf16")
    assert found.tensor * found.pipeline == 8 or found.zero == 3


@pytest.mark.slow("forecast of a large model")
def test_a_model_that_is_larger_than_a_device_is_shared_out_by_fsdp():
    found = _largest(
        model="llama2-7b",
        tokens=2048,
        batch=64,
        own="1xA10",
        max_hosts=16,
        network="400g",
        precision="bf16",
    )
    assert found.zero == 3


@pytest.mark.slow("plan that shares a model out")
def test_states_that_do_not_fit_are_shared_out(wide_gpt: str):
    found = _largest(model=wide_gpt, tokens=1024, batch=64, own="8xV100", precision="fp16")
    assert found.data == 8
    assert found.zero in (1, 2)


def test_servers_are_for_many_hosts_and_small_gradients():
    found = _largest(model="resnet18", batch=1024, own="1xV100", max_hosts=64, network="25g")
    assert found.exchange is Exchange.PARAMETER_SERVER
    assert found.servers > 1


@pytest.mark.slow("plan that shares a model out")
def test_stages_are_for_hosts_on_a_slow_network(wide_gpt: str):
    found = _largest(
        model=wide_gpt,
        tokens=1024,
        batch=64,
        own="1xA100",
        max_hosts=8,
        network="1g",
        precision="bf16",
    )
    assert found.pipeline > 1


@pytest.mark.slow("plan that shares a model out")
def test_many_stages_with_few_micro_batches_take_turns(wide_gpt: str):
    found = _largest(
        model=wide_gpt,
        tokens=1024,
        batch=16,
        own="1xV100",
        max_hosts=8,
        network="25g",
        precision="fp16",
        runtime="megatron",
    )
    assert found.pipeline > 1
    assert found.virtual > 1


@pytest.mark.slow("plan that shares a model out")
def test_checkpoints_are_for_what_does_not_fit_without():
    asked: dict[str, Any] = {"model": "gpt2-medium", "tokens": 1024, "precision": "bf16"}
    assert not _largest(**asked, batch=8, own="1xA100").checkpoint
    assert _largest(**asked, batch=1, own="1xT4", optimizer="sgd").micro_batch == 1


# Exhaustive search over every strategy with every combination of refinements.

SMALL = [
    ("resnet18", 64, {}, {}, "1g", Allowed(codec="any", period=4)),
    ("resnet18", 64, {}, {}, "100g", Allowed()),
    ("gpt2", 16, {"hidden": 256, "heads": 4, "layers": 8}, {"length": 128}, "1g", Allowed()),
    (
        "gpt2", 16, {"hidden": 256, "heads": 4, "layers": 8}, {"length": 128}, "10g",
        Allowed(codec="any"),
    ),
]  # fmt: skip


def _trials(name: str, sizes: dict[str, Any], inputs: dict[str, Any]) -> Trials:
    model: Resizable = resizable(partial(traced, name, sizes=sizes, inputs=inputs))
    return Trials(
        model,
        parameters.load(),
        precision="fp32",
        optimizer=Optimizer.MOMENTUM,
        runtime="pytorch2",
        master=False,
    )


def _mixtures(start: Strategy, trials: Trials, hosts: int, allowed: Allowed) -> Iterator[Strategy]:
    """Yield a strategy with all combinations of its refinements."""
    rounds = refinements(start, trials.shape, hosts, allowed)
    for chosen in product(*([start, *some] for some in rounds)):
        changes: dict[str, Any] = {}
        for each in chosen:
            for field in (
                "codec", "bucket_bytes", "across", "exchange", "servers", "period", "virtual"
            ):  # fmt: skip
                if getattr(each, field) != getattr(start, field):
                    changes[field] = getattr(each, field)
        if changes.get("exchange") is not Exchange.ALL_REDUCE and changes.get("period", 1) > 1:
            changes["across"] = False
        yield replace(start, **changes)


def _best(trials: Trials, machine: HostType, hosts: int, batch: int, allowed: Allowed) -> float:
    ranks = hosts * machine.cluster.per_host
    limit = machine.cluster.device.memory_gib * 2**30
    seconds = [
        trials.step(each, machine).seconds
        for start in strategies(trials.shape, ranks, machine.cluster.per_host, batch, allowed)
        if trials.least(start) <= limit
        for each in set(_mixtures(start, trials, hosts, allowed))
    ]
    return min(seconds)


@pytest.mark.slow("plan beside all plans")
@pytest.mark.parametrize(("name", "batch", "sizes", "inputs", "network", "allowed"), SMALL)
def test_what_is_found_is_nearly_the_best_of_all(
    name: str,
    batch: int,
    sizes: dict[str, Any],
    inputs: dict[str, Any],
    network: str,
    allowed: Allowed,
):
    trials = _trials(name, sizes, inputs)
    machine = machines.own(HARDWARE, "V100", 2, machines.network(HARDWARE, network))
    found = StrategySearch(trials, batch, allowed).best(machine, 2)
    assert isinstance(found, BestStrategy)
    best = _best(trials, machine, 2, batch, allowed)
    assert found.step.seconds <= 1.05 * best


def test_others_say_how_much_slower_they_are():
    found = forecast.forecast(
        "vgg16",
        forecast.ForecastOptions(
            batch=128, own="1xV100", max_hosts=4, network="1g", precision="fp16"
        ),
    )
    reasons = [other.why for plan in found.plans for other in plan.others]
    assert any("times as long; network limits it" in why for why in reasons)
    assert all("slower" in why or "times as long" in why or "fit" in why for why in reasons)
