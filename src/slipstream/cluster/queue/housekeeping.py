"""Deletion of what nobody looks at any more: folders of starts that have ended, and events."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, func, select

from slipstream.cluster.outside import outside
from slipstream.cluster.queue.folders import runs_folder, starts_folder
from slipstream.cluster.queue.store import AttemptRow, QueueEventRow, QueueStore


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepRules:
    """How much of the past is kept; what is beyond any limit is deleted.

    Args:
        seconds: Time in seconds for which the output of a start, and an event, is kept (default 30
            days).
        max_starts: Largest number of starts that have ended and whose output is kept (default
            10,000).
        max_events: Largest number of events (default 100,000).
    """

    seconds: float = 30 * 86400.0
    max_starts: int = 10_000
    max_events: int = 100_000


def clean_up(store: QueueStore, rules: KeepRules, now: float | None = None) -> int:
    """Delete what is beyond the limits; return the number of folders that were deleted.

    The folder of a start that has not ended is never deleted: it decides whether the start has
    happened.

    Args:
        store: Database of the queue.
        rules: Limits.
        now: Time in seconds since 1970 (default None: the present time).
    """
    oldest = (time.time() if now is None else now) - rules.seconds
    with store.transaction("clean up") as session:
        last = session.scalar(select(func.max(QueueEventRow.number))) or 0
        is_old = QueueEventRow.time < oldest
        is_surplus = QueueEventRow.number <= last - rules.max_events
        session.execute(delete(QueueEventRow).where(is_old | is_surplus))
        ended = select(AttemptRow.token).where(AttemptRow.ended_at >= oldest)
        newest = ended.order_by(AttemptRow.ended_at.desc()).limit(rules.max_starts)
        kept = set(session.scalars(newest))
        kept |= set(session.scalars(select(AttemptRow.token).where(AttemptRow.ended_at.is_(None))))
    return sum(
        _delete_others(folder, kept, oldest)
        for folder in (starts_folder(store.home), runs_folder(store.home))
    )


def _delete_others(folder: Path, kept: set[str], oldest: float) -> int:
    """Delete folders of other tokens; one without a token that is young may be in the making."""
    if not folder.is_dir():
        return 0
    doomed = [
        path
        for path in folder.iterdir()
        if path.name.partition(".")[0] not in kept
        and (not path.name.startswith(".") or path.stat().st_mtime < oldest)
    ]
    for path in doomed:
        with outside("queue: deletion of a folder"):
            shutil.rmtree(path)
    return len(doomed)
