"""The launcher of an elastic job: failed processes are replaced, and hosts come and go.

One thread waits for messages of all agents, for signals and for the program that prints hosts with
one select(). After each event, `_reconcile` compares the processes that run with the slots that may
be used, and starts and ends processes. A job has four phases:

    gathering   no process runs; processes start together, with ranks, once enough slots are usable
    running     processes that fail are replaced by processes that join
    finishing   a process has ended with 0, so no process starts any more
    ending      a signal or a failure ends all processes
"""

import os
import selectors
import signal
import time
from dataclasses import replace
from enum import Enum

from slipstream.cluster.elastic.ending import JobEnding
from slipstream.cluster.elastic.host_script import HostScript
from slipstream.cluster.elastic.hosts import ElasticHost, HostPool
from slipstream.cluster.elastic.listeners import ElasticDisplay, ElasticFlightListener
from slipstream.cluster.elastic.options import ElasticOptions, HostSource
from slipstream.cluster.elastic.slots import QUICK_SECONDS, Slot
from slipstream.cluster.elastic.starts import Starter
from slipstream.cluster.elastic.verdict import (
    change_over_at,
    first_failure,
    hopeless,
    members_left,
)
from slipstream.cluster.launch.blame import telling_line
from slipstream.cluster.launch.job import Job
from slipstream.cluster.launch.launcher import LAUNCH_FAILED, Failure
from slipstream.cluster.launch.lines import Transcript
from slipstream.cluster.launch.link import describe_status
from slipstream.cluster.launch.messages import (
    EndSlot,
    Exited,
    Expect,
    FlightFile,
    Joined,
    Message,
    Noticed,
    NotStarted,
    Output,
    Signal,
    Started,
)
from slipstream.cluster.launch.signals import (
    END_SIGNALS,
    PASSED_SIGNALS,
    expect_children,
    signals_as_bytes,
)
from slipstream.errors import InternalError, UsageError
from slipstream.flight.launcher import LEFT_EXIT_CODE
from slipstream.settings import Settings

TOO_MANY_CHANGES = 3  # exit code of a job whose members changed too often

# Slots that may be used so soon are waited for when the first processes start. Chosen by hand.
TOGETHER_SECONDS = 2.0
MIN_WAIT_SECONDS = 0.02


class _Phase(Enum):
    GATHERING = 1
    RUNNING = 2
    FINISHING = 3
    ENDING = 4


def launch_elastic(
    job: Job,
    options: ElasticOptions,
    display: ElasticDisplay,
    *,
    flight: ElasticFlightListener | None = None,
) -> int:
    """Run an elastic job; blocks until every process has ended. Call it in the main thread.

    Args:
        job: Program of the job, and its first hosts unless `options.hosts_from` prints them.
        options: Limits of the job, and the source of its hosts.
        display: Display that receives all events; the number of a slot takes the place of a rank.
        flight: Listener for what explains a fault (default None).

    Returns:
        0 for success, else the exit code of the process that failed first (128 + n if signal n
        ended it), or 1 if a host failed.

    Raises:
        ConfigError: an environment variable has a value that is not allowed.
        UsageError: `options.hosts_from` is no program.
    """
    expect_children()
    with signals_as_bytes(signal.SIGCHLD, *END_SIGNALS, *PASSED_SIGNALS) as wakeup:
        return _ElasticLauncher(job, options, display, flight).run(wakeup)


class _ElasticLauncher:
    def __init__(
        self,
        job: Job,
        options: ElasticOptions,
        display: ElasticDisplay,
        flight: ElasticFlightListener | None,
    ) -> None:
        self._job = job
        self._flight = flight
        self._options = options
        self._display = display
        self._transcript = Transcript(display)
        self._selector = selectors.DefaultSelector()
        limit = Settings.from_environment(job.effective_environ).connect_timeout_seconds
        self._pool = HostPool(job, self._selector, self._receive, self._lose_host, limit)
        self._starter = Starter(job, options, self._pool)
        self._source: HostSource | None = options.source
        if options.hosts_from is not None:
            self._source = HostScript(
                options.hosts_from,
                job.effective_environ,
                options.default_slots,
                options.poll_seconds,
            )
        self._source_problem = ""
        self._phase = _Phase.GATHERING
        self._used: list[Slot] = []
        self._began_at = time.monotonic()
        self._scarce_since: float | None = self._began_at
        self._num_failures = 0
        self._has_trained = False  # whether a process has trained for QUICK_SECONDS
        self._reports_members = False  # whether processes report that they are members
        self._failure: Failure | None = None
        self._ending = JobEnding(self._pool, job.grace_seconds, display.note)
        self._has_obeyed = False  # whether a process ended with 0 after the signal
        self._has_started = False
        self._last_note = ""
        self._last_count = 0
        self._expected: tuple[int, ...] = ()  # slots of processes that will join

    def run(self, wakeup: int) -> int:
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._take_signals(wakeup))
        if self._source is None:
            self._pool.update(self._job.hosts)
        try:
            while True:
                self._reconcile()
                if self._is_over():
                    break
                for key, _ in self._selector.select(self._seconds_to_deadline()):
                    if key.fd in self._selector.get_map():
                        key.data()
        finally:
            if self._source is not None:
                self._source.close()
            self._pool.close()
        self._display.finished(self._failure)
        if self._failure is not None:
            return self._failure.exit_code
        number = self._ending.signal
        return 128 + number if number is not None and not self._has_obeyed else 0

    def _is_over(self) -> bool:
        return self._phase is _Phase.ENDING and not self._pool.is_open

    @property
    def _running(self) -> list[Slot]:
        return [slot for slot in self._pool.slots if slot.is_running]

    # ---- what is due ----

    def _reconcile(self) -> None:
        now = time.monotonic()
        self._mind_reader()
        self._pool.give_up_stuck()
        if self._phase in (_Phase.GATHERING, _Phase.RUNNING):
            self._ask_source()
            self._pool.connect(self._options.max_ranks)
            self._pool.give_up_mute()
            for host in self._pool:
                self._pool.reserve(host)
            self._choose_slots()
            self._judge(now)
        if self._phase is _Phase.GATHERING:
            self._start_first(now)
        elif self._phase is _Phase.RUNNING:
            self._end_withdrawn()
            self._start_replacements(now)
            self._announce_joiners()
        elif self._phase is _Phase.FINISHING:
            self._finish()
        else:
            self._ending.meet_deadlines()
        count = len(self._running)
        if count != self._last_count:
            self._last_count = count
            self._display.running(count)

    def _seconds_to_deadline(self) -> float | None:
        now = time.monotonic()
        times = self._ending.deadlines + self._pool.end_deadlines
        if self._phase in (_Phase.GATHERING, _Phase.RUNNING):
            times += [slot.start_at for slot in self._used if not slot.is_running]
            times += [at for at in [change_over_at(self._pool.slots)] if at > now]
            times += [self._source.due_at] if self._source is not None else []
            if self._scarce_since is not None:
                times.append(self._scarce_since + self._options.wait_seconds)
            of_hosts = self._pool.seconds_to_deadline(now)
            times += [] if of_hosts is None else [now + of_hosts]
        return max(min(times) - now, MIN_WAIT_SECONDS) if times else None

    def _ask_source(self) -> None:
        source = self._source
        if source is None or not source.advance():
            return
        if source.problem and source.problem != self._source_problem:
            kept = "; the last list still holds" if source.hosts else ""
            self._display.note(f"{source.name} failed: {source.problem}{kept}")
        elif self._source_problem and not source.problem:
            self._display.note(f"{source.name} prints hosts again")
        self._source_problem = source.problem
        if not source.problem:
            self._pool.update(source.hosts)

    def _choose_slots(self) -> None:
        """Choose the slots to use: those that are in use stay, as long as they may be used."""
        usable = [slot for host in self._pool for slot in host.usable_slots]
        kept = [slot for slot in self._used if slot in usable]
        leaving = [slot for slot in self._running if slot not in usable]
        room = self._options.max_ranks - len(kept) - len(leaving)
        added = [slot for slot in usable if slot not in kept][: max(room, 0)]
        chosen = (*kept, *added)
        self._used = [slot for slot in usable if slot in chosen]

    # ---- starts ----

    def _start_first(self, now: float) -> None:
        due = [slot for slot in self._used if slot.start_at <= now]
        is_early = any(now < slot.start_at <= now + TOGETHER_SECONDS for slot in self._used)
        if any(host.is_connecting for host in self._pool):
            return
        if len(self._used) < self._options.min_ranks:
            self._say_what_is_missing()
        if len(due) < self._options.min_ranks or is_early or self._running:
            return
        self._last_note = ""
        try:
            ranks = self._starter.first_environments(due)
        except UsageError as error:
            self._fail(due[0].host, str(error))
            return
        self._say_threads(due[0])
        self._phase = _Phase.RUNNING
        for slot in self._pool.slots:
            slot.epoch = slot.newest_epoch = 0
        for rank, (slot, variables) in enumerate(zip(due, ranks, strict=True)):
            self._start(slot, rank, variables, now)
        limits = f"{self._options.min_ranks} to {self._options.max_ranks}"
        self._display.note(f"{_processes(len(due))} started; {limits} may take part")

    def _start_replacements(self, now: float) -> None:
        for slot in self._used:
            if not slot.is_running and slot.start_at <= now:
                self._start(slot, None, None, now)
                count = _processes(len(self._running))
                self._display.note(f"{slot.who} starts, to join the job; {count} running")

    def _announce_joiners(self) -> None:
        """Tell the members which processes will join, if Horovod's rules hold."""
        joining = [slot for slot in self._running if slot.rank is None and not slot.is_member]
        slots = tuple(slot.number for slot in joining if not slot.is_ending)
        if self._options.host_rules is not None and slots != self._expected:
            self._expected = slots
            self._pool.order(Expect(slots=slots))

    def _start(
        self, slot: Slot, rank: int | None, variables: dict[str, str] | None, now: float
    ) -> None:
        likely_rank = sum(1 for other in self._running if not other.is_ending)
        slot.start(now, rank)
        self._display.named(slot.number, slot.host, rank)
        self._transcript.forget(slot.number)
        link = self._pool.host_of(slot).link
        assert link is not None
        try:
            likely_rank = likely_rank if rank is None else rank
            link.send(self._starter.order(slot, variables, likely_rank))
        except UsageError as error:
            self._take_end(slot, LAUNCH_FAILED, str(error))
            return
        self._has_started = True

    def _say_threads(self, slot: Slot) -> None:
        threads = {} if self._has_started else self._starter.threads(self._pool.host_of(slot))
        for name, value in threads.items():
            self._display.note(
                f"each process on {slot.host} gets {name}={value}; set the variable to choose"
                " another number"
            )

    def _say_what_is_missing(self) -> None:
        count, least = len(self._used), self._options.min_ranks
        if self._source is None or self._source.has_answered:
            self._note_once(
                f"{count} of at least {least} slots can be used; the job waits for others, at most"
                f" {self._options.wait_seconds:g} s"
            )

    def _note_once(self, text: str) -> None:
        if text != self._last_note:
            self._display.note(text)
        self._last_note = text

    # ---- messages ----

    def _receive(self, host: ElasticHost, message: Message) -> None:
        match message:
            case Started():
                slot = host.slots[message.local_rank]
                self._display.started(slot.number, slot.host, message.pid)
            case Joined():
                self._take_member(host.slots[message.local_rank], message.epoch)
            case Output():
                number = host.slots[message.local_rank].number
                data = message.data.encode("latin-1")
                self._transcript.feed(number, data, is_error=message.is_error)
            case Exited():
                slot = host.slots[message.local_rank]
                self._note_end(slot, message.status)
                self._display.exited(slot.number, slot.host, message.status)
                self._take_end(slot, message.status, describe_status(message.status))
            case NotStarted():
                self._take_end(host.slots[message.local_rank], LAUNCH_FAILED, message.reason)
            case Noticed():
                if self._flight is not None:
                    number = host.slots[message.local_rank].number
                    self._flight.noticed(number, message.state, message.oom_kills)
            case FlightFile():
                if self._flight is not None:
                    self._flight.take_file(message.name, message.text)
            case _:
                raise InternalError(
                    f"the agent of {host.host.name} sent the order {message!r}; please report it"
                )

    def _note_end(self, slot: Slot, status: int | None) -> None:
        if self._flight is not None:
            by_launcher = slot.is_ending or self._phase is _Phase.ENDING
            self._flight.ended(slot.number, status, slot.epoch, by_launcher=by_launcher)

    def _take_member(self, slot: Slot, epoch: int) -> None:
        rules = self._options.host_rules
        most = None if rules is None else rules.max_changes
        if most is not None and epoch - 1 > most and self._phase is not _Phase.ENDING:
            reason = f"the members have changed more than {most} times (--max-changes)"
            self._fail(slot.host, reason, exit_code=TOO_MANY_CHANGES)
        self._reports_members = True
        if epoch == 0:  # it has lost its epoch, and waits to join another one
            slot.is_member = False
            return
        slot.enter(epoch, time.monotonic())
        if not slot.is_member:
            slot.is_member = True
            count = sum(1 for other in self._running if other.is_member)
            self._display.note(f"{slot.who} has joined; {count} member{'s' * (count != 1)}")

    def _take_end(self, slot: Slot, status: int, reason: str) -> None:
        now = time.monotonic()
        failure = self._failure_of(slot, status, reason, now)
        self._has_trained |= slot.trained_seconds(now) > QUICK_SECONDS
        if self._phase is _Phase.ENDING:
            slot.is_running = False
            self._take_end_by_order(status, failure)
        elif slot.is_ending:
            slot.end(now, None)
            self._display.note(f"{slot.who} has left: {reason}{self._count()}")
        elif status == 0 and (slot.is_member or not self._reports_members):
            slot.is_running = False
            self._take_success(slot)
        elif self._phase is _Phase.FINISHING:
            slot.is_running = False
            self._take_late_failure(slot, failure)
        else:
            self._plan_replacement(slot, status, failure, now)

    def _failure_of(self, slot: Slot, status: int, reason: str, now: float) -> Failure:
        return Failure(
            host=slot.host,
            rank=slot.number,
            reason=reason,
            seconds=now - self._began_at,
            exit_code=128 - status if status < 0 else status,
            last_lines=self._transcript.last_lines(slot.number),
        )

    def _plan_replacement(self, slot: Slot, status: int, failure: Failure, now: float) -> None:
        ran = now - slot.started_at
        # A process that waits to join ends with 0 if the training of the others has ended.
        is_failure = status not in (0, LEFT_EXIT_CODE)
        delay = slot.end(now, failure if is_failure else None)
        limit = self._options.max_restarts
        self._num_failures += is_failure
        slot.is_spent = is_failure and limit is not None and self._num_failures > limit
        follows = f"the next one starts in {delay:g} s"
        if slot.is_spent:
            follows = f"it is not replaced, because --max-restarts is {limit}"
        if is_failure and self._options.host_rules is not None:
            seconds = self._pool.host_of(slot).take_out(self._options.host_rules)
            how_long = "good" if seconds == float("inf") else f"{seconds:.3g} s"
            follows = f"its host is out of the job for {how_long}"
        what = f"failed after {ran:.1f} s" if is_failure else "has left"
        said = telling_line(failure.last_lines) if is_failure and status > 0 else ""
        said = f": {said}" if said else ""
        self._display.note(f"{slot.who} {what}: {failure.reason}{said}; {follows}{self._count()}")

    def _count(self) -> str:
        return f"; {_processes(len(self._running))} running"

    def _lose_host(self, host: ElasticHost, reason: str) -> None:
        """Take note that an agent could not be started, or was lost with its processes."""
        if self._phase is _Phase.ENDING:
            for slot in host.running_slots:
                self._note_end(slot, None)
                slot.is_running = False
            return
        if reason != host.problem or host.running_slots:
            seconds = host.retry_at - time.monotonic()
            self._display.note(
                f"{host.host.name} cannot be used: {reason}; the next try is in {seconds:.0f} s"
            )
        host.problem = reason
        for slot in host.running_slots:
            self._note_end(slot, None)
            self._take_end(slot, LAUNCH_FAILED, "its host was lost")

    # ---- withdrawn hosts ----

    def _end_withdrawn(self) -> None:
        withdrawn = [slot for slot in self._running if slot not in self._used]
        self._order_ends(withdrawn, "its slot was withdrawn")
        self._pool.end_idle(also_listed=False)

    def _order_ends(self, slots: list[Slot], why: str) -> None:
        for slot in slots:
            link = self._pool.host_of(slot).link
            if link is not None and not slot.is_ending:
                slot.order_end(time.monotonic(), self._job.grace_seconds)
                link.send(EndSlot(local_rank=slot.local_rank))
                grace = self._job.grace_seconds
                self._display.note(f"{slot.who} gets SIGTERM, because {why}; it has {grace:g} s")

    # ---- success ----

    def _take_success(self, slot: Slot) -> None:
        if self._phase is not _Phase.FINISHING:
            self._phase = _Phase.FINISHING
            self._ending.note_success()
            self._display.note(
                f"{slot.who} has finished, so no process starts any more{self._count()}"
            )

    def _take_late_failure(self, slot: Slot, failure: Failure) -> None:
        newest = max(other.epoch for other in self._pool.slots)
        if not slot.is_member:
            self._display.note(f"{slot.who} ended before it could join: {failure.reason}")
            return
        if slot.epoch < newest:
            self._display.note(f"{slot.who} ended, and the others had gone on: {failure.reason}")
            return
        self._display.note(f"{slot.who} failed after others had finished: {failure.reason}")
        self._failure = self._failure or failure

    def _finish(self) -> None:
        """End the job once all members have ended; end processes that wait to join."""
        running = self._running
        if not running:
            self._end_all()
        elif not self._ending.awaited_members():
            self._order_ends(running, "the training is over")

    # ---- failure ----

    def _judge(self, now: float) -> None:
        """Decide whether the job has failed."""
        running = self._running
        self._has_trained |= any(slot.trained_seconds(now) > QUICK_SECONDS for slot in running)
        failure = first_failure(self._pool.slots)
        why = hopeless(self._used, has_trained=self._has_trained)
        if why and failure is not None:
            said = telling_line(failure.last_lines)
            said = f": {said}" if said else ""
            self._end_with(replace(failure, reason=f"{failure.reason}{said}; {why}"))
            return
        if self._phase is _Phase.RUNNING and not self._is_alive(running):
            if self._options.host_rules is not None and failure is not None:
                self._end_with(failure)
                return
            self._phase = _Phase.GATHERING
            old = [slot for slot in running if slot.is_member]
            self._order_ends(old, "the others had gone on without it, and none of them is left")
            self._order_ends(running, "it waits to join, and no member is left")
            if self._used:
                if self._flight is not None:
                    self._flight.lost_all()
                self._display.note("no member is left, so the job starts again")
        if len(self._used) >= self._options.min_ranks:
            self._scarce_since = None
            return
        if self._scarce_since is None:
            self._scarce_since = now
        if not self._can_grow() or now >= self._scarce_since + self._options.wait_seconds:
            self._end_scarce()

    def _is_alive(self, running: list[Slot]) -> bool:
        """Return whether members may be left, to which other processes can join."""
        if self._reports_members:
            return members_left(self._pool.slots, time.monotonic())
        return bool(running)

    def _can_grow(self) -> bool:
        """Return whether the job may get more slots than it has."""
        return self._source is not None or any(
            host.is_connecting or host.link is None for host in self._pool if host.is_listed
        )

    def _end_scarce(self) -> None:
        count, least = len(self._used), self._options.min_ranks
        failure = first_failure(self._pool.slots)
        lost = next((host for host in self._pool if host.problem), None)
        if failure is not None:
            self._display.note(f"{count} of at least {least} slots can be used; the job ends")
            self._end_with(failure)
        elif lost is not None:
            self._fail(lost.host.name, lost.problem)
        else:
            name = "" if self._source is None else self._source.name
            reason = self._source_problem or f"{count} of at least {least} slots are usable"
            self._fail(name, reason)

    def _fail(self, host: str, reason: str, *, exit_code: int = LAUNCH_FAILED) -> None:
        seconds = time.monotonic() - self._began_at
        self._end_with(
            Failure(host=host, rank=None, reason=reason, seconds=seconds, exit_code=exit_code)
        )

    # ---- end ----

    def _end_with(self, failure: Failure) -> None:
        self._failure = self._failure or failure
        self._end_all()

    def _end_all(self) -> None:
        self._phase = _Phase.ENDING
        self._ending.by_order()

    def _end_by_signal(self, number: int, why: str) -> None:
        self._phase = _Phase.ENDING
        self._ending.by_signal(number, why)

    def _take_end_by_order(self, status: int, failure: Failure) -> None:
        self._has_obeyed |= status == 0
        if self._ending.signal is not None and self._failure is None and status != 0:
            self._failure = replace(failure, after_signal=self._ending.signal_name)

    def _take_signals(self, wakeup: int) -> None:
        for number in os.read(wakeup, 64):
            if number == signal.SIGCHLD:  # the program that prints hosts has ended
                continue
            name = signal.Signals(number).name
            if number in PASSED_SIGNALS:
                self._pool.order(Signal(number=number))
            elif self._ending.signal is not None:
                self._ending.by_second_signal(name)
            else:
                self._end_by_signal(number, f"{name} goes to every process")

    def _mind_reader(self) -> None:
        """Send SIGTERM to all processes if nobody reads the output any more."""
        if self._display.has_no_reader and self._ending.signal is None:
            self._end_by_signal(signal.SIGTERM, "nobody reads the output: SIGTERM")


def _processes(count: int) -> str:
    return f"{count} process{'es' * (count != 1)}"
