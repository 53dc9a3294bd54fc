"""What an engine would be given for a job; nothing is created, and no secret is shown."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.cluster.control.estimate import Estimate, capped
from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.choice import make_engine
from slipstream.cluster.records import RunRecord, Store
from slipstream.cluster.spec import JobSpec

HIDDEN = "hidden"
# A run gets its number when it begins.
NUMBER = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenRun:
    """What an engine would be given for a job.

    Args:
        job: Fields of the job that are not at their defaults.
        manifests: Manifests for Kubernetes; empty (the default) for other engines.
        script: Batch script for Slurm; "" (the default) for other engines.
        estimate: Estimate of the cost; None (the default) if nothing is created that costs
            something.
    """

    job: Mapping[str, Any]
    manifests: Sequence[Mapping[str, Any]] = ()
    script: str = ""
    estimate: Estimate | None = None


def write_run(spec: JobSpec, base: Path, home: Path, deadline: float) -> WrittenRun:
    """Return what the engine of a job would be given.

    Args:
        spec: Description of the job.
        base: Folder to which its paths are relative.
        home: Folder of the records.
        deadline: Longest time in seconds of a job without a deadline on machines that cost
            something.

    Raises:
        UsageError: the engine cannot run the job.
    """
    plan = _plan_without_keys(spec, base, home)
    engine = make_engine(spec, Store(home))
    engine.check(plan)
    job = spec.model_dump(mode="json", exclude_defaults=True)
    if spec.on == "k8s":
        from slipstream.cluster.engines.kubernetes.manifests import manifests

        return WrittenRun(job=job, manifests=[_without_secrets(each) for each in manifests(plan)])
    if spec.on == "slurm":
        from slipstream.cluster.engines.slurm.script import batch_script, home_of

        folder = home_of(plan)
        python = spec.software.python
        if spec.software.environment != "existing":
            python = f"{folder}/envs/ENVIRONMENT/bin/python"
        return WrittenRun(job=job, script=batch_script(plan, f"{folder}/runs/{plan.run}", python))
    timed = spec.model_copy(update={"deadline": spec.deadline or deadline})
    estimate = engine.estimate(timed)
    return WrittenRun(job=job, estimate=estimate and capped(estimate, spec.cost_cap))


def _plan_without_keys(spec: JobSpec, base: Path, home: Path) -> RunPlan:
    now = time.time()
    record = RunRecord(
        number=NUMBER,
        name=spec.name,
        engine=spec.on,
        state="planned",
        spec=spec.model_dump(mode="json"),
        facts={},
        created_at=now,
        deadline_at=None if spec.deadline is None else now + spec.deadline,
        ended_at=None,
        exit_code=None,
        message="",
    )
    return RunPlan(
        record=record,
        spec=spec,
        base=base,
        home=home,
        certificate=HIDDEN,
        private_key=HIDDEN,
        job_key=HIDDEN,
        public_ssh_key=HIDDEN,
        secret_variables=dict.fromkeys(spec.secrets, HIDDEN),
    )


def _without_secrets(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a manifest; the contents of a Secret are replaced by their sizes."""
    if manifest["kind"] != "Secret":
        return manifest
    sizes = {name: len(base64.b64decode(data)) for name, data in manifest["data"].items()}
    data = {
        name: base64.b64encode(f"{HIDDEN}: {size} bytes".encode()).decode()
        for name, size in sizes.items()
    }
    return {**manifest, "data": data}
