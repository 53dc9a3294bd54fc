"""What is deleted of jobs that have ended, and what is kept."""

import os
import threading

import pytest
from waiting import wait_until

from slipstream.cluster.queue import (
    JobQueue,
    JobSubmission,
    MachinePool,
    QueueDaemon,
    QueueMachine,
    QueueStore,
    shim,
)
from slipstream.cluster.queue.attempts import Attempts, StartStatus
from slipstream.cluster.queue.daemon import process_runner
from slipstream.cluster.queue.folders import fifo_path, runs_folder, starts_folder
from slipstream.cluster.queue.housekeeping import KeepRules, clean_up
from slipstream.cluster.queue.shapes import QueuePolicy

NOW = 1_000_000.0
DAY = 86400.0


class Past:
    """A queue with some starts that have ended, each a day after the one before."""

    def __init__(self, home):
        self.store = QueueStore(home)
        self.jobs = JobQueue(self.store)
        MachinePool(self.store).set_machine(QueueMachine(name="a", cpus=100))
        self.attempts = Attempts(self.store, QueuePolicy())

    def start(self, now, spec=None):
        """Start a job, and make the folders of its start; return the token."""
        number = self.jobs.submit(JobSubmission(command=("true",), cwd="/", spec=spec))
        self.attempts.decide(now)
        (token,) = (one.token for one in self.attempts.open() if one.job == number)
        names = [runs_folder(self.store.home) / token] if spec else []
        client = f"{token}.1" if spec else token
        for path in (*names, starts_folder(self.store.home) / client):
            path.mkdir(parents=True)
            (path / "output").write_text("text\n")
        return token

    def end(self, token, now):
        """End a start."""
        self.attempts.ended(token, StartStatus(state="ended", exit_code=0), now)

    def folders(self):
        """Return the names of the folders that are left."""
        folders = (starts_folder(self.store.home), runs_folder(self.store.home))
        return {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}


@pytest.fixture
def past(tmp_path):
    past = Past(tmp_path)
    yield past
    past.store.close()


def test_old_starts_and_all_surplus_ones_lose_their_folders(past):
    tokens = [past.start(NOW + day * DAY) for day in range(5)]
    for day, token in enumerate(tokens):
        past.end(token, NOW + day * DAY)
    rules = KeepRules(seconds=3.5 * DAY, max_starts=100)
    assert clean_up(past.store, rules, NOW + 5 * DAY) == 2
    assert past.folders() == set(tokens[2:])
    assert clean_up(past.store, KeepRules(seconds=100 * DAY, max_starts=1), NOW + 5 * DAY) == 2
    assert past.folders() == {tokens[4]}


def test_a_start_that_has_not_ended_keeps_its_folders_however_old_it_is(past):
    open_tokens = [past.start(NOW), past.start(NOW, spec={"name": "job"})]
    assert clean_up(past.store, KeepRules(seconds=DAY, max_starts=0), NOW + 100 * DAY) == 0
    assert past.folders() == {*open_tokens, f"{open_tokens[1]}.1"}
    past.end(open_tokens[1], NOW)
    assert clean_up(past.store, KeepRules(seconds=DAY), NOW + 100 * DAY) == 2
    assert past.folders() == {open_tokens[0]}


def test_folders_without_a_token_are_deleted_when_they_are_old(past):
    for name, at in ((".old", NOW), (".young", NOW + 2 * DAY)):
        path = starts_folder(past.store.home) / name
        path.mkdir(parents=True)
        os.utime(path, (at, at))
    clean_up(past.store, KeepRules(seconds=DAY), NOW + 2 * DAY)
    assert past.folders() == {".young"}


def test_old_and_surplus_events_are_deleted(past):
    token = past.start(NOW)
    past.end(token, NOW)
    assert len(past.jobs.events()) == 2  # submitted at the present time, and ended
    clean_up(past.store, KeepRules(seconds=DAY), NOW + 2 * DAY)
    assert [event.kind for event in past.jobs.events()] == ["submit"]
    past.start(NOW + 2 * DAY)
    clean_up(past.store, KeepRules(max_events=1), NOW)
    assert [event.job for event in past.jobs.events()] == [2]


@pytest.mark.multiprocess
def test_the_daemon_cleans_up_when_it_starts(past):
    token = past.start(NOW)
    past.end(token, NOW)
    over = threading.Event()
    daemon = QueueDaemon(past.store, process_runner(past.store.home), keep=KeepRules(seconds=DAY))
    thread = threading.Thread(target=daemon.serve, args=(over.is_set,))
    thread.start()
    try:
        wait_until(lambda: token not in past.folders())
    finally:
        over.set()
        while thread.is_alive():
            shim.poke(str(fifo_path(past.store.home)))
            thread.join(0.05)
