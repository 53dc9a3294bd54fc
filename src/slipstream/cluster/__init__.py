"""Bring up machines, run jobs on them, and give everything back.

from slipstream.cluster import JobSpec, run

job = JobSpec(name="train", command="train.py --lr 0.1", on="ssh", hosts="2:4", ...)
exit_code = run(job)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream.lazy import attributes

if TYPE_CHECKING:
    from slipstream.cluster.control.api import attach as attach
    from slipstream.cluster.control.api import run as run
    from slipstream.cluster.control.session import RunSession as RunSession
    from slipstream.cluster.progress import report_progress as report_progress
    from slipstream.cluster.records import RunRecord as RunRecord
    from slipstream.cluster.spec import JobSpec as JobSpec
    from slipstream.cluster.spec import read_job as read_job

__getattr__ = attributes(
    "slipstream.cluster",
    "cluster",
    {
        "JobSpec": "slipstream.cluster.spec:JobSpec",
        "RunRecord": "slipstream.cluster.records:RunRecord",
        "RunSession": "slipstream.cluster.control.session:RunSession",
        "attach": "slipstream.cluster.control.api:attach",
        "read_job": "slipstream.cluster.spec:read_job",
        "report_progress": "slipstream.cluster.progress:report_progress",
        "run": "slipstream.cluster.control.api:run",
    },
)
