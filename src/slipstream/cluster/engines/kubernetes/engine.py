"""The engine of Kubernetes: an Indexed Job, whose first pod has the head and the journal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.cluster.control.estimate import Estimate
from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.kubernetes.access import read_access
from slipstream.cluster.engines.kubernetes.api import KubernetesApi
from slipstream.cluster.engines.kubernetes.manifests import (
    CONTAINER,
    LABEL,
    WORK_FOLDER,
    manifests,
)
from slipstream.cluster.engines.kubernetes.pod_log import read_pod_log
from slipstream.cluster.engines.outputs import ResumedStream, unmatched, unpack_outputs
from slipstream.cluster.engines.protocol import HeadState, JournalPart, RunProgress
from slipstream.cluster.engines.remarks import (
    DEADLINE_CODE,
    Remarks,
    cancelled_entry,
    end_entry,
    is_submitted,
    mark_cancelled,
    mark_submitted,
)
from slipstream.cluster.head.bundle import CODE
from slipstream.cluster.head.in_pod import FAILED_CODE
from slipstream.cluster.spec import JobSpec
from slipstream.errors import PeerError, QuotaError, UsageError

POLL_SECONDS = 0.5
LOOK_SECONDS = 3.0
_INDEX = "batch.kubernetes.io/job-completion-index"
# Reasons for which a container waits and never starts by itself.
_WRONG = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")


class KubernetesEngine:
    """The engine of Kubernetes."""

    name = "k8s"

    def __init__(self) -> None:
        self._apis: dict[str, KubernetesApi] = {}
        self._looked_at = 0.0
        self._remarks = Remarks()

    def check(self, plan: RunPlan) -> None:
        """Refuse what a pod cannot do, and a job without an image."""
        spec = plan.spec
        if not spec.k8s.image:
            raise UsageError(
                "k8s.image is not set; name a container image with Slipstream and the packages of"
                " the job"
            )
        refused = {
            "software.packages": (spec.software.packages, "put them into the image"),
            "software.requirements": (spec.software.requirements, "put them into the image"),
            "software.frameworks": (spec.software.frameworks, "put them into the image"),
            "software.cuda": (spec.software.cuda, "set k8s.node_selector"),
            "software.cudnn": (spec.software.cudnn, "put it into the image"),
            "resources.gpu": (spec.resources.gpu, "set k8s.node_selector"),
            "data": (
                [item.source for item in spec.data if "://" not in item.source],
                "a pod has no files of this machine; name a URL",
            ),
        }
        for name, (value, remedy) in refused.items():
            if value:
                raise UsageError(f"{name} is set, but the engine is k8s; {remedy}")

    def estimate(self, spec: JobSpec) -> Estimate | None:
        """Return None: it creates no machines."""
        del spec

    def prepare(self, plan: RunPlan, progress: RunProgress) -> None:
        """Ask the API server for the job, to know that it answers."""
        plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with progress.stage("look"):
            self._api(plan).get("Job", plan.run)

    def submit(self, plan: RunPlan) -> None:
        """Create what does not exist yet; the Job owns the rest, which is deleted with it."""
        job, *others = manifests(plan)
        api = self._api(plan)
        mark_submitted(plan)
        made = api.create(job)
        owner = {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": plan.run,
            "uid": made["metadata"]["uid"],
        }
        for manifest in others:
            manifest["metadata"]["ownerReferences"] = [owner]
            api.create(manifest)

    # ---- while it runs ----

    def read_journal(self, plan: RunPlan, position: str, seconds: float) -> JournalPart:
        """Return new lines of the first pod's log, or why it waits or has ended without a result.

        Raises:
            QuotaError, UsageError: the pods never start.
        """
        until = time.monotonic() + seconds
        while True:
            pods = self._pods(plan)
            heads = [str(pod["metadata"]["name"]) for pod in pods if _index(pod) == 0]
            text, position = read_pod_log(self._api(plan).read_log, heads, position)
            if not text and time.monotonic() - self._looked_at >= LOOK_SECONDS:
                self._looked_at = time.monotonic()
                text = self._look(plan, pods)
            if text or time.monotonic() >= until:
                return JournalPart(text=text, position=position)
            time.sleep(POLL_SECONDS)

    def _pods(self, plan: RunPlan) -> list[dict[str, Any]]:
        """Return the pods of a run, the oldest first."""
        pods = self._api(plan).list("Pod", labelSelector=f"{LABEL}={plan.run}")
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def _look(self, plan: RunPlan, pods: Sequence[Mapping[str, Any]]) -> str:
        """Return an entry about the job if there is news, or ""."""
        job = self._api(plan).get("Job", plan.run)
        if job is None or cancelled_entry(plan):
            return cancelled_entry(plan)
        status = job.get("status", {})
        for condition in status.get("conditions") or ():
            if condition["status"] == "True" and condition["type"] in ("Failed", "Complete"):
                reason = str(condition.get("reason", condition["type"]))
                code = DEADLINE_CODE if reason == "DeadlineExceeded" else 1
                text = f"{reason}: {condition.get('message', 'no result was found')}"
                return end_entry("failed", code, "; ".join([text, *self._last_words(plan, pods)]))
        if not pods:
            return self._look_at_events(plan)
        return next(filter(None, (self._look_at_pod(pod) for pod in pods)), "")

    def _last_words(self, plan: RunPlan, pods: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the last line of each pod that has failed for good."""
        words: list[str] = []
        for pod in pods:
            for container in pod.get("status", {}).get("containerStatuses") or ():
                ended: Mapping[str, Any] = container.get("state", {}).get("terminated") or {}
                name = str(pod["metadata"]["name"])
                if ended.get("exitCode") == FAILED_CODE:
                    lines = self._api(plan).read_log(name, "").splitlines()[-1:]
                    words += [f"{name}: {line.partition(' ')[2]}" for line in lines]
        return words

    def _look_at_events(self, plan: RunPlan) -> str:
        """Return a remark on why no pod was made."""
        selector = f"involvedObject.name={plan.run}"
        for event in self._api(plan).list("Event", fieldSelector=selector):
            message = str(event.get("message", ""))
            if event.get("reason") == "FailedCreate" and "exceeded quota" in message:
                raise QuotaError(f"Kubernetes makes no pods: {message}; ask for less, or later")
            if event.get("type") == "Warning":
                return self._remarks.entry(f"Kubernetes: {message}")
        return ""

    def _look_at_pod(self, pod: Mapping[str, Any]) -> str:
        """Return a remark on a pod that waits.

        Raises:
            UsageError: it never starts.
        """
        name, status = pod["metadata"]["name"], pod.get("status", {})
        for container in status.get("containerStatuses") or ():
            waiting: Mapping[str, Any] = container.get("state", {}).get("waiting") or {}
            if waiting.get("reason") in _WRONG:
                raise UsageError(
                    f"the pod {name} cannot start: {waiting['reason']}:"
                    f" {waiting.get('message', '')}; check k8s.image"
                )
        for condition in status.get("conditions") or ():
            if condition.get("reason") == "Unschedulable":
                return self._remarks.entry(f"the pod {name} waits: {condition.get('message')}")
        return ""

    def head_state(self, plan: RunPlan) -> HeadState:
        """Return whether there is a job; Kubernetes starts a head again that was lost."""
        try:
            job = self._api(plan).get("Job", plan.run)
        except PeerError:
            return "unreachable"
        return "absent" if job is None and not cancelled_entry(plan) else "running"

    def restart_head(
        self, plan: RunPlan, progress: RunProgress, *, host_is_lost: bool
    ) -> Sequence[str]:
        """Create the job again."""
        del progress, host_is_lost
        self.submit(plan)
        return ()

    def replace_hosts(
        self, plan: RunPlan, lost: Sequence[str], progress: RunProgress
    ) -> Sequence[str]:
        """Return no host: Kubernetes starts lost pods again."""
        del plan, lost, progress
        return ()

    # ---- the end ----

    def cancel(self, plan: RunPlan) -> None:
        """Delete the job, which ends its pods."""
        mark_cancelled(plan)
        self._looked_at = 0.0
        self._api(plan).delete("Job", plan.run)

    def fetch(self, plan: RunPlan, patterns: Sequence[str], folder: Path) -> Sequence[str]:
        """Copy the outputs of the first pod, which waits for this."""
        heads = [pod for pod in self._pods(plan) if _index(pod) == 0]
        if not heads:
            raise PeerError(
                f"the first pod of {plan.run} is gone, and the outputs with it; outputs_wait is"
                f" {plan.spec.outputs_wait:g} s"
            )
        pod, code = str(heads[-1]["metadata"]["name"]), f"{WORK_FOLDER}/{CODE}"
        words = [plan.spec.software.python, "-m", "slipstream.cluster.head.outputs", code]
        api = self._api(plan)
        stream = ResumedStream(
            lambda skip: api.execute(pod, CONTAINER, [*words, str(skip), *patterns])
        )
        return unmatched(patterns, unpack_outputs(stream, folder))

    def release(self, plan: RunPlan) -> None:
        """Delete everything of the run."""
        for kind in ("Job", "Secret", "Service") if is_submitted(plan) else ():
            self._api(plan).delete(kind, plan.run)

    def shell(self, plan: RunPlan, host: str) -> list[str]:
        """Refuse: Kubernetes has a command for this."""
        index = host.rpartition("-")[2] or "0"
        raise UsageError(
            f"{plan.run} runs in Kubernetes; call `kubectl -n {plan.spec.k8s.namespace} get pods -l"
            f" {LABEL}={plan.run}` and `kubectl exec -it` with the pod of the index {index}"
        )

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        """Return the path in every pod."""
        return f"{WORK_FOLDER}/{CODE}/{path}"

    def _api(self, plan: RunPlan) -> KubernetesApi:
        options = plan.spec.k8s
        if plan.run not in self._apis:
            access = read_access(options.context)
            self._apis[plan.run] = KubernetesApi(access, options.namespace)
        return self._apis[plan.run]


def _index(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["annotations"][_INDEX])
