"""The module of a replay: its parameters, when gradients are ready, and how long it takes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from slipstream.bench.models import ModelLayer, Parameter, ReplayModel, model  # noqa: E402
from slipstream.bench.replay.device import BusyDevice, TimedDevice  # noqa: E402
from slipstream.bench.replay.module import ReplayModule  # noqa: E402
from slipstream.bench.replay.strategies import compute_only  # noqa: E402

RANKS = Path(__file__).parent / "ranks"


def language_model() -> ReplayModel:
    """Three layers: an embedding with sparse rows, a matrix, and a head that uses the embedding."""
    words = Parameter(name="words", shape=(50, 4), rows_per_sample=3)
    matrix = Parameter(name="matrix", shape=(4, 4))
    return ReplayModel(
        name="tiny",
        layers=(
            ModelLayer(name="embedding", parameters=(words,), flops=0),
            ModelLayer(name="middle", parameters=(matrix,), flops=100),
            ModelLayer(name="head", parameters=(), flops=100, tied=("words",)),
        ),
        batch=2,
        sample="three words",
    )


def made(replayed: ReplayModel, seconds: float = 0.0, *, sparse: bool = False) -> ReplayModule:
    return ReplayModule(replayed, TimedDevice(), seconds, sparse=sparse)


def run_both_passes(module: ReplayModule) -> None:
    module(torch.zeros((), requires_grad=True)).backward()


class Clock:
    """A time that passes only when someone sleeps or works."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


def test_a_module_has_the_parameters_of_its_model() -> None:
    resnet = model("resnet50")
    shapes = [tuple(parameter.shape) for parameter in made(resnet).parameters()]
    assert shapes == [parameter.shape for parameter in resnet.parameters]


def test_gradients_become_ready_in_reverse_order_and_tied_ones_with_their_owner() -> None:
    module = made(language_model())
    ready: list[tuple[int, ...]] = []
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(lambda each: ready.append(tuple(each.shape)))
    run_both_passes(module)
    assert ready == [(4, 4), (50, 4)]


def test_the_backward_pass_leaves_dense_gradients_where_they_are() -> None:
    module = made(language_model())
    before = [(each.grad.data_ptr(), each.grad.clone()) for each in module.parameters()]
    run_both_passes(module)
    for parameter, (address, values) in zip(module.parameters(), before, strict=True):
        assert parameter.grad.data_ptr() == address
        assert torch.equal(parameter.grad, values)


def test_ranks_have_different_gradients() -> None:
    first, second = (
        ReplayModule(language_model(), TimedDevice(), 0.0, seed=seed) for seed in (0, 1)
    )
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert not any(torch.equal(one.grad, other.grad) for one, other in pairs)


def test_sparse_gradients_have_as_many_rows_as_a_batch_can_touch() -> None:
    module = made(language_model(), sparse=True)
    (words,) = module.sparse_parameters()
    assert words.grad is None
    run_both_passes(module)
    assert words.grad.is_sparse
    assert words.grad.shape == (50, 4)
    assert words.grad.coalesce()._nnz() == words.grad._nnz() == 6


def test_a_step_updates_the_parameters_and_can_be_repeated() -> None:
    for sparse in (False, True):
        module = made(language_model(), sparse=sparse)
        step = compute_only(module)
        step()
        once = [parameter.detach().clone() for parameter in module.parameters()]
        step()
        for parameter, before in zip(module.parameters(), once, strict=True):
            assert before.abs().max() > 0
            assert not torch.equal(parameter, before)


def test_a_step_takes_its_compute_of_which_two_thirds_are_backward() -> None:
    clock = Clock()
    module = ReplayModule(language_model(), TimedDevice(clock), 0.3)
    loss = module(torch.zeros((), requires_grad=True))
    assert clock.now == pytest.approx(100.1)
    loss.backward()
    assert clock.now == pytest.approx(100.3)


def test_a_device_sleeps_by_the_clock_of_this_machine() -> None:
    device = TimedDevice()
    device.begin_step()
    start = time.perf_counter()
    device.compute(0.05, may_wait=False)
    assert time.perf_counter() - start >= 0.049


def test_what_the_process_does_between_layers_of_a_backward_pass_delays_nothing() -> None:
    clock = Clock()
    device = TimedDevice(clock)
    device.begin_step()
    for _ in range(10):
        clock.sleep(0.02)
        device.compute(0.04, may_wait=False)
    assert clock.now == pytest.approx(100.4)


def test_what_a_layer_of_a_forward_pass_waited_for_delays_it() -> None:
    clock = Clock()
    device = TimedDevice(clock)
    device.begin_step()
    for _ in range(5):
        clock.sleep(0.02)
        device.compute(0.04, may_wait=True)
    assert clock.now == pytest.approx(100.3)


def test_a_device_that_was_late_starts_the_next_step_anew() -> None:
    clock = Clock()
    device = TimedDevice(clock)
    device.begin_step()
    clock.sleep(0.1)
    device.begin_step()
    device.compute(0.05, may_wait=False)
    assert clock.now == pytest.approx(100.15)


def test_a_busy_device_uses_the_processor() -> None:
    device = BusyDevice()
    before = time.process_time()
    for _ in range(20):
        device.compute(0.002, may_wait=False)
    assert time.process_time() - before > 0.02


@pytest.mark.slow("training as on one worker")
@pytest.mark.multiprocess
def test_ddp_leaves_the_mean_of_all_ranks_in_the_gradients() -> None:
    script = str(RANKS / "averages.py")
    command = [sys.executable, "-m", "slipstream.cli", "run", "-n", "2", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ddp: as the mean") == 2
    assert done.stdout.count("ddp-fp16: as the mean") == 2
