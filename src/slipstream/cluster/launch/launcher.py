"""The launcher of a job: the ranks start together, receive the user's signals, and end together.

One thread waits for messages of all agents and for signals with one select(). No rank starts before
the agents of all hosts are up. The first rank that fails makes the launcher end all other ranks.
After a signal from the user, the launcher lets the ranks end by themselves, and a second signal
kills them.
"""

import os
import selectors
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from slipstream.cluster.launch.blame import culprit, telling_line
from slipstream.cluster.launch.job import (
    Job,
    forwarded_environment,
    job_environment,
    program_argv,
    rank_environments,
)
from slipstream.cluster.launch.lines import Listener, Transcript
from slipstream.cluster.launch.link import AgentLink, describe_status
from slipstream.cluster.launch.messages import (
    PROTOCOL,
    End,
    Exited,
    FlightFile,
    Hello,
    Kill,
    Message,
    Noticed,
    Output,
    Refused,
    Signal,
    Start,
    Started,
)
from slipstream.cluster.launch.signals import (
    END_SIGNALS,
    PASSED_SIGNALS,
    expect_children,
    signals_as_bytes,
)
from slipstream.errors import InternalError
from slipstream.settings import Settings, thread_environment

# Time after the grace period in which agents may report that ranks have ended. Chosen by hand.
MARGIN_SECONDS = 10.0

LAUNCH_FAILED = 1
_ENDED_BY_LAUNCHER = (0, -signal.SIGTERM, -signal.SIGKILL)


@dataclass(frozen=True, kw_only=True, slots=True)
class AlsoFailed:
    """A rank that failed in addition to `Failure.rank`.

    A rank that SIGTERM or SIGKILL ended does not count, because the launcher sends these signals.

    Args:
        rank: Global rank.
        host: Name of the host on which the rank ran.
        reason: Exit code or signal, in words.
        said: Last line of the rank's output that names an error, or the last line if none names an
            error.
    """

    rank: int
    host: str
    reason: str
    said: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The failure that ended a job.

    Args:
        host: Name of the host on which the failure happened.
        rank: Rank that failed, or None if the host failed. If several ranks failed, `rank` is the
            rank that the others report as lost, even if others ended earlier.
        reason: Exit code, signal or error, in words.
        seconds: Time in seconds from the launcher's start to the failure.
        exit_code: Exit code for the launcher itself.
        after_signal: Name of the signal that the user had sent before the failure; "" (the default)
            for no signal.
        last_lines: Last lines of the rank's output, at most twenty.
        others: Other ranks that failed, in the order in which they ended. Ranks that SIGTERM or
            SIGKILL ended do not count.
    """

    host: str
    rank: int | None
    reason: str
    seconds: float
    exit_code: int
    after_signal: str = ""
    last_lines: Sequence[str] = ()
    others: Sequence[AlsoFailed] = ()


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a rank ended: `status` is its exit code, or the negative number of a signal."""

    host: str
    status: int


class Display(Listener, Protocol):
    """The interface of a display, which shows a job to a person or a program."""

    @property
    def has_no_reader(self) -> bool:
        """Whether the display writes to a pipe that nobody reads any more."""
        ...

    def started(self, rank: int, host: str, pid: int) -> None:
        """Take note that a rank has started."""

    def exited(self, rank: int, host: str, status: int) -> None:
        """Receive an ended rank's exit code, or the negative number of the signal that ended it."""

    def note(self, text: str) -> None:
        """Receive a remark of the launcher."""

    def finished(self, failure: Failure | None) -> None:
        """Receive the result of the job: its failure, or None for success."""


class FlightListener(Protocol):
    """The interface of a listener that keeps what explains a fault."""

    def noticed(self, rank: int, state: str, oom_kills: int | None) -> None:
        """Receive a rank's state before its end, or the kills for lack of memory on its host."""

    def take_file(self, name: str, text: str) -> None:
        """Receive a file that a rank of another host has written."""


def launch(
    job: Job,
    display: Display,
    *,
    own_terminal: bool = False,
    flight: FlightListener | None = None,
) -> int:
    """Run a job; blocks until every rank has ended. Call `launch` in the main thread.

    Args:
        job: Program and hosts of the job.
        display: Display that receives all events.
        own_terminal: Whether rank 0, which must be on this host, writes directly to the standard
            output and standard error of this process (default False).
        flight: Listener for what explains a fault (default None).

    Returns:
        0 for success, else the exit code of the rank that failed first (128 + n if signal n ended
        it), or 1 if a host failed.

    Raises:
        ConfigError: an environment variable has a value that is not allowed.
    """
    expect_children()
    terminal = (os.dup(1), os.dup(2)) if own_terminal else ()
    try:
        with signals_as_bytes(*END_SIGNALS, *PASSED_SIGNALS) as wakeup:
            return _Launcher(job, display, terminal, flight).run(wakeup)
    finally:
        for descriptor in terminal:
            os.close(descriptor)


class _Launcher:
    def __init__(
        self,
        job: Job,
        display: Display,
        terminal: tuple[int, ...],
        flight: FlightListener | None = None,
    ) -> None:
        self._job = job
        self._display = display
        self._flight = flight
        self._terminal = terminal
        self._environ = job_environment(job)
        self._transcript = Transcript(display)
        self._selector = selectors.DefaultSelector()
        self._links: list[AgentLink] = []
        self._failure: Failure | None = None
        self._ended: dict[int, _Ended] = {}
        self._signal: int | None = None
        self._is_ending = False
        self._has_served = False  # whether the ranks that serve others were ended, at the end
        self._began_at = time.monotonic()
        self._connect_seconds = Settings.from_environment(
            job.effective_environ
        ).connect_timeout_seconds
        self._give_up_at: float | None = self._began_at + self._connect_seconds

    def run(self, wakeup: int) -> int:
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._take_signals(wakeup))
        try:
            for index in range(len(self._job.hosts)):
                self._open(AgentLink(self._job, index, self._terminal if index == 0 else ()))
            while any(link.is_open for link in self._links):
                for key, _ in self._selector.select(self._seconds_to_deadline()):
                    if key.fd in self._selector.get_map():
                        key.data()
                self._meet_deadline()
                self._mind_reader()
        finally:
            for link in self._links:
                if link.is_open:
                    link.close()
        failure = self._failure
        if failure is not None and failure.rank is not None:
            failure = self._completed(failure, failure.rank)
        self._display.finished(failure)
        if failure is not None:
            return failure.exit_code
        unstarted = self._signal is not None and not any(link.has_started for link in self._links)
        return 128 + (self._signal or 0) if unstarted else 0

    # ---- hosts ----

    def _open(self, link: AgentLink) -> None:
        self._links.append(link)
        self._selector.register(link.reports, selectors.EVENT_READ, lambda: self._read(link))
        self._selector.register(link.errors, selectors.EVENT_READ, lambda: self._read_errors(link))

    def _read_errors(self, link: AgentLink) -> None:
        if not link.read_errors():
            self._selector.unregister(link.errors)

    def _read(self, link: AgentLink) -> None:
        messages = link.read()
        if messages is None:
            self._close(link)
            return
        for message in messages:
            self._take(link, message)

    def _close(self, link: AgentLink) -> None:
        self._selector.unregister(link.reports)
        if link.errors in self._selector.get_map():
            self._selector.unregister(link.errors)
        reason = link.close()
        ranks = range(link.first_rank, link.first_rank + link.host.slots)
        is_due = link.has_started or not self._is_ending
        if is_due and any(rank not in self._ended for rank in ranks):
            self._fail_host(link, reason)

    def _start_all(self) -> None:
        first = self._links[0].hello
        assert first is not None
        self._give_up_at = None
        for link in self._links:
            assert link.hello is not None
            environ = self._job.effective_environ
            threads = thread_environment(environ, link.hello.num_cores, link.host.slots)
            forwarded = forwarded_environment(link.host, self._job.environ)
            start = Start(
                argv=program_argv(self._job, link.host),
                cwd=self._job.cwd,
                environ={**forwarded, **threads, **self._environ},
                ranks=rank_environments(self._job, link.index, first.free_port),
                grace_seconds=self._job.grace_seconds,
                terminal=self._terminal if link.index == 0 else (),
                nccl_plugin=self._job.nccl_plugin,
                flight_folder="" if link.host.is_local else str(self._job.flight_folder or ""),
            )
            link.send(start)
            self._note_threads(link, threads)

    def _note_threads(self, link: AgentLink, threads: dict[str, str]) -> None:
        if threads and link.index == 0:
            assert link.hello is not None
            (setting,) = (f"{name}={value}" for name, value in threads.items())
            slots = link.host.slots
            self._display.note(
                f"each rank on {link.host.name} gets {setting}, because the host has"
                f" {link.hello.num_cores} cores for {slots} rank{'s' * (slots > 1)}; set the"
                " variable to choose another number"
            )

    # ---- messages ----

    def _take(self, link: AgentLink, message: Message) -> None:
        match message:
            case Hello():
                self._take_hello(link, message)
            case Started():
                rank = link.first_rank + message.local_rank
                self._display.started(rank, link.host.name, message.pid)
            case Output():
                rank = link.first_rank + message.local_rank
                data = message.data.encode("latin-1")
                self._transcript.feed(rank, data, is_error=message.is_error)
            case Exited():
                self._take_exit(link, link.first_rank + message.local_rank, message.status)
            case Noticed():
                if self._flight is not None:
                    rank = link.first_rank + message.local_rank
                    self._flight.noticed(rank, message.state, message.oom_kills)
            case FlightFile():
                if self._flight is not None:
                    self._flight.take_file(message.name, message.text)
            case Refused():
                self._fail_host(link, message.reason)
            case _:
                raise InternalError(
                    f"the agent of {link.host.name} sent the order {message!r}; please report it"
                )

    def _take_hello(self, link: AgentLink, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            self._fail_host(
                link,
                f"its Slipstream uses launch protocol {hello.protocol}, and this host's uses"
                f" {PROTOCOL}; install the same version on both",
            )
            return
        link.hello = hello
        if self._failure is None and all(link.hello is not None for link in self._links):
            self._start_all()

    def _take_exit(self, link: AgentLink, rank: int, status: int) -> None:
        self._display.exited(rank, link.host.name, status)
        self._ended[rank] = _Ended(link.host.name, status)
        if self._has_served:
            return
        if status != 0 and self._failure is None:
            self._fail(link, rank, describe_status(status), 128 - status if status < 0 else status)
        self._end_servers()

    def _end_servers(self) -> None:
        """End the ranks that serve others, once those others have all succeeded."""
        awaited = self._job.awaited
        if awaited is None or self._failure is not None or self._is_ending:
            return
        if all(rank in self._ended and self._ended[rank].status == 0 for rank in awaited):
            self._has_served = True
            self._order_all(End(), self._job.grace_seconds)

    # ---- failure and end ----

    def _fail_host(self, link: AgentLink, reason: str) -> None:
        if self._failure is None:
            self._fail(link, None, reason, LAUNCH_FAILED)

    def _fail(self, link: AgentLink, rank: int | None, reason: str, exit_code: int) -> None:
        self._failure = Failure(
            host=link.host.name,
            rank=rank,
            reason=reason,
            seconds=time.monotonic() - self._began_at,
            exit_code=exit_code,
            after_signal="" if self._signal is None else signal.Signals(self._signal).name,
        )
        if self._signal is None or rank is None:
            self._order_all(End(), self._job.grace_seconds)

    def _completed(self, failure: Failure, first: int) -> Failure:
        """Return a failure with the details that are known only once every rank has ended."""
        last_lines = self._transcript.last_lines
        rank = first if failure.after_signal else culprit(first, last_lines)
        ended = self._ended.get(rank)
        if rank != first and ended is not None:
            by_launcher = ended.status in _ENDED_BY_LAUNCHER
            end = "it had not ended yet" if by_launcher else describe_status(ended.status)
            reason = f"{end}, and rank {first} lost it"
            failure = replace(failure, rank=rank, host=ended.host, reason=reason)
        others = tuple(
            AlsoFailed(
                rank=other,
                host=other_end.host,
                reason=describe_status(other_end.status),
                said=telling_line(last_lines(other)),
            )
            for other, other_end in self._ended.items()
            if other != failure.rank
            and other_end.status not in _ENDED_BY_LAUNCHER
            and not failure.after_signal
        )
        assert failure.rank is not None
        return replace(failure, last_lines=last_lines(failure.rank), others=others)

    def _order_all(self, order: Message, seconds: float) -> None:
        self._is_ending = True
        self._give_up_at = time.monotonic() + seconds + MARGIN_SECONDS
        for link in self._links:
            if link.is_open and link.hello is not None:
                link.send(order)
            elif link.is_open:
                link.kill()  # no rank runs there yet; an agent that starts later ends by itself

    def _take_signals(self, wakeup: int) -> None:
        for number in os.read(wakeup, 64):
            name = signal.Signals(number).name
            if number in PASSED_SIGNALS:
                self._pass_on(number)
            elif self._signal is not None:
                self._order_all(Kill(), 0.0)
                self._display.note(f"{name} came again: the ranks are killed")
            else:
                self._signal = number
                self._pass_on(number)
                self._display.note(f"{name} goes to every rank; another one kills them")

    def _mind_reader(self) -> None:
        """Send SIGTERM to all ranks if nobody reads the output any more (as after `| head`).

        On SIGTERM, programs can save their state.
        """
        if self._display.has_no_reader and self._signal is None and not self._is_ending:
            self._signal = signal.SIGTERM
            self._pass_on(signal.SIGTERM)
            self._display.note("nobody reads the output: SIGTERM goes to every rank")

    def _pass_on(self, number: int) -> None:
        started = [link for link in self._links if link.has_started]
        for link in started:
            link.send(Signal(number=number))
        if not started and number in END_SIGNALS:
            self._order_all(End(), 0.0)

    def _seconds_to_deadline(self) -> float | None:
        return None if self._give_up_at is None else max(0.0, self._give_up_at - time.monotonic())

    def _meet_deadline(self) -> None:
        if self._give_up_at is None or time.monotonic() < self._give_up_at:
            return
        late = [link for link in self._links if link.is_open]
        if not self._is_ending:
            mute = next(link for link in late if link.hello is None)
            self._fail_host(mute, f"its agent did not answer within {self._connect_seconds:g} s")
            return
        self._give_up_at = None
        for link in late:
            self._display.note(f"{link.host.name} does not answer: its ranks may still be running")
            link.kill()
