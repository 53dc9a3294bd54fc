"""The last step of a run: the files of buckets are sent back before the result is known."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.placement import RunPlacement
from slipstream.cluster.head.storage.buckets import send_back
from slipstream.cluster.head.supervisor import FinalState


def send_buckets_back(placement: RunPlacement, journal: Journal, result: FinalState) -> FinalState:
    """Write new and changed files to the buckets of a run; return its result.

    Args:
        placement: Run, on whose head's host this is.
        journal: Journal that gets a remark for each bucket.
        result: Result of the ranks; it becomes a failure if a bucket cannot be written.
    """
    buckets = [bucket for bucket in placement.buckets if bucket.is_sent_back]
    if buckets:
        os.environ.update(placement.environ)
    for bucket in buckets:
        try:
            count = send_back(bucket.url, Path(bucket.folder))
        except Exception as error:  # noqa: BLE001 - every store has errors of its own
            text = f"the bucket {bucket.name} ({bucket.url}) cannot be written: {error}"
            journal.display.note(text)
            if result.exit_code == 0:
                result = replace(result, state="failed", exit_code=1, reason=text)
        else:
            journal.display.note(f"{count} files were written to the bucket {bucket.name}")
    return result
