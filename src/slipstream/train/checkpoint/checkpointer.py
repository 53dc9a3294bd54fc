"""Saving beside the training, and restoring of the newest whole checkpoint."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, Literal

from slipstream.errors import MismatchError, SlipstreamError, UsageError, reason_of
from slipstream.train.checkpoint.catalog import (
    Checkpoint,
    check_files,
    has_manifest,
    look_at,
    newest_later_step,
    read_manifest,
    steps_in,
)
from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.ranks import Ranks, RankWatch, find_ranks
from slipstream.train.checkpoint.reading import read_targets
from slipstream.train.checkpoint.restoring import RestorePlan
from slipstream.train.checkpoint.save_job import TIMEOUT_SECONDS, SaveJob
from slipstream.train.checkpoint.saving import report_failure, write_checkpoint
from slipstream.train.checkpoint.sharding import pieces_of
from slipstream.train.checkpoint.snapshot import HostImage
from slipstream.train.checkpoint.storage import open_storage
from slipstream.train.checkpoint.tree import StateEncoder

# A save that waits for the one before it is reported if it waits this long.
_REPORTED_SECONDS = 0.1

_log = logging.getLogger(__name__)


class Checkpointer:
    """The checkpoints of one training in a folder.

        checkpointer = Checkpointer("checkpoints", keep=3)
        state = {"model": model, "optimizer": optimizer, "epoch": 0}
        step = checkpointer.restore(state) or 0
        ...
        checkpointer.save(step, state)

    All ranks make a Checkpointer and call its methods together, from one thread. A state is a dict
    of tensors (of PyTorch, sharded ones included), arrays of NumPy, plain values (int, float, str,
    bool, bytes, None, lists, tuples, dicts) and objects with state_dict() and load_state_dict().
    Values that differ between ranks are wrapped: `PerRank(value)`.

    Args:
        folder: Folder of all checkpoints: a path that all ranks see, or a URL that fsspec knows,
            such as "s3://bucket/run7". The first save makes it. Only one training may write to it.
        keep: Number of whole checkpoints to keep, 1 or more (default 3). None keeps all.
        group: Ranks that save together: a group of torch.distributed or slipstream.comm (default:
            all ranks of the job, see `find_ranks`).
        timeout_seconds: Longest time in which all ranks must write their parts, above 0 (default
            1800). An unfinished save of another job in the folder is deleted when nothing of it has
            changed for this time.
        storage_options: Options of fsspec's file system, for a URL (default none).

    The call blocks until all ranks have made theirs.

    Raises:
        UsageError: A value is not allowed, or the ranks of the job do not know each other.
        UnsupportedError: The package for the URL is missing.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int | None = 3,
        group: Any = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if keep is not None and keep < 1:
            raise UsageError(f"keep is {keep}; allowed: 1 and more, or None to keep all")
        if timeout_seconds <= 0:
            raise UsageError(f"timeout_seconds is {timeout_seconds}; allowed: above 0")
        self._storage = open_storage(folder, storage_options)
        self._ranks: Ranks = find_ranks(group)
        self._watch = RankWatch(group)
        self._keep = keep
        self._timeout_seconds = timeout_seconds
        self._session = self._ranks.gather(secrets.token_hex(4))[0]
        self._num_saves = 0
        self._image = HostImage()
        self._thread: threading.Thread | None = None
        self._errors: list[SlipstreamError] = []  # that of the last save, until wait() raises it
        weakref.finalize(self, _log_unseen, self._errors, self._ranks.rank)
        self._has_warned = False  # of checkpoints of later steps than that of a save

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Copy the state to host memory, and write it to the folder beside the training.

        The call blocks until this rank's share of the state is copied, and first until the previous
        save has ended. All ranks call it with the same step and states of the same form. When the
        save ends, the folder has the checkpoint as a whole, and older ones than `keep` are deleted.
        The first save takes longer, because it reserves the memory.

        Args:
            step: Training step after which the state is saved, 0 or more.
            state: State to save. It may change after the call.

        Raises:
            CheckpointError: The previous save failed.
            MismatchError: The previous save got different states from the ranks.
            UsageError: The step or a value of the state is not allowed, or the ranks of the job
                have changed since this Checkpointer was made.
        """
        if step < 0:
            raise UsageError(f"step is {step}; allowed: 0 and more")
        self._check_ranks()
        self._wait_for_previous(step)
        self._num_saves += 1
        job = SaveJob(
            storage=self._storage,
            step=step,
            time=time.time(),
            save=f"{self._session}-{self._num_saves}",
            rank=self._ranks.rank,
            num_ranks=self._ranks.num_ranks,
            keep=self._keep,
            timeout_seconds=self._timeout_seconds,
            lost=self._watch.lost,
        )
        try:
            encoder = StateEncoder(rank=job.rank)
            tree = encoder.encode(dict(state))
            pieces = pieces_of(encoder.leaves, job.rank, job.num_ranks)
            layout = self._image.take(pieces)
        except Exception as error:
            report_failure(job, error)
            raise
        boxes = [piece for piece, _ in pieces]

        def write() -> None:
            write_checkpoint(job, self._image.data, layout, boxes, tree)
            self._warn_of_later(job)

        self._start(job, write)

    def wait(self) -> None:
        """Block until the last save has ended, which all ranks notice.

        Raises:
            CheckpointError: The save failed; the message says on which rank and why.
            MismatchError: The save got different states from the ranks.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._errors:
            raise self._errors.pop()

    def restore(self, state: dict[str, Any], step: int | Literal["auto"] = "auto") -> int | None:
        """Read a checkpoint into a state, and return its step. All ranks must call this; blocks.

        Tensors are filled in place, plain values of dicts are replaced, and objects get
        load_state_dict(). The number of ranks may differ from that of the save; each rank reads
        what it needs. All bytes that are read are compared with their checksums. The state may lack
        values of the checkpoint, but not the other way round.

        Args:
            state: State of the form that was saved, or a part of it.
            step: Step of the checkpoint. "auto" (default) takes the newest whole one, and logs the
                newer ones that were skipped, with the reasons.

        Returns:
            The step of the checkpoint, or None if the folder has no checkpoint. None is returned
            only for "auto".

        Raises:
            CheckpointError: The checkpoint of the step is missing or damaged, or every checkpoint
                of the folder is damaged. The state is undefined then.
            MismatchError: The checkpoint has other values or other tensors than the state.
            UsageError: The ranks of the job have changed since this Checkpointer was made.
        """
        self._check_ranks()
        self._wait_for_previous(None)
        steps = self._steps() if step == "auto" else [step]
        damaged: list[str] = []
        for candidate in steps:
            problem, is_incomplete = self._try_restore(candidate, state)
            if not problem:
                _log.info("restored step %d from %s", candidate, self._storage.url)
                return candidate
            if step != "auto":
                raise CheckpointError(f"step {candidate} cannot be restored: {problem}")
            _log.warning("skipped the checkpoint of step %d: %s", candidate, problem)
            if not is_incomplete:
                damaged.append(f"step {candidate}: {problem}")
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self._storage.url} can be restored: {'; '.join(damaged)}. Mend"
                " the storage, or choose an empty folder to start from the beginning"
            )
        return None

    def newest(self) -> int | None:
        """Return the newest step with a whole checkpoint, or None; reads no tensors. Blocks."""
        steps = steps_in(self._storage)
        return next((step for step in steps if look_at(self._storage, step).is_whole), None)

    def list(self, *, verify: bool = False) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the folder, whole or not, the newest first. Blocks.

        Args:
            verify: Whether to read all files and to compare their checksums (default False).
        """
        steps = steps_in(self._storage)
        return tuple(look_at(self._storage, step, verify=verify) for step in steps)

    def _start(self, job: SaveJob, write: Any) -> None:
        def run() -> None:
            try:
                write()
            except SlipstreamError as error:
                self._errors.append(error)
            except Exception as error:  # noqa: BLE001  the top of a thread
                failed = CheckpointError(f"step {job.step} cannot be saved: {self._words(error)}")
                failed.__cause__ = error
                self._errors.append(failed)

        # No daemon: the process ends after its last save.
        self._thread = threading.Thread(target=run, name="checkpoint")
        self._thread.start()

    def _words(self, error: Exception) -> str:
        if not isinstance(error, OSError):
            return repr(error)
        where = error.filename or self._storage.url
        return f"rank {self._ranks.rank} cannot write to {where}: {reason_of(error)}"

    def _check_ranks(self) -> None:
        if self._watch.is_replaced():
            raise UsageError(
                "the ranks of the job have changed since this Checkpointer was made; make another"
                " one after each change, in the function that elastic.run calls"
            )

    def _warn_of_later(self, job: SaveJob) -> None:
        """Warn once if a restore would not take the checkpoint that was just saved."""
        if job.rank != 0 or self._has_warned:
            return
        try:
            later = newest_later_step(self._storage, job.step)
        except OSError as error:
            _log.debug("the steps after %d cannot be listed: %s", job.step, error)
            return
        if later is not None:
            self._has_warned = True
            _log.warning(
                "step %d was saved to %s, which also has step %d: restore() takes the newest step,"
                " so it will not continue from here. To continue from an earlier step, save to"
                " another folder, or delete the later checkpoints",
                job.step,
                self._storage.url,
                later,
            )

    def _wait_for_previous(self, step: int | None) -> None:
        start = time.monotonic()
        self.wait()
        waited = time.monotonic() - start
        if step is not None and waited > _REPORTED_SECONDS:
            _log.warning(
                "the save of step %d waited %.1f s for the previous one; save less often",
                step,
                waited,
            )

    def _steps(self) -> list[int]:
        """Return the steps that rank 0 finds, the newest first; all ranks raise its error."""
        steps: list[int] = []
        problem = ""
        if self._ranks.rank == 0:
            try:
                steps = steps_in(self._storage)
            except OSError as error:
                problem = f"{self._storage.url} cannot be read: {reason_of(error)}"
        steps, problem = json.loads(self._ranks.gather(json.dumps([steps, problem]))[0])
        if problem:
            raise CheckpointError(problem)
        return steps

    def _try_restore(self, step: int, state: dict[str, Any]) -> tuple[str, bool]:
        """Read a checkpoint into a state; return the problem, and whether its save did not end."""
        changes = None
        answer = {"problem": "", "incomplete": False, "mismatch": ""}
        try:
            changes = self._read(step, state)
        except UsageError as error:
            answer["mismatch"] = str(error)
        except (CheckpointError, OSError) as error:
            answer |= {
                "problem": str(error),
                "incomplete": not has_manifest(self._storage, step),
            }
        except Exception as error:  # the other ranks must not wait for this one
            self._ranks.gather(json.dumps({**answer, "mismatch": repr(error)}))
            raise
        answers = [json.loads(text) for text in self._ranks.gather(json.dumps(answer))]
        for rank, each in enumerate(answers):
            if each["mismatch"]:
                raise MismatchError(f"rank {rank}: {each['mismatch']}")
        problems = [each for each in answers if each["problem"]]
        if not problems and changes is not None:
            for change in changes.changes:
                change()
            for path in changes.kept:
                _log.info("%r stays as it is: fewer ranks saved", path)
            return "", False
        # A manifest that some ranks do not see is no save that did not end.
        return problems[0]["problem"], all(each["incomplete"] for each in answers)

    def _read(self, step: int, state: dict[str, Any]) -> RestorePlan:
        manifest = read_manifest(self._storage, step)
        check_files(self._storage, manifest, verify=False)
        plan = RestorePlan(manifest=manifest, rank=self._ranks.rank)
        plan.add_state(state)
        read_targets(self._storage, manifest, plan.targets)
        return plan


def _log_unseen(errors: list[SlipstreamError], rank: int) -> None:
    """Log the error of a save for which nobody has waited, and nobody can wait any more."""
    for error in errors:
        _log.error("rank %d: %s", rank, error)
