"""Published settings on slower networks."""

import pytest

from slipstream.bench.limits import HostNetwork, StepSeconds, limit
from slipstream.bench.models import MODELS, model
from slipstream.bench.replay.presets import PRESETS, preset
from slipstream.errors import UsageError

LAB = HostNetwork(hosts=4, bits_per_second=1e9)


def test_a_lab_of_as_many_hosts_is_slower_by_the_ratio_of_the_links() -> None:
    assert preset("v100-4x8").slowdown(LAB) == pytest.approx(30)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("hosts", [2, 4, 16])
def test_limits_in_the_lab_are_those_of_the_published_setting(name: str, hosts: int) -> None:
    published = preset(name)
    vgg = model("vgg16")
    lab = HostNetwork(hosts=hosts, bits_per_second=1e9)
    there = HostNetwork(hosts=published.hosts, bits_per_second=1e9 * published.gbit_per_second)
    seconds = published.step_seconds(vgg)
    here = limit(vgg, StepSeconds(compute=seconds * published.slowdown(lab)), lab, "fp16")
    wanted = limit(vgg, StepSeconds(compute=seconds), there, "fp16")
    assert here.efficiency_within == pytest.approx(wanted.efficiency_within)
    assert here.efficiency_across == pytest.approx(wanted.efficiency_across)


def test_measured_steps_are_taken_as_published() -> None:
    assert preset("v100-4x8").step_seconds(model("bert-base")) == 0.144
    assert preset("p100-16x8").step_seconds(model("vgg16")) == pytest.approx(0.4156, abs=1e-3)


def test_an_estimate_by_flops_is_near_what_was_measured() -> None:
    v100 = preset("v100-4x8")
    bert = model("bert-base")
    estimate = 3 * bert.flops * bert.batch / v100.flops_per_second
    assert estimate == pytest.approx(0.144, rel=0.1)


@pytest.mark.parametrize("name", PRESETS)
def test_every_model_has_a_step(name: str) -> None:
    assert all(0.01 < preset(name).step_seconds(model(each)) < 10 for each in MODELS)


def test_a_preset_that_does_not_exist_is_a_wrong_call() -> None:
    with pytest.raises(UsageError, match="'a100'; allowed: v100-4x8"):
        preset("a100")
