"""Calls to the API server of Kubernetes, over HTTP and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote, urlencode

from slipstream.cluster.engines.http_exchange import connected, exchange
from slipstream.cluster.engines.kubernetes.access import KubernetesAccess
from slipstream.cluster.engines.kubernetes.exec_stream import (
    SWITCHED,
    command_output,
    open_command,
)
from slipstream.cluster.outside import outside
from slipstream.errors import (
    AuthError,
    ConfigError,
    PeerError,
    QuotaError,
    SlipstreamError,
    UsageError,
)

CALL_SECONDS = 30.0
COMMAND_SECONDS = 120.0  # without a byte of its output
MISSING, CONFLICT = 404, 409
# Path of the collection of each kind, within a namespace.
_GROUPS = {
    "Job": "apis/batch/v1",
    "JobSet": "apis/jobset.x-k8s.io/v1alpha2",
    "Secret": "api/v1",
    "Service": "api/v1",
    "Pod": "api/v1",
    "Event": "api/v1",
}


class KubernetesApi:
    """The API server, as seen from one namespace.

    Args:
        access: Access to the cluster.
        namespace: Namespace of all objects.
    """

    def __init__(self, access: KubernetesAccess, namespace: str) -> None:
        self._access = access
        self._namespace = namespace

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, unless there is one of its name; return it.

        Raises:
            QuotaError: the quota of the namespace does not allow it.
            ConfigError, UsageError: the server refuses it.
            PeerError: the server cannot be reached.
        """
        kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
        status, answer = self._call("POST", kind, self._path(kind), json.dumps(manifest))
        if status == CONFLICT:
            return self.get(kind, name) or {}
        return cast("dict[str, Any]", json.loads(answer))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if there is none of this name."""
        status, answer = self._call("GET", kind, self._path(kind, name))
        return None if status == MISSING else json.loads(answer)

    def list(self, kind: str, **selectors: str) -> list[dict[str, Any]]:
        """Return the objects that selectors choose, such as labelSelector."""
        _, answer = self._call("GET", kind, f"{self._path(kind)}?{urlencode(selectors)}")
        return json.loads(answer)["items"]

    def delete(self, kind: str, name: str) -> None:
        """Delete an object and all that belongs to it; do nothing if there is none."""
        options = json.dumps({"propagationPolicy": "Background"})
        self._call("DELETE", kind, self._path(kind, name), options)

    def read_log(self, pod: str, since: str) -> str:
        """Return the log of a pod, each line after its time; "" before its container has started.

        Args:
            pod: Name of the pod.
            since: Time with whole seconds, before which nothing is returned; "" for the beginning.
        """
        query = {"timestamps": "true", **({"sinceTime": since} if since else {})}
        path = f"{self._path('Pod', pod)}/log?{urlencode(query)}"
        status, answer = self._call("GET", "Pod", path, allowed=(MISSING, 400))
        return "" if status in (MISSING, 400) else answer

    def execute(self, pod: str, container: str, command: Sequence[str]) -> Iterator[bytes]:
        """Run a command in a pod, and yield its standard output as it comes.

        Args:
            pod: Name of the pod.
            container: Name of the container.
            command: Program and arguments, which contain no secret.

        Raises:
            PeerError: the connection has ended before the command.
            ConfigError: the command has failed, or the server refuses it.
        """
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query += [("command", word) for word in command]
        path = f"{self._path('Pod', pod)}/exec?{urlencode(query)}"
        server = self._access.server
        with outside("kubernetes exec Pod"):
            try:
                with connected(server, seconds=COMMAND_SECONDS, tls=self._access.tls) as connection:
                    answer = open_command(connection, path, self._headers())
                    if answer.status != SWITCHED:
                        text = answer.read().decode(errors="replace")
                        raise _error("execution of a command in a Pod", answer.status, text)
                    yield from command_output(connection, answer)
            except OSError as error:
                raise PeerError(f"the connection to the pod {pod} is lost: {error}") from error

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json, */*", "Content-Type": "application/json"}
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        return headers

    def _path(self, kind: str, name: str = "") -> str:
        folder = f"/{_GROUPS[kind]}/namespaces/{self._namespace}/{kind.lower()}s"
        return f"{folder}/{quote(name)}" if name else folder

    def _call(
        self,
        method: str,
        kind: str,
        path: str,
        body: str = "",
        allowed: tuple[int, ...] = (MISSING, CONFLICT),
    ) -> tuple[int, str]:
        """Return the status and the text of an answer; raise the error of any other status."""
        with outside(f"kubernetes {method} {kind}"):
            try:
                status, text = exchange(
                    method,
                    self._access.server + path,
                    body.encode(),
                    self._headers(),
                    seconds=CALL_SECONDS,
                    tls=self._access.tls,
                )
            except OSError as error:
                raise PeerError(
                    f"the API server of Kubernetes at {self._access.server} cannot be reached:"
                    f" {error}; `kubectl get pods` must work"
                ) from error
        if status < 300 or status in allowed:
            return status, text
        raise _error(f"{method} of a {kind}", status, text)


def _error(call: str, status: int, text: str) -> SlipstreamError:
    try:
        said = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        said = text[:300]
    problem = f"Kubernetes refuses the {call} ({status}): {said}"
    if status == 401:
        return AuthError(f"{problem}; renew your login, or choose another k8s.context")
    if status == 403 and "quota" in said:
        return QuotaError(f"{problem}; ask for less, or later")
    if status == 403:
        return ConfigError(f"{problem}; ask for this right, or choose another k8s.namespace")
    if status in (400, 404, 422):
        return UsageError(f"{problem}; change the fields of k8s or resources")
    return PeerError(problem)
