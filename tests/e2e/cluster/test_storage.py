"""Storage of a job: what is mounted for its ranks alone, and buckets whose files come and go."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import Hosts, open_hosts
from run_jobs import HOME, SLIPSTREAM, left_behind, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync", "mkfs.ext4"),
    pytest.mark.multiprocess,
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all hosts mount at /shared, with a disk and a bucket in it."""
    folder = tmp_path_factory.mktemp("shared")
    for path in (folder, folder / "common", folder / "bucket"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    (folder / "bucket" / "first.txt").write_text("a file of the bucket")
    disk = folder / "disk.img"
    disk.touch()
    subprocess.run(["truncate", "-s", "8M", disk], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-E", "root_owner=0:0", disk], check=True)
    return folder


@pytest.fixture(scope="module")
def hosts(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Yield a desk and two hosts, which all mount /shared."""
    with open_hosts(tmp_path_factory.mktemp("hosts"), {"/shared": shared}) as hosts:
        hosts.start(2)
        yield hosts


STORAGE = {
    "common": {"folder": "/shared/common", "path": "/srv/data"},
    "scratch": {"disk": "/shared/disk.img", "path": "/srv/scratch"},
    "results": {"bucket": "file:///shared/bucket", "path": "in"},
}
PROGRAM = "storage_steps.py 0 /srv/data /srv/scratch in"


def mounted(host: str, hosts: Hosts) -> list[str]:
    """Return the mount points below /srv that a login on the host sees."""
    lines = hosts[host].output("cat", "/proc/mounts").splitlines()
    return [line for line in lines if " /srv/" in line]


@pytest.mark.slow("storage of a run")
def test_ranks_on_ssh_hosts_see_storage_that_nobody_else_sees(hosts: Hosts, shared: Path) -> None:
    fields = {"ssh": {"hosts": ["root@host1"], "home": "/root/.slipstream"}, "storage": STORAGE}
    write_job(hosts.desk, "stored", PROGRAM, **fields)
    done = hosts.desk.run(SLIPSTREAM, "run", "stored/stored.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 reads a file of the bucket\n" in done.stdout
    assert (shared / "common" / "rank.0").read_text() == "0 True"
    assert (shared / "bucket" / "rank.0").read_text() == "0 False"
    assert "1 files were written to the bucket results" in done.stderr
    wait_until(lambda: not left_behind(hosts["host1"]))
    assert mounted("host1", hosts) == []
    assert hosts["host1"].output("ls", "-A", "/srv/data", "/srv/scratch").split() == [
        "/srv/data:",
        "/srv/scratch:",
    ]


@pytest.mark.slow("storage of a run")
def test_storage_is_unmounted_when_everything_of_a_run_is_killed(hosts: Hosts) -> None:
    host = hosts["host2"]
    storage = {"common": STORAGE["common"], "results": STORAGE["results"]}
    fields = {"ssh": {"hosts": ["root@host2"], "home": "/root/.slipstream"}, "storage": storage}
    write_job(hosts.desk, "cut", "storage_steps.py 1000 /srv/data", **fields)
    log = hosts.desk.write(f"{HOME}/log", "")
    client = hosts.desk.start(SLIPSTREAM, "run", "cut/cut.yaml", log=log)
    wait_until(lambda: "0 wrote into /srv/data\n" in log.read_text())
    assert mounted("host2", hosts) == []
    client.kill()
    pids = host.output("pgrep", "-f", "slipstream|storage_steps", user="root").split()
    host.run("kill", "-9", *pids, user="root")
    wait_until(lambda: not left_behind(host))
    seen = host.output("sh", "-c", "cat /proc/[0-9]*/mounts", user="root")
    assert "/srv/data" not in seen


def test_storage_that_cannot_be_mounted_is_named_before_the_start(hosts: Hosts) -> None:
    home = {"hosts": ["root@host1"], "home": "/root/.slipstream"}
    storage = {"data": {"disk": "LABEL=nothing", "path": "/srv/data"}}
    write_job(hosts.desk, "unmounted", PROGRAM, ssh=home, storage=storage)
    done = hosts.desk.run(SLIPSTREAM, "run", "unmounted/unmounted.yaml")
    assert done.returncode != 0, done
    assert "the storage data (LABEL=nothing) cannot be mounted at /srv/data" in done.stderr


def test_users_without_the_rights_of_root_are_told_what_is_needed(hosts: Hosts) -> None:
    storage = {"data": {"folder": "/shared/common", "path": "data"}}
    write_job(hosts.desk, "powerless", PROGRAM, ssh={"hosts": ["host1"]}, storage=storage)
    done = hosts.desk.run(SLIPSTREAM, "run", "powerless/powerless.yaml")
    assert done.returncode != 0, done
    assert "mounting storage failed" in done.stderr
    assert "sudo" in done.stderr


@pytest.mark.slow("storage of a run")
def test_a_job_of_this_host_sees_storage(hosts: Hosts, shared: Path) -> None:
    desk = hosts.desk
    write_job(desk, "here", PROGRAM, on="local", storage=STORAGE, software={})
    job = f"{HOME}/here/here.yaml"
    done = desk.run(SLIPSTREAM, "run", job, "--set", "processes=2", user="root")
    assert done.returncode == 0, done.stderr
    assert (shared / "common" / "rank.1").read_text() == "1 True"
    assert (shared / "bucket" / "rank.1").read_text() == "1 False"
    assert mounted("desk", hosts) == []
