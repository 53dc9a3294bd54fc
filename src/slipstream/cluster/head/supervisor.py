"""The supervisor of a run: it waits for hosts, and starts the ranks, again after faults."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from slipstream.cluster.elastic import ElasticOptions, launch_elastic
from slipstream.cluster.elastic.flight_log import ElasticFlightLog
from slipstream.cluster.head.attempt import AttemptDisplay
from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.placement import RunPlacement
from slipstream.cluster.head.roles import awaited_ranks, role_argv
from slipstream.cluster.head.sources import HostsThatCame
from slipstream.cluster.head.switchboard import Switchboard, TakenHost
from slipstream.cluster.head.verdict import RestartCount
from slipstream.cluster.launch import Host, Job, launch
from slipstream.cluster.launch.flight_log import FlightLog
from slipstream.cluster.launch.launcher import Failure
from slipstream.cluster.launch.output_files import ElasticOutputFiles, OutputFiles
from slipstream.cluster.progress import measured_rates
from slipstream.processor import num_gpus
from slipstream.settings import progress_environment, progress_file

DEADLINE_CODE = 124  # like that of timeout(1)
LOST_CODE = 1
# Time before the cloud takes the head's own host away in which another host gets the head.
MOVE_SECONDS = 20.0
CANCELLED_CODE = 128 + signal.SIGTERM


class _LeftError(Exception):
    """A signal has ended the run while no rank was running."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """The end of a run: its last state, the exit code and the reason."""

    state: str
    exit_code: int
    reason: str = ""


class Supervisor:
    """The supervisor of one run.

    Args:
        placement: Run to supervise.
        folder: Folder of the run on this host.
        journal: Journal that gets all events.
        board: Hosts of the run, or None if its ranks run on this host.
    """

    def __init__(
        self, placement: RunPlacement, folder: Path, journal: Journal, board: Switchboard | None
    ) -> None:
        self._placement = placement
        self._folder = folder
        self._journal = journal
        self._board = board
        self._attempts = RestartCount(placement.retry)
        self._has_asked = False
        self._progress = progress_file() or folder / "progress"

    def run(self) -> FinalState:
        """Run the job until it has ended for good; call this in the main thread."""
        earlier = {
            number: signal.signal(number, self._leave) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            return self._run()
        except _LeftError:
            return FinalState(
                "cancelled", CANCELLED_CODE, "a signal came while no rank was running"
            )
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def _run(self) -> FinalState:
        while True:
            hosts = self._wait_for_hosts()
            if isinstance(hosts, FinalState):
                return hosts
            code, failure, seconds = self._attempt(hosts)
            if failure is None and code == 0:
                return FinalState("succeeded", 0)
            if self._is_over():
                return FinalState("failed", DEADLINE_CODE, "the deadline is over")
            if failure is None or failure.after_signal:
                return FinalState("cancelled", code, "a signal ended the job")
            reason = self._attempts.reason_to_stop(failure)
            if reason:
                return FinalState("failed", code, f"{failure.reason}; {reason}")
            pause = self._attempts.count(failure, seconds)
            if self._attempts.is_bad(failure.host):
                self._tell_of_bad_host(failure.host)
            self._pause(failure, pause)

    # ---- hosts ----

    def _wait_for_hosts(self) -> tuple[Host, ...] | FinalState:
        """Return the hosts of the next attempt, or the result if too few come."""
        placement = self._placement
        if self._board is None:
            return (Host(name="localhost", slots=placement.processes or num_gpus() or 1),)
        began_at = time.monotonic()
        patience = (
            placement.host_wait_seconds if self._attempts.num_starts else placement.lost_seconds
        )
        self._journal.state("starting", f"waits for {placement.max_hosts} hosts")
        while True:
            self._ask_for_other_head()
            waited = time.monotonic() - began_at
            hosts = self._usable(self._board.hosts)
            if len(hosts) < placement.min_hosts and waited >= placement.host_wait_seconds:
                hosts = self._in_order(self._board.hosts)  # a bad host is better than none
            if len(hosts) >= placement.max_hosts:
                return hosts[: placement.max_hosts]
            if len(hosts) >= placement.min_hosts and waited >= min(
                patience, placement.host_wait_seconds
            ):
                return hosts
            if self._is_over():
                return FinalState("failed", DEADLINE_CODE, "the deadline is over")
            if waited >= placement.lost_seconds:
                names = ", ".join(host.name for host in hosts) or "none"
                return FinalState(
                    "failed",
                    LOST_CODE,
                    f"{placement.min_hosts} hosts are needed, and {len(hosts)} came within"
                    f" {placement.lost_seconds:g} s: {names}",
                )
            self._board.wait_for_change(0.5)

    def _find_leaving(self, names: Sequence[str]) -> str:
        """Return the name of a host that the cloud takes away, so that the attempt must end now.

        An elastic job goes on without that host, unless it is the head's own, which gives notice to
        the controller as late as possible.
        """
        for taken in () if self._board is None else self._board.taken:
            margin = self._placement.grace_seconds + MOVE_SECONDS
            if self._is_own(taken):
                must_end = time.time() >= taken.at - margin
            else:
                must_end = self._placement.retry.scope == "group" and taken.host.name in names
            if must_end:
                return taken.host.name
        return ""

    def _is_own(self, taken: TakenHost) -> bool:
        """Return whether a host is that of this head."""
        return taken.host.address in ("127.0.0.1", *self._placement.heads)

    def _ask_for_other_head(self) -> None:
        """Tell the controller once that the cloud takes the host of this head away."""
        own = [taken for taken in self._board.taken if self._is_own(taken)] if self._board else []
        if own and not self._has_asked:
            self._has_asked = True
            self._journal.moving(own[0].host.name)

    def _usable(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """Return the hosts in the order of the placement, without those that are bad."""
        return self._in_order([host for host in hosts if not self._attempts.is_bad(host.name)])

    def _in_order(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        order = {name: index for index, name in enumerate(self._placement.hosts)}
        return tuple(sorted(hosts, key=lambda host: order.get(host.name, len(order))))

    def _tell_of_bad_host(self, name: str) -> None:
        """Tell that a host is not used, so that the controller brings another one."""
        rules = self._placement.retry
        self._journal.display.note(
            f"{name} is not used for {rules.bad_host_seconds:g} s, because"
            f" {rules.bad_host_failures} failures in a row began there; another host is wanted"
        )
        if self._board is not None:
            self._journal.host(name, is_there=False)

    # ---- one attempt ----

    def _attempt(self, hosts: tuple[Host, ...]) -> tuple[int, Failure | None, float]:
        """Run the ranks once; return the exit code, the failure and the time in seconds."""
        self._attempts.num_starts += 1
        number = self._attempts.num_starts
        names = [host.name for host in hosts]
        slots = [host.slots for host in hosts]
        self._journal.state("running", attempt=number, hosts=names, slots=slots)
        job = self._job(hosts, number)
        began_at = time.monotonic()
        shown = AttemptDisplay(
            self._journal.display, self._placement, lambda: self._find_leaving(names)
        )
        with shown.watched():
            run = self._run_members if self._placement.retry.scope == "worker" else self._run_group
            code = run(job, shown)
        seconds = time.monotonic() - began_at
        self._journal.measured(number, seconds, measured_rates(self._progress))
        return code, shown.failure, seconds

    def _job(self, hosts: tuple[Host, ...], number: int) -> Job:
        placement = self._placement
        program = placement.program
        if placement.roles:
            addresses = [host.address or "127.0.0.1" for host in hosts for _ in range(host.slots)]
            program = role_argv(placement.python, placement.roles, addresses)
        return Job(
            hosts=hosts,
            program=program,
            module=placement.module and not placement.roles,
            awaited=awaited_ranks(placement.roles) if placement.roles else None,
            cwd=placement.cwd,
            python=placement.python,
            environ=dict(os.environ),
            chosen={
                **progress_environment(self._progress),
                **placement.environ,
                "TORCHELASTIC_RESTART_COUNT": str(number - 1),
            },
            grace_seconds=placement.grace_seconds,
            flight_folder=self._folder / "flight" / f"attempt.{number}",
            connect=None if self._board is None else self._board.connect,
        )

    def _run_group(self, job: Job, shown: AttemptDisplay) -> int:
        logs = self._folder / "logs" / f"attempt.{self._attempts.num_starts}"
        files = OutputFiles(shown, logs, job.world_size)
        flight = FlightLog(files, self._make_flight_folder(job), job)
        try:
            return launch(job, flight, flight=flight)
        finally:
            flight.remove_if_empty()

    def _run_members(self, job: Job, shown: AttemptDisplay) -> int:
        logs = self._folder / "logs" / f"attempt.{self._attempts.num_starts}"
        files = ElasticOutputFiles(shown, logs)
        flight = ElasticFlightLog(files, self._make_flight_folder(job), job)
        placement = self._placement
        per_host = job.hosts[0].slots
        source = None if self._board is None else HostsThatCame(self._board, self._usable)
        options = ElasticOptions(
            min_ranks=placement.min_hosts * per_host,
            max_ranks=placement.max_hosts * per_host,
            source=source,
            max_restarts=None,
            wait_seconds=placement.lost_seconds,
        )
        try:
            return launch_elastic(job, options, flight, flight=flight)
        finally:
            flight.remove_if_empty()

    def _make_flight_folder(self, job: Job) -> Path:
        assert job.flight_folder is not None
        job.flight_folder.mkdir(parents=True, exist_ok=True)
        return job.flight_folder

    # ---- between attempts ----

    def _pause(self, failure: Failure, seconds: float) -> None:
        who = failure.host if failure.rank is None else f"rank {failure.rank} on {failure.host}"
        when = f"in {seconds:g} s" if seconds else "at once"
        text = f"{who}: {failure.reason}; the job starts again {when}"
        self._journal.state("retrying", text, restarts=self._attempts.num_restarts)
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_over():
            time.sleep(min(0.2, max(until - time.monotonic(), 0.0)))

    def _is_over(self) -> bool:
        deadline = self._placement.deadline_at
        return deadline is not None and time.time() >= deadline

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        raise _LeftError
