"""The engine of a name."""

from __future__ import annotations

from slipstream.cluster.engines.protocol import RunEngine
from slipstream.cluster.records import Store
from slipstream.cluster.spec import JobSpec
from slipstream.errors import UsageError


def make_engine(spec: JobSpec, store: Store) -> RunEngine:
    """Return the engine of a job.

    Args:
        spec: Description of the job, which names the engine.
        store: Database of the records.

    Raises:
        UsageError: there is no such engine.
        UnsupportedError: a package of the engine is not installed.
    """
    match spec.on:
        case "local":
            from slipstream.cluster.engines.local import LocalEngine

            return LocalEngine()
        case "ssh":
            from slipstream.cluster.engines.ssh import SshEngine

            return SshEngine()
        case "slurm":
            from slipstream.cluster.engines.slurm.engine import SlurmEngine

            return SlurmEngine()
        case "k8s":
            from slipstream.cluster.engines.kubernetes.engine import KubernetesEngine

            return KubernetesEngine()
        case "ray":
            from slipstream.cluster.engines.ray.engine import RayEngine

            return RayEngine(spec.ray.address)
        case "aws" | "aliyun":
            from slipstream.cluster.engines.cloud import CloudEngine

            return CloudEngine(spec.on, spec, store)
        case _:
            raise UsageError(
                f"the engine is {spec.on!r}; allowed: local, ssh, slurm, k8s, ray, aws, aliyun"
            )
