"""The sizes of elastic jobs, and the number of machines of a group that they need."""

import threading

import pytest
from waiting import wait_until

from slipstream.cluster.queue import (
    JobQueue,
    JobSubmission,
    MachinePool,
    QueueDaemon,
    QueueGpu,
    QueueMachine,
    QueueStore,
    ResourceRequest,
    shim,
)
from slipstream.cluster.queue.autoscaling.autoscale import names_up_to
from slipstream.cluster.queue.autoscaling.resizing import decide_sizes, forget_sizes, write_sizes
from slipstream.cluster.queue.autoscaling.scaled_group import (
    ScaledGroup,
    change_scaled_group,
    read_scaled_group,
    write_scaled_group,
)
from slipstream.cluster.queue.daemon import process_runner
from slipstream.cluster.queue.folders import fifo_path, output_path
from slipstream.cluster.queue.shapes import HostShare, QueueJob, QueuePolicy, QueueState, Quota

NOW = 1_000_000.0
GPU = QueueGpu(kind="H100", memory_mib=80 * 1024)
LIKE = QueueMachine(name="task0.pool", gpus=(GPU, GPU), cpus=8, login="u@a", group="pool")
SCALED = ScaledGroup(
    group="pool",
    min_machines=0,
    max_machines=4,
    machine_price=1.0,
    waiting_price=1.0,
    idle_seconds=60.0,
    lease_seconds=3600.0,
    settle_seconds=0.0,
    like=LIKE,
)


def job(number, gpus=2, hosts=(1, 1), share=0, **others):
    """Return a job that waits."""
    least, most = hosts
    request = ResourceRequest(gpus=gpus, gpu_memory_mib=share, min_hosts=least, max_hosts=most)
    return QueueJob(number=number, request=request, submitted_at=NOW - 10.0, **others)


def running(number, num_hosts, *, hosts=(1, 4), preemptible=True):
    """Return a job that runs on the first machines of the group."""
    shares = tuple(
        HostShare(machine=f"task{i}.pool", gpus=((0, GPU.memory_mib), (1, GPU.memory_mib)), cpus=1)
        for i in range(num_hosts)
    )
    fields = {"state": "running", "started_at": NOW - 5.0, "allocation": shares}
    return job(number, hosts=hosts, preemptible=preemptible, **fields)


def members(count):
    """Return machines of the group."""
    fields = {"gpus": LIKE.gpus, "cpus": 8, "login": "u@a", "group": "pool"}
    return tuple(QueueMachine(name=f"task{i}.pool", **fields) for i in range(count))


def sizes(*jobs, machines=(), rates=None, scaled=SCALED, quotas=()):
    """Return the decision for some jobs."""
    state = QueueState(jobs=jobs, machines=machines, now=NOW, quotas=quotas)
    return decide_sizes(state, rates or {}, scaled)


def test_no_job_needs_no_machine():
    assert sizes(machines=members(2)).machines == 0


def test_each_whole_machine_of_jobs_that_wait_is_needed_up_to_the_largest_number():
    assert sizes(job(1), job(2)).machines == 2
    assert sizes(*(job(number) for number in range(1, 9))).machines == 4


def test_shares_of_a_machine_count_as_shares():
    assert sizes(*(job(number, gpus=1, share=40 * 1024) for number in range(1, 5))).machines == 1


def test_a_job_that_fits_on_no_machine_needs_none():
    assert sizes(job(1, gpus=3)).machines == 0


def test_a_job_that_a_quota_holds_back_needs_none():
    quota = Quota(kind="user", name="ann", max_gpus=1)
    assert sizes(job(1, user="ann"), quotas=(quota,)).machines == 0


def test_machines_outside_of_the_group_are_used_first():
    own = QueueMachine(name="own", gpus=(GPU, GPU), cpus=8)
    assert sizes(job(1), machines=(own,)).machines == 0
    assert sizes(job(1), job(2), machines=(own,)).machines == 1


def test_one_machine_comes_before_anybody_knows_what_it_has():
    assert sizes(job(1), job(2), scaled=ScaledGroup(**unseen())).machines == 1


def unseen():
    """Return the fields of a group of which no machine was seen."""
    names = (name for name in SCALED.__slots__ if name != "like")
    return {name: getattr(SCALED, name) for name in names}


def test_a_job_grows_when_more_machines_make_a_sample_cheaper_and_are_there():
    rates = {1: {1: 10.0}}
    alone = sizes(running(1, 1), machines=members(1), rates=rates)
    assert (alone.hosts, alone.machines, alone.resizes) == ({1: 2}, 2, ())
    assert sizes(running(1, 1), machines=members(2), rates=rates).resizes == (1,)


def test_a_job_that_scales_badly_goes_back_and_is_told_why():
    found = sizes(running(1, 2), machines=members(2), rates={1: {1: 10.0, 2: 11.0}})
    assert (found.hosts, found.resizes, found.machines) == ({1: 1}, (1,), 2)
    assert found.reasons[1].startswith("runs on 1 machine: on 2 each machine has 55% of the speed")


def test_a_job_shrinks_when_others_wait_for_the_last_machines():
    limited = ScaledGroup(**{**unseen(), "max_machines": 2, "like": LIKE})
    rates = {1: {1: 10.0, 2: 19.0}}
    found = sizes(running(1, 2), job(2), machines=members(2), rates=rates, scaled=limited)
    assert (found.hosts, found.resizes) == ({1: 1, 2: 1}, (1,))


@pytest.mark.parametrize("fields", [{"preemptible": False}, {"hosts": (1, 1)}])
def test_a_job_that_cannot_be_changed_is_left_alone(fields):
    found = sizes(running(1, 1, **fields), machines=members(4), rates={1: {1: 10.0}})
    assert (found.hosts, found.resizes, found.machines) == ({1: 1}, (), 1)


def test_a_job_without_a_speed_or_with_a_fresh_start_is_left_alone():
    assert sizes(running(1, 1), machines=members(4)).resizes == ()
    patient = ScaledGroup(**{**unseen(), "settle_seconds": 6.0, "like": LIKE})
    rates = {1: {1: 10.0}}
    assert sizes(running(1, 1), machines=members(4), rates=rates, scaled=patient).resizes == ()


def test_a_job_that_only_machines_of_the_group_can_hold_waits_for_them(tmp_path):
    store = QueueStore(tmp_path)
    jobs = JobQueue(store)
    MachinePool(store).set_machine(QueueMachine(name="small", cpus=1))
    submit = lambda **request: jobs.submit(  # noqa: E731
        JobSubmission(command=("true",), cwd="/", request=ResourceRequest(**request))
    )
    large, huge, small = submit(gpus=2), submit(gpus=3), submit()
    assert jobs.job(large).message.startswith("never starts: 0 of 1 machines")
    write_scaled_group(store, ScaledGroup(**unseen()))
    assert jobs.job(huge).message == "waits for machines of pool, which come when jobs need them"
    write_scaled_group(store, SCALED)
    assert jobs.job(large).message == "waits for machines of pool, which come when jobs need them"
    assert jobs.job(huge).message.startswith("never starts: 0 of 5 machines have 3 GPUs")
    assert jobs.job(small).message == "starts now"  # nothing is kept free for those before it
    store.close()


@pytest.mark.parametrize(
    ("numbers", "wanted", "names"),
    [(set(), 2, 2), ({0, 1}, 3, 3), ({0, 3}, 3, 2), ({2}, 1, 1), ({1, 2}, 4, 4)],
)
def test_names_of_machines_that_were_given_back_are_used_again(numbers, wanted, names):
    assert names_up_to(numbers, wanted) == names


def test_the_group_is_kept_as_it_was_chosen(tmp_path):
    store = QueueStore(tmp_path)
    write_scaled_group(store, SCALED)
    change_scaled_group(store, "other", problem="lost")
    change_scaled_group(store, "pool", problem="refused")
    with store.transaction() as session:
        assert read_scaled_group(session) == ScaledGroup(
            **{**unseen(), "like": LIKE, "problem": "refused"}
        )
    write_scaled_group(store, None)
    with store.transaction() as session:
        assert read_scaled_group(session) is None
    store.close()


# Tells the speed of its number of hosts; SIGTERM ends it as if it had saved.
ELASTIC = """
import os, signal, sys, time
from slipstream.cluster import report_progress
signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
count = len(os.environ["SLIPSTREAM_QUEUE_HOSTS"].split(","))
print("runs on", count, flush=True)
while not os.path.exists(sys.argv[1]):
    report_progress({1: 10.0, 2: 11.0}[count], count)
    time.sleep(0.05)
"""


@pytest.mark.multiprocess
def test_a_running_job_is_tried_on_two_machines_and_goes_back(tmp_path):
    import sys

    store = QueueStore(tmp_path)
    pool, jobs = MachinePool(store), JobQueue(store)
    for name in "ab":
        pool.set_machine(QueueMachine(name=name, cpus=1))
    write_scaled_group(store, ScaledGroup(**{**unseen(), "max_machines": 1, "min_machines": 0}))
    request = ResourceRequest(min_hosts=1, max_hosts=2, on="local")
    command = (sys.executable, "-c", ELASTIC, str(tmp_path / "over"))
    submission = JobSubmission(
        command=command, cwd="/", request=request, preemptible=True, grace_seconds=10.0
    )
    number = jobs.submit(submission)
    write_sizes(store, QueuePolicy())
    over = threading.Event()
    server = QueueDaemon(QueueStore(tmp_path), process_runner(tmp_path))
    thread = threading.Thread(target=server.serve, args=(over.is_set,))
    thread.start()
    seen: list[int] = []

    def has_gone_back() -> bool:
        write_sizes(store, QueuePolicy())
        shim.poke(str(fifo_path(tmp_path)))
        found = jobs.job(number)
        count = len(found.allocation) if found.state == "running" else 0
        if count and seen[-1:] != [count]:
            seen.append(count)
        return seen == [1, 2, 1]

    try:
        wait_until(has_gone_back)
        assert jobs.job(number).scaling.startswith("runs on 1 machine: on 2 each machine has 55%")
        (tmp_path / "over").touch()
        wait_until(lambda: jobs.job(number).state == "succeeded")
        kinds = [event.kind for event in jobs.events(number) if event.kind in ("resize", "scale")]
        assert kinds.count("resize") == 2
        assert kinds.count("scale") >= 3
        forget_sizes(store)
        assert output_path(tmp_path, jobs.job(number).token).read_text() == "runs on 1\n"
    finally:
        over.set()
        while thread.is_alive():
            shim.poke(str(fifo_path(tmp_path)))
            thread.join(0.05)
        store.close()
