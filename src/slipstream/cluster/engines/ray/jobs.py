"""Jobs of a Ray cluster, by the HTTP interface of its job server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from slipstream.cluster.engines.http_exchange import HttpStatusError, download, exchange
from slipstream.cluster.outside import outside
from slipstream.errors import AuthError, ConfigError, PeerError, SlipstreamError, UsageError
from slipstream.settings.engines import ray_address, ray_token

CALL_SECONDS = 60.0
MISSING = 404
FILE_SECONDS = 3600
ABSENT = "A file is not found"  # the status is that of any other error


class RayJobs:
    """The jobs of one Ray cluster.

    Args:
        address: URL of the dashboard; "" for that of the environment.

    Raises:
        UsageError: there is no URL, or it is another kind of address.
    """

    def __init__(self, address: str) -> None:
        self._address = (address or ray_address()).rstrip("/")
        if urlsplit(self._address).scheme not in ("http", "https"):
            raise UsageError(
                f"the address of Ray is {self._address!r}; set ray.address to the URL of the"
                " dashboard, such as http://head:8265"
            )
        self._token = ray_token()

    def get(self, job: str) -> dict[str, Any] | None:
        """Return what Ray knows about a job, or None if there is none of this name.

        Raises:
            AuthError: the token is wrong or missing.
            PeerError: the job server does not answer.
        """
        status, text = self._call("GET", f"/api/jobs/{job}")
        return None if status == MISSING else json.loads(text)

    def read_log(self, job: str) -> str:
        """Return all that the driver of a job has printed, or "" if there is no such job."""
        status, text = self._call("GET", f"/api/jobs/{job}/logs")
        return "" if status == MISSING else str(json.loads(text).get("logs") or "")

    def upload(self, name: str, package: bytes) -> str:
        """Bring a package to the cluster; return its URI."""
        self._call("PUT", f"/api/packages/gcs/{name}", package)
        return f"gcs://{name}"

    def submit(self, job: str, entrypoint: str, runtime_env: Mapping[str, Any]) -> None:
        """Start a job, unless there is one of its name."""
        fields = {"submission_id": job, "entrypoint": entrypoint, "runtime_env": dict(runtime_env)}
        status, text = self._call("POST", "/api/jobs/", json.dumps(fields).encode(), (500,))
        if status >= 300 and "already exists" not in text:
            raise PeerError(f"Ray refuses the job: {text.strip().splitlines()[-1]}")

    def stop(self, job: str) -> None:
        """End a job; do nothing if there is none, or if it has ended."""
        self._call("POST", f"/api/jobs/{job}/stop", b"", (400,))

    def delete(self, job: str) -> bool:
        """Forget a job that has ended; return whether it is gone."""
        status, _ = self._call("DELETE", f"/api/jobs/{job}", b"", (400, 500))
        return status < 300 or status == MISSING

    def read_file(self, node: str, name: str) -> Iterator[bytes]:
        """Yield the content of a file among the logs of a node, in chunks; nothing if it is absent.

        Args:
            node: Identifier of the node.
            name: Name of the file.

        Raises:
            PeerError: the job server does not answer, or the connection has ended.
        """
        # -1 lines are all, and the time limit is that of the whole answer.
        query = {"node_id": node, "filename": name, "lines": "-1", "timeout": str(FILE_SECONDS)}
        path = f"/api/v0/logs/file?{urlencode(query)}"
        with outside("ray GET logs"):
            try:
                yield from download(self._address + path, self._headers(), seconds=CALL_SECONDS)
            except HttpStatusError as error:
                if ABSENT not in error.text:
                    raise _refusal("GET", path, error.status, error.text) from error
            except OSError as error:
                raise self._unreachable(error) from error

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _call(
        self, method: str, path: str, body: bytes = b"", allowed: Sequence[int] = ()
    ) -> tuple[int, str]:
        url = self._address + path
        with outside(f"ray {method} {path.split('/')[2]}"):
            try:
                status, text = exchange(method, url, body, self._headers(), seconds=CALL_SECONDS)
            except OSError as error:
                raise self._unreachable(error) from error
        if status < 300 or status == MISSING or status in allowed:
            return status, text
        raise _refusal(method, path, status, text)

    def _unreachable(self, error: OSError) -> PeerError:
        return PeerError(
            f"the job server of Ray at {self._address} cannot be reached: {error}; is it the"
            " address of the dashboard?"
        )


def _refusal(method: str, path: str, status: int, text: str) -> SlipstreamError:
    said = text.strip().splitlines()[-1:] or [""]
    if status in (401, 403):
        return AuthError(
            f"Ray refuses the token ({status}): {said[0]}; set RAY_AUTH_TOKEN, or write the"
            " cluster's token to ~/.ray/auth_token"
        )
    if status == 400:
        return ConfigError(f"Ray refuses {method} {path}: {said[0]}")
    return PeerError(f"Ray fails at {method} {path} ({status}): {said[0]}")
