"""Ranks in containers of podman on ssh hosts; the image is made of a few links to the machine."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import Hosts, open_hosts
from host_boot import readable_paths
from run_jobs import HOME, PYTHON, SLIPSTREAM, left_behind, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync", "podman", "runc"),
    pytest.mark.multiprocess,
]

SETTINGS = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
"""
STORAGE = """
[storage]
driver = "vfs"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
"""
VOLUMES = [f"--volume={path}:{path}:ro" for path in (Path("/usr"), *readable_paths())]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Yield a desk and a host with podman and the image `small`."""
    with open_hosts(tmp_path_factory.mktemp("hosts"), {}) as hosts:
        (host,) = hosts.start(1)
        host.path("/etc/containers").mkdir(exist_ok=True)
        host.path("/etc/containers/containers.conf").write_text(SETTINGS)
        host.path("/etc/containers/storage.conf").write_text(STORAGE)
        with tarfile.open(host.path("/tmp/small.tar"), "w") as archive:
            for name in ("bin", "lib", "lib64", "sbin"):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
                archive.addfile(link)
            mark = tarfile.TarInfo("image.txt")
            mark.size = 5
            archive.addfile(mark, io.BytesIO(b"small"))
        host.output("podman", "import", "/tmp/small.tar", "small", user="root")
        yield hosts


def fields(**container: object) -> dict[str, object]:
    return {
        "ssh": {"hosts": ["root@host1"], "home": "/root/.slipstream"},
        "container": {"image": "localhost/small", "python": str(PYTHON), **container},
    }


@pytest.mark.slow("container of a run")
def test_ranks_run_in_containers_and_end_with_their_job(hosts: Hosts) -> None:
    desk, host = hosts.desk, hosts["host1"]
    command = "sh -c 'echo $RANK in $(cat /image.txt) on $(hostname); exec sleep 1000'"
    write_job(desk, "boxed", command, processes=2, **fields(options=VOLUMES))
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "boxed/boxed.yaml", log=log)
    wait_until(lambda: "1 in small on host1\n" in log.read_text())
    assert "0 in small on host1\n" in log.read_text()
    desk.output(SLIPSTREAM, "cluster", "down", "boxed")
    assert client.process.wait(60) != 0
    wait_until(lambda: not left_behind(host))
    assert not host.output("podman", "ps", "-aq", user="root")


@pytest.mark.slow("container of a run")
def test_a_container_ends_when_the_host_daemon_is_killed(hosts: Hosts) -> None:
    desk, host = hosts.desk, hosts["host1"]
    write_job(desk, "orphan", "sh -c 'echo is up; exec sleep 1000'", **fields(options=VOLUMES))
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "orphan/orphan.yaml", log=log)
    wait_until(lambda: "is up\n" in log.read_text())
    assert host.output("podman", "ps", "-q", user="root")
    host.output("pkill", "-KILL", "-f", "slipstream.cluster.head.daemon", user="root")
    wait_until(lambda: not host.output("podman", "ps", "-aq", user="root"))
    desk.output(SLIPSTREAM, "cluster", "down", "orphan")
    client.process.wait(60)
    wait_until(lambda: not left_behind(host))


@pytest.mark.slow("container of a run")
def test_a_training_in_containers_is_a_training(hosts: Hosts) -> None:
    desk = hosts.desk
    job = fields(options=VOLUMES)
    write_job(desk, "trained", "steps.py 3 0", processes=2, outputs=["result.txt"], **job)
    done = desk.run(SLIPSTREAM, "run", "trained/trained.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert desk.path(f"{HOME}/trained/result.txt").read_text() == "3 steps on host1\n"


def test_an_image_without_slipstream_is_refused_before_the_start(hosts: Hosts) -> None:
    write_job(hosts.desk, "empty", "steps.py 3 0", **fields(options=VOLUMES[:1], python="python3"))
    done = hosts.desk.run(SLIPSTREAM, "run", "empty/empty.yaml")
    assert done.returncode != 0
    assert "trying the image localhost/small failed" in done.stderr
