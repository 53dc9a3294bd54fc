"""A fake of the API server of Kubernetes, and of its job controller, scheduler and kubelet.

`python fake_kubernetes.py PORT FOLDER` answers the few calls that the engine makes. It runs the
command of each pod as a process of this host, in a mount namespace of its own, where the pod's
volumes are, and in a network of all pods of the job; it also runs the commands that are executed in
a pod, and streams their output over a WebSocket. Nothing checks that a real cluster does the
same.
"""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "fake-token"
INDEX = "batch.kubernetes.io/job-completion-index"
QUOTA = "exceeded quota: small, requested: count/{0}=1, used: count/{0}=1, limited: count/{0}=1"
LOOK_SECONDS = 0.05
# In the namespace `full` no job is made; in `crowded` jobs get no pods.
FULL, CROWDED = "full", "crowded"
# In this one the stream of an executed command is cut after so many bytes, without a word.
SHAKY, SHAKY_BYTES = "shaky", 1_500_000
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455
MISSING_IMAGE = "missing"


def now() -> str:
    """Return the time with nanoseconds, as container runtimes write it."""
    moment = time.time_ns()
    seconds = datetime.fromtimestamp(moment // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{moment % 10**9:09d}Z"


class Network:
    """A network namespace, in which nothing but the loopback address is reached."""

    def __init__(self) -> None:
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.holder.stdout is not None
        assert self.holder.stdout.read(1)
        self.enter = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def close(self) -> None:
        """Let the network go; processes in it keep it."""
        self.holder.kill()
        self.holder.communicate()


class Pod:
    """A pod, which is a process once its secret is there."""

    def __init__(
        self, cluster: "FakeCluster", job: dict[str, Any], index: int, network: Network
    ) -> None:
        self.cluster, self.job, self.index, self.network = cluster, job, index, network
        self.name = f"{job['metadata']['name']}-{index}-{next(cluster.numbers):05d}"
        self.spec = job["spec"]["template"]["spec"]
        self.created = now()[:19] + "Z"
        self.process: subprocess.Popen[bytes] | None = None
        self.lines: list[tuple[str, str]] = []

    def start(self) -> None:
        """Start the command of the container with its volumes."""
        folder = self.cluster.folder / self.name
        binds: list[str] = []
        sources = {volume["name"]: self.fill(volume, folder) for volume in self.spec["volumes"]}
        container = self.spec["containers"][0]
        for mount in container["volumeMounts"]:
            if mount["mountPath"] != "/dev/shm":
                source, target = sources[mount["name"]], mount["mountPath"]
                binds.append(f"mkdir -p {target}; mount --bind {source} {target}")
        hosts = folder / "hosts"
        job = self.job["metadata"]
        service = f"{self.spec['subdomain']}.{job['namespace']}.svc"
        count = self.job["spec"]["completions"]
        names = " ".join(f"{job['name']}-{index}.{service}" for index in range(count))
        hosts.write_text(f"127.0.0.1 localhost {names}\n")
        script = "\n".join(["set -e", *binds, f"mount --bind {hosts} /etc/hosts", 'exec "$@"'])
        command = [
            word.replace("$(JOB_COMPLETION_INDEX)", str(self.index))
            for word in container["command"]
        ]
        self.process = subprocess.Popen(
            [*self.network.enter, "unshare", "--mount", "sh", "-c", script, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "JOB_COMPLETION_INDEX": str(self.index)},
        )
        threading.Thread(target=self.read, daemon=True).start()

    def fill(self, volume: dict[str, Any], folder: Path) -> Path:
        """Return a folder with the content of a volume."""
        path = folder / volume["name"]
        path.mkdir(parents=True)
        if "secret" in volume:
            secret = self.cluster.objects["secrets", volume["secret"]["secretName"]]
            for name, content in secret["data"].items():
                (path / name).write_bytes(base64.b64decode(content))
        return path

    def execute(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """Start a command in the container."""
        assert self.process is not None
        spaces = f"/proc/{self.process.pid}/ns"
        enter = ["nsenter", f"--net={spaces}/net", f"--mount={spaces}/mnt", "--", *command]
        return subprocess.Popen(
            enter, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def read(self) -> None:
        """Keep what the container prints, each line with its time."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((now(), line.decode(errors="replace")))

    def end(self) -> None:
        """End the process, after SIGTERM and a while with SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(self.spec["terminationGracePeriodSeconds"])
            except subprocess.TimeoutExpired:
                self.process.kill()

    def as_object(self) -> dict[str, Any]:
        """Return the pod as the API shows it."""
        state: dict[str, Any] = {}
        if self.spec["containers"][0]["image"] == MISSING_IMAGE:
            message = 'Back-off pulling image "missing"'
            state = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
        elif self.process is not None and self.process.poll() is not None:
            state = {"terminated": {"exitCode": self.process.returncode}}
        metadata = {
            "name": self.name,
            "creationTimestamp": self.created,
            "annotations": {INDEX: str(self.index)},
            "labels": self.job["spec"]["template"]["metadata"]["labels"],
        }
        return {"metadata": metadata, "status": {"containerStatuses": [{"state": state}]}}


class FakeCluster:
    """The objects of the cluster, and the threads that make pods of jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers = iter(range(100000))
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}
        self.lock = threading.RLock()

    def create(self, kind: str, manifest: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Create an object; return the status and the object or a message."""
        metadata = manifest["metadata"]
        with self.lock:
            if metadata["namespace"] == FULL and kind == "jobs":
                return 403, {"message": QUOTA.format("jobs.batch")}
            if (kind, metadata["name"]) in self.objects:
                return 409, {"message": f"{kind} {metadata['name']} already exists"}
            metadata["uid"] = f"uid-{next(self.numbers)}"
            self.objects[kind, metadata["name"]] = {**manifest, "status": {}}
            if kind == "jobs" and metadata["namespace"] != CROWDED:
                threading.Thread(target=self.control, args=(manifest,), daemon=True).start()
            return 201, manifest

    def delete(self, kind: str, name: str) -> tuple[int, dict[str, Any]]:
        """Delete an object and those that it owns."""
        with self.lock:
            gone = self.objects.pop((kind, name), None)
            if gone is None:
                return 404, {"message": f"{kind} {name} not found"}
            for key, other in list(self.objects.items()):
                owners = other["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                    del self.objects[key]
            return 200, {}

    def control(self, job: dict[str, Any]) -> None:
        """Make pods for a job until it has ended or is deleted."""
        name, spec = job["metadata"]["name"], job["spec"]
        network = Network()
        pods = {index: self.add(job, index, network) for index in range(spec["completions"])}
        rule = spec["podFailurePolicy"]["rules"][1]["onExitCodes"]
        failures = 0
        while self.objects.get(("jobs", name), {}).get("metadata") is job["metadata"]:
            time.sleep(LOOK_SECONDS)
            for index, pod in pods.items():
                can_start = ("secrets", name) in self.objects
                if pod.process is None:
                    if can_start and pod.spec["containers"][0]["image"] != MISSING_IMAGE:
                        pod.start()
                    continue
                code = pod.process.poll()
                if code is not None and code in rule["values"]:
                    self.finish(job, "Failed", "PodFailurePolicy", f"pod {pod.name}: code {code}")
                elif code:
                    failures += 1
                    pods[index] = self.add(job, index, network)
            if all(pod.process and pod.process.poll() == 0 for pod in pods.values()):
                self.finish(job, "Complete", "CompletionsReached", "")
            if failures > spec["backoffLimit"]:
                self.finish(job, "Failed", "BackoffLimitExceeded", "too many failures")
        for pod in [pod for pod in self.pods.values() if pod.job is job]:
            pod.end()
            self.pods.pop(pod.name, None)
        network.close()

    def add(self, job: dict[str, Any], index: int, network: Network) -> Pod:
        """Return a new pod of a job."""
        with self.lock:
            pod = Pod(self, job, index, network)
            self.pods[pod.name] = pod
            return pod

    def finish(self, job: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """Give a job its last condition."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        with self.lock:
            if found := self.objects.get(("jobs", job["metadata"]["name"])):
                found["status"] = {"conditions": [condition]}

    def evict(self, name: str) -> None:
        """Take a pod away: it is ended and deleted, and the job makes another one."""
        pod = self.pods[name]
        threading.Thread(target=pod.end, daemon=True).start()


class ApiHandler(BaseHTTPRequestHandler):
    """The answers of the API server."""

    cluster: FakeCluster

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer objects, lists and logs."""
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        kind, name, part = self.parts(url.path)
        cluster = self.cluster
        if part == "exec":
            return self.execute(name, parse_qs(url.query)["command"], f"/{SHAKY}/" in url.path)
        if part == "log":
            pod = cluster.pods.get(name)
            if pod is None or pod.process is None:
                return self.answer(400, {"message": "container is waiting to start"})
            since = query.get("sinceTime", "")
            lines = [f"{at} {line}" for at, line in pod.lines if at[:19] >= since[:19]]
            return self.answer(200, "".join(lines))
        if kind == "events":
            message = f'pods "x" is forbidden: {QUOTA.format("pods")}'
            event = {"reason": "FailedCreate", "type": "Warning", "message": message}
            return self.answer(200, {"items": [event] if f"/{CROWDED}/" in url.path else []})
        if kind == "pods":
            label, _, value = query["labelSelector"].partition("=")
            with cluster.lock:
                objects = [pod.as_object() for pod in cluster.pods.values()]
            items = [pod for pod in objects if pod["metadata"]["labels"].get(label) == value]
            return self.answer(200, {"items": items})
        found = cluster.objects.get((kind, name))
        return self.answer(404 if found is None else 200, found or {"message": "not found"})

    def execute(self, name: str, command: list[str], is_shaky: bool) -> None:
        """Run a command in a pod, and stream what it prints."""
        pod = self.cluster.pods.get(name)
        is_allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        if not is_allowed or pod is None or pod.process is None or pod.process.poll() is not None:
            return self.answer(404, {"message": f"pods {name} not found"})
        assert self.headers["Upgrade"] == "websocket"
        assert self.headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"
        digest = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + WEBSOCKET).encode()).digest()
        accept = base64.b64encode(digest).decode()
        self.wfile.write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n"
            "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode()
        )
        process = pod.execute(command)
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            left = SHAKY_BYTES if is_shaky else sys.maxsize
            self.send_frame(9, b"ping")
            while chunk := process.stdout.read(min(left, 32768)):
                self.send_frame(2, b"\x01" + chunk)
                left -= len(chunk)
                if not left:
                    process.kill()
                    return None
            if said := process.stderr.read():
                self.send_frame(2, b"\x02" + said)
        message = f"command terminated with non-zero exit code {process.returncode}"
        failure = {"status": "Failure", "reason": "NonZeroExitCode", "message": message}
        result = failure if process.returncode else {"status": "Success"}
        self.send_frame(2, b"\x03" + json.dumps(result).encode())
        self.send_frame(8, b"")
        self.rfile.read()  # a socket that is closed with unread bytes loses what it has sent
        return None

    def send_frame(self, code: int, payload: bytes) -> None:
        """Send a frame of a WebSocket."""
        size = len(payload)
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
        self.wfile.write(bytes([0x80 | code]) + length + payload)

    def do_POST(self) -> None:
        """Create an object."""
        kind, _, _ = self.parts(self.path)
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(*self.cluster.create(kind, manifest))

    def do_DELETE(self) -> None:
        """Delete an object; `evictions` of a pod is the fake's own."""
        kind, name, part = self.parts(self.path)
        if part == "eviction":
            self.cluster.evict(name)
            return self.answer(200, {})
        return self.answer(*self.cluster.delete(kind, name))

    def parts(self, path: str) -> tuple[str, str, str]:
        """Return the kind, the name and the part of an object that a path names."""
        words = path.partition("/namespaces/")[2].split("/")[1:]
        kind, name, part, *_ = [*words, "", "", ""]
        return kind, name, part

    def answer(self, status: int, content: dict[str, Any] | str) -> None:
        """Send an answer, unless the caller has no token."""
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, content = 401, {"message": "Unauthorized"}
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


def main() -> None:
    """Serve until the process is killed."""
    os.environ.pop("JOB_COMPLETION_INDEX", None)
    ApiHandler.cluster = FakeCluster(Path(sys.argv[2]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), ApiHandler).serve_forever()


if __name__ == "__main__":
    main()
