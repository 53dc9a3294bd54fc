"""`python -m slipstream.cluster.queue.runs.client HOME TOKEN`: one job of the queue over machines.

It is a client of the run that has the token as its name: it begins the run, or goes on with it
where an earlier client was killed. SIGTERM ends the run. A client that starts after the runner has
written `stopping` ends the run at once. The files in the folder of the token:

    output    output of the run, and what happened to it
    stopping  number of the newest client when the job was told to end; written by the runner
    trouble   JSON: the phase ("start" or "run") in which machines were lost, and the reason
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from slipstream.cluster.control.controller import Controller
from slipstream.cluster.control.session import RunSession
from slipstream.cluster.queue import shim
from slipstream.cluster.queue.folders import progress_path, start_folder
from slipstream.cluster.queue.runs.granted import read_order
from slipstream.cluster.queue.runs.progress_copy import copied_progress
from slipstream.cluster.queue.runs.view import OutputView
from slipstream.cluster.queue.store import QueueStore
from slipstream.cluster.records import RunLog, RunRecord
from slipstream.cluster.records.states import RUN_STATES
from slipstream.errors import PeerError, SlipstreamError, UsageError
from slipstream.settings import forget_queue_token, progress_environment

CANCELLED_CODE = 130
FAILED_CODE = 1
STOPPING, TROUBLE = "stopping", "trouble"


def newest_run(log: RunLog, name: str) -> RunRecord | None:
    """Return the run of a name, or None if it was never begun."""
    try:
        return log.find(name)
    except UsageError:
        return None


class RunClient:
    """The client of one token.

    Args:
        home: Folder of the records.
        token: Name of the start, and of its run.
    """

    def __init__(self, home: Path, token: str) -> None:
        self._home = home
        self._token = token
        self._folder = start_folder(home, token)
        self._session = RunSession(home)
        self._view = OutputView()

    def run(self) -> int:
        """Bring the run to its end; return its exit code."""
        record = newest_run(self._session.log, self._token)
        must_stop = (self._folder / STOPPING).exists()
        if record is not None and record.has_ended:
            return record.exit_code or 0
        if record is None and must_stop:
            return CANCELLED_CODE
        controller = self._controller()
        if must_stop:
            return self._stop(controller)
        try:
            self._start(controller)
        except KeyboardInterrupt:
            return self._stop(controller)
        return self._follow(controller)

    def _controller(self) -> Controller:
        store = QueueStore(self._home)
        try:
            order = read_order(store, self._token)
        finally:
            store.close()
        os.environ.update(order.environ)
        if newest_run(self._session.log, self._token) is not None:
            return self._session.open(self._token, self._view)
        return self._session.submit(order.spec, order.base, self._view)

    def _start(self, controller: Controller) -> None:
        if self._state() == "releasing":
            raise KeyboardInterrupt  # an earlier client could not start it
        try:
            controller.start()
        except PeerError as error:
            self._write_trouble("start", error)
            raise

    def _follow(self, controller: Controller) -> int:
        try:
            with self._copied_progress(controller):
                return controller.follow()
        except PeerError as error:
            self._write_trouble("run", error)
            raise

    def _copied_progress(self, controller: Controller) -> AbstractContextManager[None]:
        """Return a context in which the speeds of the job come to this host."""
        if self._session.log.find(self._token).engine == "local":
            return nullcontext()  # the job writes into the file itself
        _, path = controller.copy_end("head:../progress")
        target = progress_path(self._home, self._token)
        return copied_progress(controller.shell(""), path, target)

    def _stop(self, controller: Controller) -> int:
        """End a run that perhaps has not begun."""
        state = self._state()
        if RUN_STATES.index(state) < RUN_STATES.index("running"):
            controller.give_up("stopped before it began")
            return CANCELLED_CODE
        return controller.cancel()

    def _state(self) -> str:
        return self._session.log.find(self._token).state

    def _write_trouble(self, phase: str, error: PeerError) -> None:
        text = json.dumps({"phase": phase, "reason": str(error)})
        shim.write_durably(self._folder / TROUBLE, text)


def main() -> int:
    """Run the client of a token; return the exit code of the job."""
    home, token = Path(sys.argv[1]), sys.argv[2]
    # Connections of ssh are shared with other jobs, so the end of this one must not end them.
    forget_queue_token()
    folder = start_folder(home, token)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.environ.update(progress_environment(progress_path(home, token)))
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return RunClient(home, token).run()
    except SlipstreamError as error:
        print(f"slipstream: {error}", flush=True)
        return FAILED_CODE


def _interrupt(*_: object) -> None:
    """End the run as Ctrl-C does; the runner sends no second signal."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
