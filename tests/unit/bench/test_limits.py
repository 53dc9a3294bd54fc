"""The simulated limits: cases that can be done by hand, and the table of the published setting."""

import pytest

from slipstream.bench.limits import (
    GOODPUT,
    HostNetwork,
    LayerTimes,
    StepSeconds,
    Wire,
    limit,
    step_across,
    step_within,
)
from slipstream.bench.models import MODELS, model

FOUR_HOSTS = HostNetwork(hosts=4, bits_per_second=1e9)

# Published steps on V100, 30 times slower, and what the optimizer adds on two cores.
STEPS = {
    "resnet50": StepSeconds(compute=1.65, optimizer=0.11),
    "vgg16": StepSeconds(compute=2.91, optimizer=0.40),
    "bert-base": StepSeconds(compute=4.32, optimizer=0.39),
}


@pytest.mark.parametrize(
    ("name", "wire", "within", "across"),
    [
        ("resnet50", "fp32", 0.91, 1.0),
        ("resnet50", "fp16", 1.0, 1.0),
        ("vgg16", "fp32", 0.40, 0.48),
        ("vgg16", "fp16", 0.68, 0.95),
        # The 1.735 s of all bytes fit into the 1.94 s of the backward pass.
        ("vgg16", "int8", 1.0, 1.0),
        ("bert-base", "fp32", 0.64, 0.80),
        ("bert-base", "fp16", 0.88, 0.89),
        ("bert-base", "int8", 0.94, 0.94),
    ],
)
def test_the_limits_of_the_published_setting(
    name: str, wire: Wire, within: float, across: float
) -> None:
    found = limit(model(name), STEPS[name], FOUR_HOSTS, wire)
    assert found.efficiency_within == pytest.approx(within, abs=0.01)
    assert found.efficiency_across == pytest.approx(across, abs=0.01)


def layer(transfer: float, *, forward: float = 1.0, update: float = 0.0) -> LayerTimes:
    """Return a layer whose backward pass takes twice its forward pass."""
    return LayerTimes(forward=forward, backward=2 * forward, update=update, transfer=transfer)


def test_an_allreduce_sends_two_times_h_minus_1_of_h() -> None:
    assert FOUR_HOSTS.allreduce_seconds(1e6) == pytest.approx(1.5 * 8e6 / (1e9 * GOODPUT))


def test_one_host_communicates_nothing() -> None:
    assert HostNetwork(hosts=1, bits_per_second=1e9).allreduce_seconds(1e9) == 0


def test_without_bytes_a_step_is_its_compute() -> None:
    layers = [layer(0, update=0.25), layer(0, update=0.25)]
    assert step_within(layers) == step_across(layers) == 6.5


def test_one_layer_cannot_hide_its_transfer() -> None:
    assert step_within([layer(5)]) == step_across([layer(5)]) == 8


def test_within_the_step_the_backward_pass_hides_what_is_ready() -> None:
    # Ready at 4 and 6; 4 + 1.5 is hidden, 6 + 1 is not.
    assert step_within([layer(1), layer(1.5)]) == 7
    # The link is free at 4 + 3 only.
    assert step_within([layer(1), layer(3)]) == 8


def test_across_the_boundary_the_next_forward_pass_hides_the_rest() -> None:
    # The last layer's 3 seconds: 2 behind the first one's backward pass, 1 behind its next forward.
    assert step_across([layer(0), layer(3)]) == pytest.approx(6)
    assert step_within([layer(0), layer(3)]) == 7


def test_what_is_needed_first_overtakes_what_is_on_the_link() -> None:
    # The first layer's second has the link when its backward pass ends; the other 2 of 4 follow,
    # of which the next forward pass hides 1.
    assert step_across([layer(1), layer(4)]) == pytest.approx(8)


def test_across_is_bound_by_the_bytes_when_there_are_many() -> None:
    layers = [layer(10), layer(10), layer(10, forward=0)]
    assert step_across(layers) == pytest.approx(30, rel=0.2)
    assert step_across(layers) >= 30


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("wire", ["fp32", "int8"])
def test_limits_are_in_order(name: str, wire: Wire) -> None:
    found = limit(model(name), StepSeconds(compute=1.0, optimizer=0.1), FOUR_HOSTS, wire)
    assert found.across * (1 + 1e-6) >= 1.1
    assert found.across <= found.within * (1 + 1e-6)


def test_no_step_is_shorter_than_compute_and_the_transfer_of_the_first_layer() -> None:
    bert = model("bert-base")
    first = FOUR_HOSTS.allreduce_seconds(4 * bert.layers[0].num_elements)
    found = limit(bert, STEPS["bert-base"], FOUR_HOSTS, "fp32")
    assert found.across >= 4.71 + first


def test_touched_rows_beat_the_limits_of_dense_gradients() -> None:
    bert = model("bert-base")
    dense = limit(bert, STEPS["bert-base"], FOUR_HOSTS, "fp32")
    sparse = limit(bert, STEPS["bert-base"], FOUR_HOSTS, "fp32", sparse=True)
    assert sparse.across < dense.across - 0.4
    assert sparse.within < dense.within - 0.4


def test_rows_are_not_gathered_where_a_dense_sum_is_shorter() -> None:
    many = HostNetwork(hosts=64, bits_per_second=1e9)
    bert = model("bert-base")
    step = STEPS["bert-base"]
    assert limit(bert, step, many, "fp32", sparse=True) == limit(bert, step, many, "fp32")
