"""The scheduler: gangs, shares, quotas, order, backfill, preemption, and reasons in words."""

import random
from dataclasses import replace

import pytest

from slipstream.cluster.queue.capacity import FreeCapacity
from slipstream.cluster.queue.fairness import decayed, in_order
from slipstream.cluster.queue.scheduler import plan, possible
from slipstream.cluster.queue.shapes import (
    HostShare,
    QueueGpu,
    QueueJob,
    QueueMachine,
    QueuePolicy,
    QueueState,
    Quota,
    ResourceRequest,
)

NOW = 1_000_000.0


def machine(name="a", gpus=8, kind="H100", memory_gib=80, **others):
    """Return a machine with GPUs of one kind, and many processors."""
    one = QueueGpu(kind=kind, memory_mib=memory_gib * 1024)
    return QueueMachine(name=name, gpus=(one,) * gpus, **{"cpus": 64, **others})


def job(number, gpus=1, *, hosts=(1, 1), gib=0, seconds=None, **others):
    """Return a waiting job that was submitted in the order of its number."""
    request = ResourceRequest(
        gpus=gpus, gpu_memory_mib=gib * 1024, min_hosts=hosts[0], max_hosts=hosts[1]
    )
    times = {"submitted_at": NOW - 1000 + number, "expected_seconds": seconds}
    return QueueJob(number=number, **{"request": request, **times, **others})


def running(number, gpus=1, *, on="a", first=0, since=100.0, gib=80, **others):
    """Return a running job on GPUs of one machine."""
    pairs = tuple((first + index, gib * 1024) for index in range(gpus))
    share = HostShare(machine=on, gpus=pairs, gpu_units=gpus * gib / 80, cpus=1)
    times = {"started_at": NOW - since, "allocation": (share,), "state": "running"}
    return job(number, gpus, **{**times, **others})


def decide(*jobs, machines=None, **others):
    """Return the plan for some jobs, on one machine with 8 GPUs if no others are given."""
    return plan(QueueState(jobs=jobs, machines=tuple(machines or [machine()]), now=NOW, **others))


def gpus_of(allocation):
    """Return the GPUs of an allocation, by machine."""
    return {share.machine: [number for number, _ in share.gpus] for share in allocation}


def test_jobs_start_in_the_order_of_their_submission():
    assert list(decide(job(1, 4), job(2, 4), job(3, 4)).starts) == [1, 2]


def test_a_job_gets_all_its_hosts_or_none():
    machines = [machine("a", 4), machine("b", 4)]
    found = decide(job(1, 4, hosts=(2, 2)), machines=machines)
    assert gpus_of(found.starts[1]) == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}
    found = decide(running(9, 1), job(1, 4, hosts=(2, 2)), machines=machines)
    assert not found.starts
    assert "waits for 8 free GPUs; free now: 7" in found.reasons[1]


def test_an_elastic_job_starts_with_the_hosts_that_others_leave():
    machines = [machine(name, 1) for name in "abcd"]
    found = decide(job(1, 1, hosts=(1, 4)), job(2, 1), machines=machines)
    assert len(found.starts[1]) == 3
    assert len(found.starts[2]) == 1


def test_jobs_share_a_gpu_until_its_memory_is_full():
    small = [job(number, gib=30) for number in range(1, 8)]
    found = decide(*small, machines=[machine(gpus=2)])
    assert [gpus_of(found.starts[n])["a"] for n in (1, 2, 3, 4)] == [[0], [0], [1], [1]]
    assert found.reasons[5].startswith("waits for 1 free GPU with 30 GiB; free now: 0")


def test_a_whole_gpu_is_not_shared():
    found = decide(job(1, gib=10), job(2, 2), job(3, 1), machines=[machine(gpus=2)])
    assert list(found.starts) == [1]
    assert found.reasons[2].startswith("waits for 2 free GPUs; free now: 1")


def test_processors_memory_and_named_accelerators_count():
    host = machine(cpus=8, memory_mib=4096, accelerators={"fpga": 1})
    wants = ResourceRequest(cpus=4, memory_mib=1024, accelerators={"fpga": 1})
    found = decide(job(1, request=wants), job(2, request=wants), machines=[host])
    assert list(found.starts) == [1]
    assert "4 CPUs, 1 GiB of memory, 1 fpga" in found.reasons[2]


def test_the_kind_of_a_gpu_is_part_of_its_name():
    machines = [machine("a", kind="NVIDIA A100"), machine("b", kind="NVIDIA H100 80GB")]
    found = decide(job(1, request=ResourceRequest(gpus=1, gpu="h100")), machines=machines)
    assert gpus_of(found.starts[1]) == {"b": [0]}


def test_a_job_that_no_machine_can_hold_says_so_and_holds_nobody_up():
    found = decide(job(1, 16), job(2, 8))
    assert list(found.starts) == [2]
    assert found.reasons[1] == (
        "never starts: 0 of 1 machines have 16 GPUs, 1 CPU, and the job needs 1"
    )


def test_a_closed_machine_gets_no_job():
    found = decide(job(1), machines=[machine(is_open=False)])
    assert found.reasons[1] == "waits for 1 free GPU; free now: 0; no machine that has them is open"


def test_the_higher_priority_is_first():
    assert list(decide(job(1, 8), job(2, 8, priority=1)).starts) == [2]


def test_waiting_raises_a_priority_so_that_every_job_is_first_at_some_time():
    old = job(1, 8, submitted_at=NOW - 300.0)
    new = job(2, 8, priority=2, submitted_at=NOW)
    policy = QueuePolicy(ageing_seconds=100.0)
    assert list(decide(old, new, policy=policy).starts) == [1]
    assert list(decide(replace(old, submitted_at=NOW - 200.0), new, policy=policy).starts) == [1]
    assert list(decide(replace(old, submitted_at=NOW - 150.0), new, policy=policy).starts) == [2]


def test_who_used_less_is_first():
    jobs = [job(1, 8, user="ann"), job(2, 8, user="ben")]
    assert list(decide(*jobs, usage={"ann": 10.0, "ben": 9.0}).starts) == [2]
    heavy = [Quota(kind="user", name="ann", weight=2.0)]
    assert list(decide(*jobs, usage={"ann": 10.0, "ben": 9.0}, quotas=heavy).starts) == [1]


def test_gpus_in_use_count_for_the_fair_share():
    state = QueueState(
        jobs=(running(9, 1, user="ann"), job(1, user="ann"), job(2, user="ben")),
        machines=(machine(),),
        now=NOW,
    )
    assert [one.number for one in in_order(state)] == [2, 1]


def test_use_counts_half_after_the_half_life():
    policy = QueuePolicy(half_life_seconds=50.0)
    assert decayed(8.0, 100.0, policy) == 2.0
    assert decayed(8.0, 0.0, policy) == 8.0


@pytest.mark.parametrize("kind", ["user", "team"])
def test_a_quota_holds_its_own_jobs_back_and_no_others(kind):
    quotas = [Quota(kind=kind, name="ann", max_gpus=3)]
    owned = {kind: "ann"}
    found = decide(
        running(9, 2, **owned), job(1, 2, **owned), job(2, 1, **owned), job(3, 4), quotas=quotas
    )
    assert sorted(found.starts) == [2, 3]
    assert found.reasons[1] == (
        f"the quota of {kind} ann is 3 GPUs; 2 are in use, and the job needs 2"
    )


def test_a_job_above_its_quota_reserves_and_preempts_nothing():
    quotas = [Quota(kind="user", name="ann", max_gpus=4)]
    holder = running(9, 8, priority=-1, preemptible=True)
    found = decide(holder, job(1, 8, user="ann", priority=5), job(2, 8), quotas=quotas)
    assert found.preempts == {9: 2}
    assert found.reasons[1].startswith("the quota of user ann is 4 GPUs")


def test_a_quota_of_jobs():
    quotas = [Quota(kind="user", name="ann", max_jobs=1)]
    found = decide(job(1, user="ann"), job(2, user="ann"), quotas=quotas)
    assert found.reasons == {2: "the quota of user ann is 1 job at a time; now running: 1"}


def test_a_short_job_goes_before_a_reservation():
    holder = running(9, 6, since=0.0, expected_seconds=100.0)
    found = decide(holder, job(1, 8), job(2, 2, seconds=100.0), job(3, 2, seconds=50.0))
    assert list(found.starts) == [2]
    assert "starts at the latest at" in found.reasons[1]
    assert "when job 9 ends" in found.reasons[1]


def test_a_long_job_may_not_delay_a_reservation():
    holder = running(9, 6, since=0.0, expected_seconds=100.0)
    found = decide(holder, job(1, 8), job(2, 2, seconds=101.0), job(3, 2))
    assert not found.starts
    assert found.reasons[2] == "would delay job 1, for which resources are kept"


def test_a_job_of_unknown_length_takes_what_a_reservation_leaves():
    holder = running(9, 5, since=0.0, expected_seconds=100.0)
    found = decide(holder, job(1, 4), job(2, 2), job(3, 2))
    assert list(found.starts) == [2]  # free now: 3, the reservation needs 4 of 8: 2 of 4 are spare


def test_the_spare_beside_a_reservation_is_used_once():
    holder = running(9, 5, since=0.0, expected_seconds=100.0)
    found = decide(holder, job(1, 7), job(2, 1), job(3, 1), job(4, 1))
    assert list(found.starts) == [2]


def test_behind_a_job_of_unknown_length_nobody_knows_the_time():
    found = decide(running(9, 8), job(1, 8))
    assert found.reasons[1] == (
        "waits for 8 free GPUs; free now: 0; starts when job 9, whose length is not known, ends"
    )


def test_a_higher_priority_makes_preemptible_jobs_save_and_stop():
    jobs = [
        running(7, 4, first=0, since=10.0, preemptible=True),
        running(8, 4, first=4, since=20.0, preemptible=True),
    ]
    found = decide(*jobs, job(1, 4, priority=1))
    assert found.preempts == {7: 1}  # the one that lost least
    assert found.reasons[1].endswith("makes room by saving and stopping job 7")


def test_only_jobs_that_must_make_room_do():
    jobs = [
        running(6, 1, first=0, since=10.0, preemptible=True),
        running(7, 7, first=1, since=20.0, preemptible=True),
    ]
    assert decide(*jobs, job(1, 7, priority=1)).preempts == {7: 1}


@pytest.mark.parametrize("change", [{"preemptible": False}, {"priority": 1}, {"priority": 2}])
def test_nobody_else_makes_room(change):
    holder = replace(running(9, 8, preemptible=True), **change)
    assert not decide(holder, job(1, 8, priority=1)).preempts


def test_a_job_that_makes_room_already_is_enough():
    jobs = [
        running(7, 4, first=0, preemptible=True, state="preempting", preempted_at=NOW - 5),
        running(8, 4, first=4, preemptible=True),
    ]
    found = decide(*jobs, job(1, 4, priority=1))
    assert not found.preempts
    assert "when job 7 ends" in found.reasons[1]


def test_jobs_that_are_held_or_have_ended_are_left_alone():
    assert decide(job(1, state="held"), job(2, state="failed")).starts == {}


def test_no_machines_is_a_reason():
    assert possible(ResourceRequest(), ()) == (
        "never starts: 0 of 0 machines have 1 CPU, and the job needs 1"
    )


def random_state(draw):
    """Return a state with some jobs of random shapes, of which the plan starts some."""
    machines = [
        machine(f"m{n}", draw.choice((2, 4, 8)), cpus=16) for n in range(draw.choice((1, 3)))
    ]
    jobs = [
        job(
            number,
            draw.choice((0, 1, 1, 2, 4, 8)),
            hosts=draw.choice(((1, 1), (1, 3), (2, 2))),
            gib=draw.choice((0, 0, 10, 30)),
            seconds=draw.choice((None, 10.0, 1000.0)),
            user=draw.choice("abc"),
            priority=draw.choice((0, 0, 1)),
            preemptible=draw.random() < 0.5,
        )
        for number in range(1, 30)
    ]
    quotas = (Quota(kind="user", name="a", max_gpus=6),)
    return QueueState(jobs=tuple(jobs), machines=tuple(machines), now=NOW, quotas=quotas)


def started(state, found):
    """Return the state after a plan, with some of the running jobs gone."""
    jobs = [
        replace(one, state="running", started_at=state.now, allocation=found.starts[one.number])
        if one.number in found.starts
        else one
        for one in state.jobs
    ]
    return replace(state, jobs=tuple(jobs), now=state.now + 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_overbooked_and_everything_that_can_start_does(seed):
    draw = random.Random(seed)
    state = random_state(draw)
    for _ in range(60):
        found = plan(state)
        state = started(state, found)
        active = [one for one in state.jobs if one.is_active]
        free = FreeCapacity.of(state.machines, [one.allocation for one in active])
        for host in (free.host(one.name) for one in state.machines):
            assert min([*host.gpus, host.cpus, host.memory_mib]) >= 0
        waiting = {one.number for one in state.jobs if one.state == "waiting"}
        assert waiting == set(found.reasons)
        gone = [one.number for one in active if draw.random() < 0.5]
        state = replace(state, jobs=tuple(o for o in state.jobs if o.number not in gone))
    never = [one for one in state.jobs if one.state == "waiting"]
    assert all(
        possible(one.request, state.machines) or "quota" in found.reasons[one.number]
        for one in never
    )


@pytest.mark.parametrize("seconds", [None, 10.0])
def test_a_large_job_does_not_starve_behind_small_ones(seconds):
    small = [job(number, seconds=seconds) for number in range(2, 10)]
    state = QueueState(jobs=tuple(small), machines=(machine(),), now=NOW)
    state = started(state, plan(state))
    state = replace(state, jobs=(*state.jobs, job(1, 8, submitted_at=NOW)))
    for number in range(10, 30):
        newcomer = job(number, seconds=seconds, submitted_at=NOW + number)
        state = replace(state, jobs=(*state.jobs, newcomer), now=NOW + number)
        found = plan(state)
        if 1 in found.starts:
            return
        state = started(state, found)
        oldest = next(one for one in state.jobs if one.is_active)
        state = replace(state, jobs=tuple(one for one in state.jobs if one is not oldest))
    pytest.fail("the large job waits although all jobs before it have ended")
