"""The manifests of a run in Kubernetes: an Indexed Job, its Secret and its headless Service."""

from __future__ import annotations

import base64
import time
from typing import Any

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.code_bundle import bundle_files
from slipstream.cluster.head.bundle import CODE
from slipstream.cluster.head.in_pod import FAILED_CODE
from slipstream.cluster.head.placement import FILE_NAME
from slipstream.errors import UsageError

LABEL = "slipstream.run"
CONTAINER = "rank-host"
SECRET_FOLDER = "/run/slipstream/secret"
WORK_FOLDER = "/run/slipstream/work"
HEAD_PORT = 29400
MAX_SECRET_BYTES = 1 << 20  # Kubernetes allows no more
# Kubernetes ends the pods so long after the deadline, at which the head ends the ranks.
MARGIN_SECONDS = 120
GRACE_SECONDS = 60
KEPT_SECONDS = 86400  # a job that has ended is kept so long, for a client that comes back
MAX_POD_FAILURES = 20  # pods that were evicted or preempted do not count
_DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


def manifests(plan: RunPlan) -> list[dict[str, Any]]:
    """Return the manifests of a run, in the order in which they are created.

    The Secret contains the key of the run, so it must be hidden when it is shown.

    Args:
        plan: Run.

    Raises:
        UsageError: the code does not fit into a Secret.
    """
    return [_job(plan), _secret(plan), _service(plan)]


def _metadata(plan: RunPlan) -> dict[str, Any]:
    return {
        "name": plan.run,
        "namespace": plan.spec.k8s.namespace,
        "labels": {LABEL: plan.run, "app.kubernetes.io/managed-by": "slipstream"},
    }


def _job(plan: RunPlan) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": plan.spec.hosts.max,
        "parallelism": plan.spec.hosts.max,
        "backoffLimit": MAX_POD_FAILURES,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [_DISRUPTED]},
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": CONTAINER,
                        "operator": "In",
                        "values": [FAILED_CODE],
                    },
                },
            ]
        },
        "template": {
            "metadata": {"labels": {LABEL: plan.run}},
            "spec": _pod(plan),
        },
    }
    if plan.record.deadline_at is not None:
        waits = plan.spec.outputs_wait if plan.spec.outputs else 0.0
        left = int(plan.record.deadline_at - time.time() + waits) + MARGIN_SECONDS
        spec["activeDeadlineSeconds"] = max(left, 1)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(plan), "spec": spec}


def _pod(plan: RunPlan) -> dict[str, Any]:
    options = plan.spec.k8s
    claims = {f"claim-{number}": claim for number, claim in enumerate(options.claims.items())}
    volumes: list[dict[str, Any]] = [
        {"name": "secret", "secret": {"secretName": plan.run}},
        {"name": "work", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        *(
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for name, (claim, _) in claims.items()
        ),
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "secret", "mountPath": SECRET_FOLDER, "readOnly": True},
        {"name": "work", "mountPath": WORK_FOLDER},
        {"name": "memory", "mountPath": "/dev/shm"},
        *({"name": name, "mountPath": path} for name, (_, path) in claims.items()),
    ]
    module = "slipstream.cluster.head.in_pod"
    words = [plan.spec.software.python, "-m", module, SECRET_FOLDER, WORK_FOLDER]
    container = {
        "name": CONTAINER,
        "image": options.image,
        "command": [*words, "$(JOB_COMPLETION_INDEX)"],
        "resources": {"limits": _limits(plan)},
        "volumeMounts": mounts,
    }
    pod: dict[str, Any] = {
        "subdomain": plan.run,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [container],
        "volumes": volumes,
    }
    if options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    return pod


def _limits(plan: RunPlan) -> dict[str, str]:
    resources = plan.spec.resources
    limits = {
        "nvidia.com/gpu": str(resources.gpus) if resources.gpus else "",
        "cpu": str(resources.cpus) if resources.cpus else "",
        "memory": f"{int(resources.memory * 1024)}Mi" if resources.memory else "",
        "ephemeral-storage": f"{int(resources.disk * 1024)}Mi" if resources.disk else "",
        **{name: str(count) for name, count in resources.accelerators.items()},
    }
    return {name: value for name, value in limits.items() if value}


def _secret(plan: RunPlan) -> dict[str, Any]:
    spec = plan.spec
    names = tuple(f"{plan.run}-{index}" for index in range(spec.hosts.max))
    service = f"{plan.run}.{spec.k8s.namespace}.svc"
    placement = plan.placement(
        cwd=f"{WORK_FOLDER}/{CODE}",
        hosts=names,
        python=spec.software.python,
        heads=(f"{names[0]}.{service}",),
        head_port=HEAD_PORT,
    )
    files = {FILE_NAME: placement.as_text().encode(), **bundle_files(plan)}
    size = sum(map(len, files.values()))
    if size > MAX_SECRET_BYTES:
        raise UsageError(
            f"the code in {plan.code_folder} has {size / 2**20:.1f} MiB when it is packed, and"
            " Kubernetes takes 1 MiB; name what is not needed in code.exclude, or set code.git"
        )
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(plan), "data": data}


def _service(plan: RunPlan) -> dict[str, Any]:
    """Return the Service by which pods find each other by name, before they are ready."""
    spec = {
        "clusterIP": "None",
        "selector": {LABEL: plan.run},
        "publishNotReadyAddresses": True,
        "ports": [{"name": "head", "port": HEAD_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(plan), "spec": spec}
