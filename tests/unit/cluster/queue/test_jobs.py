"""The jobs, machines and quotas in the database, and the changes of their states."""

import pytest
from sqlalchemy.exc import IntegrityError

from slipstream.cluster.queue import (
    JobQueue,
    JobSubmission,
    MachinePool,
    QueueGpu,
    QueueMachine,
    QueueStore,
    ResourceRequest,
)
from slipstream.cluster.queue.attempts import Attempts, StartStatus
from slipstream.cluster.queue.shapes import QueuePolicy, Quota
from slipstream.errors import ConfigError, UsageError

NOW = 1_000_000.0


def ended(exit_code):
    """Return the status of a start that has ended."""
    return StartStatus(state="ended", exit_code=exit_code)


class Queue:
    """A queue in a folder, with one machine of two GPUs."""

    def __init__(self, home):
        self.store = QueueStore(home)
        self.jobs = JobQueue(self.store)
        self.pool = MachinePool(self.store)
        self.attempts = Attempts(self.store, QueuePolicy(half_life_seconds=100.0))
        gpu = QueueGpu(kind="H100", memory_mib=80 * 1024)
        self.pool.set_machine(QueueMachine(name="a", gpus=(gpu, gpu), cpus=8))

    def submit(self, gpus=1, **others):
        """Submit a job and return its number."""
        request = ResourceRequest(gpus=gpus)
        return self.jobs.submit(
            JobSubmission(command=("true",), cwd="/", request=request, **others)
        )

    def start(self):
        """Start what can start, and return the tokens by job."""
        self.attempts.decide(NOW)
        tokens = {attempt.job: attempt.token for attempt in self.attempts.open()}
        for token in tokens.values():
            self.attempts.started(token, NOW + 1.0)
        return tokens

    def state(self, number):
        """Return the state of a job and its reason."""
        job = self.jobs.job(number)
        return job.state, job.message


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path / "home")
    yield queue
    queue.store.close()


def test_a_job_runs_to_its_end(queue):
    number = queue.submit(user="ann")
    token = queue.start()[number]
    assert queue.state(number) == ("running", "")
    queue.attempts.ended(token, ended(0), NOW + 11.0)
    assert queue.state(number) == ("succeeded", "")
    assert queue.jobs.jobs() == []
    (job,) = queue.jobs.jobs(ended=True)
    assert (job.exit_code, job.ended_at, job.num_attempts) == (0, NOW + 11.0, 1)
    assert [event.kind for event in queue.jobs.events(number)] == ["submit", "start", "end"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (3, "exit code 3"),
        (-9, "ended by signal 9"),
        (None, "its processes vanished without an exit code"),
    ],
)
def test_a_failed_job_says_why(queue, code, message):
    number = queue.submit()
    queue.attempts.ended(queue.start()[number], ended(code), NOW + 2.0)
    assert queue.state(number) == ("failed", message)


def test_an_end_counts_once(queue):
    number = queue.submit(user="ann")
    token = queue.start()[number]
    for code in (0, 1):
        queue.attempts.ended(token, ended(code), NOW + 10.0)
    queue.attempts.started(token, NOW + 20.0)
    assert queue.state(number) == ("succeeded", "")
    assert len(queue.jobs.events(number)) == 3


def test_used_gpu_seconds_count_half_after_the_half_life(queue):
    first, second = queue.submit(gpus=2, user="ann"), queue.submit(gpus=2, user="ann")
    queue.attempts.ended(queue.start()[first], ended(0), NOW + 10.0)
    queue.attempts.decide(NOW + 100.0)
    (attempt,) = queue.attempts.open()
    assert attempt.job == second
    queue.attempts.ended(attempt.token, ended(0), NOW + 110.0)
    with queue.store.transaction() as session:
        ((used, at),) = session.connection().exec_driver_sql("SELECT gpu_seconds, at FROM usage")
    assert (used, at) == (20.0 / 2 + 20.0, NOW + 110.0)


def test_a_preempted_job_goes_on_later(queue):
    low = queue.submit(gpus=2, preemptible=True)
    token = queue.start()[low]
    high = queue.submit(gpus=1, priority=1)
    queue.attempts.decide(NOW + 5.0)
    assert queue.jobs.job(low).state == "preempting"
    assert queue.jobs.job(high).state == "waiting"
    queue.attempts.ended(token, ended(75), NOW + 6.0)
    assert queue.jobs.job(low).state == "waiting"
    assert high in queue.start()
    assert queue.jobs.job(low).state == "waiting"
    assert queue.jobs.events(low)[-1].text.startswith("has made room")


def test_a_preempted_job_that_ends_with_0_is_done(queue):
    low = queue.submit(gpus=2, preemptible=True)
    token = queue.start()[low]
    queue.submit(gpus=1, priority=1)
    queue.attempts.decide(NOW + 5.0)
    queue.attempts.ended(token, ended(0), NOW + 6.0)
    assert queue.state(low) == ("succeeded", "")


def test_a_preemptible_job_whose_processes_vanished_goes_on(queue):
    number = queue.submit(preemptible=True)
    queue.attempts.ended(queue.start()[number], ended(None), NOW + 6.0)
    assert queue.jobs.job(number).state == "waiting"


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_when_it_has_ended(queue):
    waiting, running = queue.submit(held=True), queue.submit()
    token = queue.start()[running]
    assert queue.jobs.cancel(waiting) == "cancelled"
    assert queue.jobs.cancel(running) == "cancelling"
    queue.attempts.ended(token, ended(0), NOW + 6.0)
    assert queue.state(running) == ("cancelled", "on request")
    with pytest.raises(UsageError, match=f"job {running} cannot be cancelled: it has cancelled"):
        queue.jobs.cancel(running)


def test_a_held_job_waits_for_its_release(queue):
    number = queue.submit()
    queue.jobs.hold(number)
    assert queue.start() == {}
    with pytest.raises(UsageError, match="hold needs a job that is waiting"):
        queue.jobs.hold(number)
    queue.jobs.release(number)
    assert number in queue.start()


def test_the_top_of_the_queue_is_above_all_others(queue):
    low, high = queue.submit(gpus=2), queue.submit(gpus=2, priority=4)
    assert queue.jobs.set_priority(low) == 5
    assert low in queue.start()
    assert queue.jobs.set_priority(high, 2) == 2


def test_jobs_that_wait_say_for_what(queue):
    first, second = queue.submit(gpus=2), queue.submit(gpus=2)
    queue.start()
    assert queue.jobs.job(first).message == ""
    assert queue.jobs.job(second).message.startswith("waits for 2 free GPUs; free now: 0; starts")
    assert queue.jobs.impossible(ResourceRequest(gpus=3)).startswith("never starts")


def test_a_machine_in_use_stays_and_a_closed_one_gets_nothing(queue):
    number = queue.submit()
    token = queue.start()[number]
    with pytest.raises(UsageError, match=f"machine a is in use by job {number}"):
        queue.pool.remove_machine("a")
    with pytest.raises(UsageError, match="in use"):
        queue.pool.set_machine(QueueMachine(name="a", cpus=8))
    queue.pool.open_machine("a", False)
    queue.submit()
    queue.attempts.ended(token, ended(0), NOW + 6.0)
    assert queue.start() == {}
    queue.pool.remove_machine("a")
    assert queue.pool.machines() == []
    with pytest.raises(UsageError, match="there is no machine 'a'; known: none"):
        queue.pool.remove_machine("a")


def test_quotas_are_kept_and_replaced(queue):
    queue.pool.set_quota(Quota(kind="user", name="ann", max_gpus=2))
    queue.pool.set_quota(Quota(kind="user", name="ann", max_gpus=1.0))
    assert queue.pool.quotas() == [Quota(kind="user", name="ann", max_gpus=1.0)]
    first, second = queue.submit(user="ann"), queue.submit(user="ann")
    assert set(queue.start()) == {first}
    assert "the quota of user ann is 1 GPUs" in queue.jobs.job(second).message
    with pytest.raises(UsageError, match="a weight above 0"):
        queue.pool.set_quota(Quota(kind="user", name="ann", weight=0.0))


def test_the_database_allows_one_attempt_of_a_job_at_a_time(queue):
    number = queue.submit()
    queue.start()
    second = (
        "INSERT INTO attempts (token, job, allocation, gpu_units, decided_at)"
        f" VALUES ('other', {number}, '[]', 0, 0)"
    )
    failure = pytest.raises(IntegrityError, match="UNIQUE constraint failed")
    with failure, queue.store.transaction("test") as session:
        session.connection().exec_driver_sql(second)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": ()}, "the job has no command"),
        ({"request": ResourceRequest(gpus=-1)}, "allowed: numbers from 0 on"),
        ({"request": ResourceRequest(min_hosts=2)}, "asks for 2 to 1 hosts"),
    ],
)
def test_a_wrong_submission_is_refused(queue, changes, message):
    with pytest.raises(UsageError, match=message):
        queue.jobs.submit(JobSubmission(**{"command": ("true",), "cwd": "/", **changes}))


def test_unknown_jobs(queue):
    with pytest.raises(UsageError, match="there is no job 1; the queue has had no job"):
        queue.jobs.job(1)
    queue.submit()
    with pytest.raises(UsageError, match="there is no job 7; numbers go up to 1"):
        queue.jobs.events(7)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "queue.db").write_text("no database, but long enough for a header" * 9)
    with pytest.raises(ConfigError, match=r"queue.db cannot be used: .*; move it away"):
        QueueStore(tmp_path)


def test_only_the_owner_reads_the_variables_of_jobs(queue):
    assert (queue.store.home / "queue.db").stat().st_mode & 0o077 == 0


def test_a_database_that_somebody_has_locked_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("slipstream.cluster.records.database.BUSY_SECONDS", 0.1)
    holder, other = QueueStore(tmp_path), QueueStore(tmp_path)
    message = "queue.db cannot be used: database is locked; make room on its disk, or end the"
    with holder.transaction() as session:
        session.connection()
        with pytest.raises(ConfigError, match=message):
            JobQueue(other).jobs()
    holder.close()
    other.close()
