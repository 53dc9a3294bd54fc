"""Elastic training with Horovod's names in a job of one rank: states, samplers and handlers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import slipstream.horovod.torch as hvd  # noqa: E402
from slipstream.comm.elastic import MembershipChanged  # noqa: E402
from slipstream.errors import UsageError  # noqa: E402
from slipstream.horovod.common.elastic import State  # noqa: E402
from slipstream.horovod.job import job, renew_job  # noqa: E402
from slipstream.horovod.runner.elastic.worker import HostUpdateResult  # noqa: E402
from slipstream.horovod.torch.elastic.handlers import StateHandler  # noqa: E402


@pytest.fixture(autouse=True)
def joined() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def make_state(**values: Any) -> Any:
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    return hvd.elastic.TorchState(model=model, optimizer=optimizer, **values)


def step(state: Any) -> None:
    state.optimizer.zero_grad()
    state.model(torch.ones(1, 2)).sum().backward()
    state.optimizer.step()


def momentum(state: Any) -> list[float]:
    return [v["momentum_buffer"].sum().item() for v in state.optimizer.state.values()]


def test_model_optimizer_and_values_go_back_to_the_commit() -> None:
    state = make_state(batch=1, seen=[1])
    step(state)
    state.commit()
    kept = state.model.weight.detach().clone(), momentum(state)
    for _ in range(2):  # what restore() has set must be no part of the copy
        step(state)
        state.batch = 2
        state.seen.append(2)
        state.optimizer.param_groups[0]["lr"] = 9.0
        state.restore()
        assert torch.equal(state.model.weight, kept[0])
        assert momentum(state) == kept[1]
        assert (state.batch, state.seen) == (1, [1])
        assert state.optimizer.param_groups[0]["lr"] == 1.0


def test_the_commit_before_the_last_is_kept_too_and_no_older_one() -> None:
    state = make_state(batch=0)
    for batch in (1, 2, 3):
        step(state)
        state.batch = batch
        state.commit()
    weight = state.model.weight.clone()
    assert state.keeps_two_commits
    with pytest.raises(UsageError, match=r"commit 1 is not kept; allowed: \[2, 3\]"):
        state.forget_after(1)
    state.forget_after(2)
    state.restore()
    assert state.batch == 2
    assert not torch.equal(state.model.weight, weight)
    assert state.num_commits == 2


def test_a_model_that_takes_anothers_place_is_the_one_that_is_restored() -> None:
    state = make_state()
    other = torch.nn.Linear(3, 1)
    weight = other.weight.detach().clone()
    state.model = other
    torch.nn.init.zeros_(other.weight)
    state.restore()
    assert torch.equal(other.weight, weight)


def test_a_scheduler_keeps_its_optimizer() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    state = hvd.elastic.TorchState(optimizer=optimizer, scheduler=scheduler)
    optimizer.step()
    scheduler.step()
    state.restore()
    assert scheduler.last_epoch == 0
    assert scheduler.optimizer is optimizer
    assert optimizer.param_groups[0]["lr"] == 1.0
    state.sync()
    assert state.scheduler is scheduler


def test_what_a_scheduler_has_done_after_the_check_is_taken_back() -> None:
    """An epoch has ended, and a fault hits its validation; each decay must be applied once."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    state = hvd.elastic.TorchState(optimizer=optimizer, scheduler=scheduler)
    optimizer.step()
    state.note()
    for _ in range(2):  # what return_to_note() has set must be no part of the copy
        scheduler.step()
        assert state.is_as_noted()
        state.return_to_note()
        assert scheduler.last_epoch == 0
        assert optimizer.param_groups[0]["lr"] == 1.0
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    assert not state.is_as_noted()


@pytest.mark.parametrize("takes_back", ["restore", "return_to_note"])
def test_a_step_of_a_gradient_scaler_that_a_fault_interrupts_is_forgotten(takes_back: str) -> None:
    """The next step once went on with gradients that were not divided by the scale."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    state = hvd.elastic.TorchState(optimizer=optimizer, scaler=scaler)
    scaler.scale(weight)
    state.note()
    scaler.update(2.0)

    def lose_rank(*_: Any) -> None:
        raise RuntimeError("a rank is lost")

    def train_step() -> None:
        optimizer.zero_grad()
        scaler.scale(weight * 0.25).backward()
        scaler.step(optimizer)
        scaler.update()

    hook = optimizer.register_step_pre_hook(lose_rank)
    with pytest.raises(RuntimeError):
        train_step()
    hook.remove()
    getattr(state, takes_back)()
    assert state.scaler is scaler
    assert scaler.get_scale() == 1024.0
    train_step()
    assert weight.item() == 0.75
    state.sync()
    disabled = hvd.elastic.TorchState(scaler=torch.amp.GradScaler("cpu", enabled=False))
    disabled.commit()
    disabled.restore()
    disabled.sync()


def test_statistics_of_an_interrupted_forward_pass_are_taken_back() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    state = hvd.elastic.TorchState(model=model)
    model(torch.randn(8, 4))
    state.note()
    before = {name: each.clone() for name, each in model.named_buffers()}
    model(torch.randn(8, 4))
    assert not torch.equal(model[1].running_mean, before["1.running_mean"])
    assert state.is_as_noted(), "no parameter has changed"
    state.return_to_note()
    for name, each in model.named_buffers():
        assert torch.equal(each, before[name]), name


def test_gradients_in_flight_are_forgotten_when_the_state_is_sent() -> None:
    model = torch.nn.Linear(1, 1)
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(base, model.named_parameters(), backward_passes_per_step=2)
    reducer = optimizer._reducer
    reducer._passes_done[model.weight] = 1
    hvd.elastic.TorchState(model=model, optimizer=optimizer).sync()
    optimizer.zero_grad()  # would refuse to reset gradients that are being reduced


class Counter:
    """An object for which a script brings its own handler."""

    number = 0


class CounterHandler(StateHandler):
    """A handler as scripts for Horovod write it: it keeps one commit."""

    kept = 0

    def save(self) -> None:
        self.kept = self.value.number

    def restore(self) -> None:
        self.value.number = self.kept

    def sync(self) -> None:
        self.value.number = hvd.broadcast_object(self.value.number)


def test_handlers_of_scripts_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = hvd.elastic.get_handler_registry()
    try:
        hvd.elastic.set_handler_registry([(Counter, CounterHandler), *registry])
        state = hvd.elastic.TorchState(counter=Counter(), batch=0)
    finally:
        hvd.elastic.set_handler_registry(registry)
    assert not state.keeps_two_commits
    state.counter.number = 3
    state.commit()
    state.counter.number = 4
    state.restore()
    assert state.counter.number == 3


class OneCommit(State):
    """A state of a script of its own."""

    def __init__(self) -> None:
        super().__init__(hvd.broadcast_object, hvd.rank)
        self.calls: list[str] = []

    def save(self) -> None:
        self.calls.append("save")

    def restore(self) -> None:
        self.calls.append("restore")

    def sync(self) -> None:
        self.calls.append("sync")

    def reset(self) -> None:
        self.calls.append("reset")


def test_a_state_of_a_script_is_sent_at_the_start_and_told_of_changes() -> None:
    state = OneCommit()
    state.register_reset_callbacks([lambda: state.calls.append("callback")])

    @hvd.elastic.run
    def train(state: OneCommit, number: int) -> int:
        state.commit()
        if "reset" not in state.calls:
            raise hvd.HostsUpdatedInterrupt(skip_sync=False)
        return number

    assert train(state, 7) == 7
    assert state.calls == ["sync", "save", "reset", "callback", "save"]
    assert hvd.size() == 1


def test_a_training_inside_of_a_training_is_refused() -> None:
    state = OneCommit()

    @hvd.elastic.run
    def train(state: OneCommit) -> None:
        train(state)

    with pytest.raises(UsageError, match=r"called by a function that elastic\.run itself"):
        train(state)
    assert state.calls == ["sync"]


def test_news_wait_in_a_queue_until_the_change() -> None:
    state = OneCommit()
    state.on_hosts_updated(1.0, HostUpdateResult.added)
    assert state._host_messages.get_nowait() == (1.0, HostUpdateResult.added)
    state.on_hosts_updated(2.0, HostUpdateResult.removed)
    state.on_reset()
    assert state._host_messages.empty()
    assert issubclass(hvd.HostsUpdatedInterrupt, MembershipChanged)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("processed", [0, 3, 9])
def test_ranks_share_the_samples_that_are_left(
    shuffle: bool, processed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    samplers = []
    for rank in range(4):
        monkeypatch.setattr("slipstream.horovod.torch.elastic.sampler.rank", lambda rank=rank: rank)
        monkeypatch.setattr("slipstream.horovod.torch.elastic.sampler.size", lambda: 4)
        sampler = hvd.elastic.ElasticSampler(range(10), shuffle=shuffle, seed=3)
        sampler.load_state_dict({"epoch": 2, "processed_num": processed})
        samplers.append(sampler)
    shares = [list(sampler) for sampler in samplers]
    assert {len(share) for share in shares} == {len(samplers[0])}
    given = [sample for turn in zip(*shares, strict=True) for sample in turn]
    order = samplers[0].remaining_indices
    assert given[: len(order)] == order
    assert set(given) == set(order)
    assert len(order) == 10 - processed
    samplers[0].record_batch(0, 2)
    assert samplers[0].state_dict() == {"epoch": 2, "processed_num": processed + 8}


def test_process_sets_of_init_come_back_if_their_ranks_exist() -> None:
    both, first = hvd.ProcessSet([0, 1]), hvd.ProcessSet([0])
    job().first_sets = (both, first)  # of a job that had two ranks
    renew_job()
    assert both.process_set_id is None
    assert first.process_set_id == 0
    assert hvd.allreduce(torch.ones(2), name="after", process_set=first).tolist() == [1.0, 1.0]


def test_a_hundred_changes_leave_nothing_open() -> None:
    program = Path(__file__).parent / "ranks" / "changes.py"
    ended = subprocess.run(
        [sys.executable, str(program), "103"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    early, late = (json.loads(line) for line in ended.stdout.splitlines())
    pages = late.pop("pages") - early.pop("pages")
    assert late == early
    assert pages < 500  # of 4 KiB; as measured, 600 changes take 110
