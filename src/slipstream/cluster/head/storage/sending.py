"""The last step of a run: the files of buckets are sent back before the result is known."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.placement import RunPlacement
from slipstream.cluster.head.storage.buckets import StorageBucket, send_back
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
        failure = _send(bucket, journal)
        if failure and result.exit_code == 0:
            result = replace(result, state="failed", exit_code=1, reason=failure)
    return result


def _send(bucket: StorageBucket, journal: Journal) -> str:
    """Write files to a bucket, with remarks; return what failed, perhaps ""."""
    named = f"the bucket {bucket.name}"
    failure = ""
    try:
        sent = send_back(bucket.url, Path(bucket.folder))
    except Exception as error:  # noqa: BLE001 - every store has errors of its own
        failure = f"{named} ({bucket.url}) cannot be written: {error}"
    else:
        journal.display.note(f"{sent.count} files were written to {named}")
        for name in sent.conflicts:
            journal.display.note(
                f"{named} has a newer file: that of this run was written to {name}"
            )
        if sent.failures:
            failure = f"{named} ({bucket.url}) did not get {', '.join(sent.failures)}"
    if failure:
        journal.display.note(failure)
    return failure
