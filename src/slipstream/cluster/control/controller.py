"""The controller of a run. Each step can be taken again, so a killed one is just called again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from slipstream.cluster.control.collecting import collect_outputs
from slipstream.cluster.control.plan import RunPlan, forget_keys
from slipstream.cluster.control.seen import SeenJournal
from slipstream.cluster.control.stages import RunStages
from slipstream.cluster.control.written_back import write_back
from slipstream.cluster.engines.protocol import JournalPart, RunEngine
from slipstream.cluster.engines.ssh_host import CommandFailedError
from slipstream.cluster.head.journal import parse_journal
from slipstream.cluster.head.spot_notice import SERVICES
from slipstream.cluster.records import RunLog
from slipstream.cluster.records.lock import locked
from slipstream.cluster.records.states import END_STATES, RUN_STATES
from slipstream.errors import PeerError, SlipstreamError

READ_SECONDS = 1.0
# Time without a word of the journal after which the engine is asked for the head, and
# time for which its host may be out of reach before another host gets the head. Chosen by hand.
QUIET_SECONDS = 5.0
UNREACHABLE_SECONDS = 20.0
REPLACE_SECONDS = 5.0
REPLACE_AGAIN_SECONDS = 20.0
# A run ends if its head was lost this often within this time. Chosen by hand.
MAX_LOST_HEADS = 5
LOST_HEADS_SECONDS = 1800.0
CANCELLED_CODE = 130
# Time that another client has to finish the run. Chosen by hand.
KEEPER_SECONDS = 60.0


class OutOfReachError(PeerError):
    """Read the message: no host of a run can be reached, and the run may go on."""


class RunView(Protocol):
    """The interface of what shows a run to a person or a program."""

    def stage_begins(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Receive that a stage has begun, and the time that it usually takes."""

    def stage_ends(self, name: str, host: str, seconds: float) -> None:
        """Receive the time that a stage took in seconds."""

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Receive an entry of the journal."""

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Take note of an entry that an earlier client has shown."""

    def note(self, text: str) -> None:
        """Receive a remark."""


class Controller:
    """The controller of one run.

    Args:
        log: Records of runs.
        engine: RunEngine of the run.
        plan: The run.
        view: View that shows the run.
    """

    def __init__(self, log: RunLog, engine: RunEngine, plan: RunPlan, view: RunView) -> None:
        self._log = log
        self._engine = engine
        self._plan = plan
        self._view = view
        self._seen = SeenJournal(plan.folder)
        self._stages = RunStages(log, plan.record.number, view)
        self._result: Mapping[str, Any] | None = None
        self._lost_heads: list[float] = []
        self._last_note = ""
        self._gone: dict[str, float] = {}
        self._is_cancelled = False
        self._keeps_outputs = False  # machines that alone have them; `cancel` alone keeps none
        self._ended_at = 0.0
        self._num_lines = 0  # of the journal, which were taken
        self._num_ahead = 0  # of those, which follow the position of the copy

    def start(self) -> None:
        """Bring the run to the point at which its head runs; do nothing if it was there already.

        Raises:
            SlipstreamError: a step has failed; then everything was given back.
        """
        try:
            with self._alone():
                self._start()
        except SlipstreamError as error:
            self._fail(str(error))
            raise
        except KeyboardInterrupt:
            if not self._is_past("running"):
                self._view.note("the run is given up before it has begun")
                self.give_up("Ctrl-C before it had begun")
            raise

    def _start(self) -> None:
        self._engine.check(self._plan)
        if not self._is_past("starting"):
            self._set_state("preparing")
            self._engine.prepare(self._plan, self._stages)
            self._set_state("starting")
        if not self._is_past("running"):
            with self._stages.stage("start"):
                self._engine.submit(self._plan)
            self._set_state("running")

    def _alone(self) -> AbstractContextManager[None]:
        """Return a lock, so that of several clients of a run only one changes its hosts."""
        self._plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return locked(self._plan.folder / "client.lock")

    def follow(self) -> int:
        """Follow the run to its end, collect the outputs and give everything back.

        The first Ctrl-C ends the job; the second one leaves it running.

        Returns:
            The exit code of the job.

        Raises:
            OutputsLeftError: the outputs cannot be fetched; a later call tries again.
        """
        self._keeps_outputs = True
        try:
            return self._follow()
        finally:
            self._seen.let_go()

    def _follow(self) -> int:
        try:
            self._follow_journal()
        except KeyboardInterrupt:
            self._view.note("the job is ended; Ctrl-C again leaves it alone")
            return self.cancel()
        except OutOfReachError:
            raise  # the run may go on, so nothing is given back
        except SlipstreamError as error:
            self._fail(str(error))
            raise
        assert self._result is not None
        return self._finish(self._result)

    def cancel(self) -> int:
        """End the job and give everything back; return the exit code of the job.

        Raises:
            PeerError: the head cannot be reached, so that processes may go on; the run counts as
                cancelled nevertheless.
        """
        try:
            return self._cancel()
        finally:
            self._seen.let_go()

    def _cancel(self) -> int:
        record = self._log.find(f"#{self._plan.record.number}")
        if record.has_ended and record.exit_code is not None:
            return record.exit_code
        self._is_cancelled = True
        problem = ""
        try:
            self._engine.cancel(self._plan)
            self._follow_journal()
        except PeerError as error:
            problem = f"the job may go on, because its head cannot be told to end: {error}"
        result = self._result or {"exit_code": CANCELLED_CODE, "text": problem}
        code = self._finish({"state": "cancelled", **result})
        if problem and self._engine.name not in SERVICES:  # a cloud has ended the machines
            raise PeerError(problem)
        return code

    def give_up(self, reason: str) -> None:
        """Give back what exists of a run that has not begun to run, and call it cancelled.

        Args:
            reason: Sentence part for the record.
        """
        with self._alone():
            self._give_back("cancelled", reason, CANCELLED_CODE)

    def shell(self, host: str) -> list[str]:
        """Return the command that runs a shell command on a host of the run, up to that command.

        Args:
            host: Name of the host; "" for the host of the head.

        Raises:
            UsageError: the engine has no shell, or the run has no such host.
        """
        return self._engine.shell(self._plan, host)

    def copy_end(self, text: str) -> tuple[str, str]:
        """Return the host ("" for this machine) and the path of an end of a copy.

        Args:
            text: Path, or HOST:PATH with a path relative to the code.
        """
        host, colon, path = text.partition(":")
        if not colon or "/" in host:
            return "", text
        return host, self._engine.path_on_host(self._plan, path)

    # ---- the journal ----

    def _follow_journal(self) -> None:
        position = self._restore()
        last_word = time.monotonic()
        while self._result is None or not (self._seen.is_kept or self._is_finished()):
            if not self._seen.is_kept and self._seen.try_to_keep():
                position = self._take_over()
            try:
                part = self._engine.read_journal(self._plan, position, READ_SECONDS)
            except PeerError as error:
                if self._result is None:
                    self._mind_silence(last_word, str(error))
                time.sleep(READ_SECONDS)
                continue
            if part.text:
                last_word = time.monotonic()
                position = part.position
                self._read(part)
            elif self._result is None:
                last_word = self._mind_silence(last_word, "")
            self._replace_lost()

    def _read(self, part: JournalPart) -> None:
        """Take the new lines of a part, which another client has perhaps kept already."""
        if self._seen.is_kept:
            self._seen.append(part.text, part.position)
        lines = part.text.splitlines(keepends=True)
        known = min(self._num_ahead, len(lines))
        self._num_ahead -= known
        self._num_lines += len(lines) - known
        for entry in parse_journal("".join(lines[known:])):
            self._take(entry)

    def _take_over(self) -> str:
        """Go on where the client has ended that kept the copy; return the position there."""
        kept = self._seen.text.splitlines(keepends=True)
        for entry in parse_journal("".join(kept[self._num_lines :])):
            self._take(entry)
        self._num_ahead = max(self._num_lines - len(kept), 0)
        self._num_lines = max(self._num_lines, len(kept))
        return self._seen.position

    def _is_finished(self) -> bool:
        """Return whether the client that keeps the copy has finished the run, or takes too long."""
        self._ended_at = self._ended_at or time.monotonic()
        record = self._log.find(f"#{self._plan.record.number}")
        return record.has_ended or time.monotonic() - self._ended_at > KEEPER_SECONDS

    def _take(self, entry: Mapping[str, Any]) -> None:
        self._view.entry(entry)
        match entry.get("event"):
            case "state":
                state, text = str(entry["state"]), str(entry.get("text", ""))
                if state in END_STATES:
                    self._result = entry
                self._log.note(self._plan.record.number, "job", f"{state}: {text}".rstrip(": "))
            case "host":
                self._take_host(str(entry["name"]), is_there=bool(entry["is_there"]))
            case "moving" if self._seen.is_kept:
                reason = f"the cloud takes {entry['host']} away, which has the head"
                self._restart_head(reason, 0.0, host_is_lost=True)
            case "finished" if entry.get("failure"):
                failure = entry["failure"]
                text = f"{failure['host']}: {failure['reason']}"
                self._log.note(self._plan.record.number, "failure", text)
            case _:
                pass

    def _mind_silence(self, last_word: float, problem: str) -> float:
        """Look after a head that says nothing; return the time of its last sign of life."""
        silent = time.monotonic() - last_word
        if silent < QUIET_SECONDS:
            return last_word
        if not self._seen.is_kept:
            return last_word  # another client looks after the run
        state = self._engine.head_state(self._plan)
        if state == "running":
            return time.monotonic()
        if self._is_cancelled and state == "absent":
            self._result = {"state": "cancelled", "exit_code": CANCELLED_CODE}
            return last_word
        if self._is_cancelled and silent >= UNREACHABLE_SECONDS:
            raise OutOfReachError(problem or f"the head is {state}")
        if state == "absent" or silent >= UNREACHABLE_SECONDS:
            if state == "ended":
                self._result = {"state": "failed", "exit_code": 1, "text": "no result was found"}
                return last_word
            reason = problem or f"the head is {state}"
            if self._restart_head(reason, silent, host_is_lost=state == "unreachable"):
                return time.monotonic()
        return last_word

    def _restart_head(self, reason: str, silent: float, *, host_is_lost: bool) -> bool:
        """Start another head; return whether that was possible.

        Args:
            reason: Reason for it.
            silent: Time in seconds since the last sign of life of the head.
            host_is_lost: Whether its host is lost, too.

        Raises:
            OutOfReachError: no head can be started, for longer than the job allows.
            PeerError: heads are lost again and again.
        """
        now = time.monotonic()
        recent = [at for at in self._lost_heads if now - at < LOST_HEADS_SECONDS]
        if len(recent) >= MAX_LOST_HEADS:
            raise PeerError(f"the head was lost {len(recent) + 1} times; the last time: {reason}")
        try:
            with self._alone():
                lacking = self._engine.restart_head(
                    self._plan, self._stages, host_is_lost=host_is_lost
                )
        except (PeerError, CommandFailedError) as error:
            if silent >= self._plan.spec.retry.lost:
                raise OutOfReachError(
                    f"no head could be started for {silent:.0f} s: {error}; the run may go on"
                    " without this client: follow it with `slipstream cluster attach"
                    f" {self._plan.record.name}`, or end it with `slipstream cluster down"
                    f" {self._plan.record.name}`"
                ) from error
            self._note_once(f"{reason}, and no other head can be started yet: {error}")
            return False
        self._view.note(f"{reason}: another head is started")
        self._log.note(self._plan.record.number, "head", reason)
        self._lost_heads = [*recent, now]
        self._gone = dict.fromkeys(lacking, time.monotonic() + REPLACE_SECONDS)
        return True

    # ---- hosts ----

    def _take_host(self, name: str, *, is_there: bool) -> None:
        self._log.note(
            self._plan.record.number, "host", f"{name} has {'come' if is_there else 'gone'}"
        )
        if is_there:
            self._gone.pop(name, None)
        else:
            self._gone[name] = time.monotonic() + REPLACE_SECONDS

    def _replace_lost(self) -> None:
        """Replace the hosts that have been gone for a while, again and again until one comes."""
        now = time.monotonic()
        lost = [name for name, due in self._gone.items() if now >= due]
        if not lost or self._result is not None or self._is_cancelled or not self._seen.is_kept:
            return
        added: Sequence[str] = ()
        try:
            with self._alone():
                added = self._engine.replace_hosts(self._plan, lost, self._stages)
        except SlipstreamError as error:  # the job may go on with fewer hosts
            self._note_once(f"no host takes the place of {', '.join(lost)} yet: {error}")
        for name in lost[: len(added)]:
            self._gone.pop(name, None)
        for name in lost[len(added) :]:
            self._gone[name] = time.monotonic() + REPLACE_AGAIN_SECONDS

    def _note_once(self, text: str) -> None:
        """Show a remark, unless it was the last one of this kind."""
        if text != self._last_note:
            self._last_note = text
            self._view.note(text)

    # ---- the end ----

    def _finish(self, result: Mapping[str, Any]) -> int:
        """Collect the outputs and give everything back, unless another client has done so."""
        with self._alone():
            record = self._log.find(f"#{self._plan.record.number}")
            if record.has_ended and record.exit_code is not None:
                return record.exit_code
            return self._collect_and_release(result)

    def _collect_and_release(self, result: Mapping[str, Any]) -> int:
        plan, ending = self._plan, result
        if plan.spec.outputs and not self._is_past("releasing"):
            self._set_state("collecting")
            ending = collect_outputs(
                self._engine, plan, self._stages, result, may_keep=self._keeps_outputs
            )
        self._set_state("releasing")
        self._engine.release(plan)
        forget_keys(plan)
        compared = write_back(self._log, plan, parse_journal(self._seen.text), result["state"])
        if compared:
            self._stages.note(compared)
        self._set_state(ending["state"], str(ending.get("text", "")), int(ending["exit_code"]))
        return int(ending["exit_code"])

    def _fail(self, reason: str) -> None:
        """Give back what exists of a run whose start has failed."""
        self._give_back("failed", reason, 1)

    def _give_back(self, state: str, reason: str, exit_code: int) -> None:
        self._set_state("releasing")
        self._engine.release(self._plan)
        forget_keys(self._plan)
        self._set_state(state, reason, exit_code)

    def _set_state(self, state: str, message: str = "", exit_code: int | None = None) -> None:
        self._log.set_state(self._plan.record.number, state, message, exit_code)

    def _is_past(self, state: str) -> bool:
        now = self._log.find(f"#{self._plan.record.number}").state
        return RUN_STATES.index(now) >= RUN_STATES.index(state)

    def _restore(self) -> str:
        """Take over what an earlier client has seen; return the position after it."""
        self._seen.try_to_keep()
        text, position = self._seen.text, self._seen.position
        self._num_lines = text.count("\n")
        for entry in parse_journal(text):
            self._view.restore(entry)
            if entry.get("state") in END_STATES:
                self._result = entry
        return position
