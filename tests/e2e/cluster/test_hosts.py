"""The hosts on which the cluster's tests run keep apart, and fail as real ones do."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from host_boot import HOME, REPOSITORY
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "unshare", "nsenter", "setpriv"),
    pytest.mark.multiprocess,
]

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20")
IN_VAIN = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=1")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PLUGINS = REPOSITORY / "tests/plugins"


def test_the_desk_logs_in_and_each_host_is_its_own(hosts: Hosts) -> None:
    for name in ("host1", "host2"):
        script = (
            f"hostname > ~/name && hostname > /tmp/name && hostname > /dev/shm/{name} && id -un"
        )
        assert hosts.desk.output(*SSH, name, script) == "trainer\n"
    for name, other in (("host1", "host2"), ("host2", "host1")):
        host = hosts[name]
        assert host.output("cat", f"{HOME}/name", "/tmp/name") == f"{name}\n{name}\n"
        assert host.output("ls", "/dev/shm") == f"{name}\n"
        assert host.path("/tmp/name").read_text() == f"{name}\n"
        assert hosts[other].run("test", "-e", f"/dev/shm/{name}").returncode == 1
    assert len({host.output("cat", BOOT_ID) for host in hosts.by_name.values()}) == 3


def test_python_and_the_package_are_there_and_cannot_be_changed(hosts: Hosts) -> None:
    program = "import numpy, slipstream; print(slipstream.__file__)"
    ran = hosts.desk.output(*SSH, "host1", f"{sys.executable} -c '{program}'")
    assert ran == f"{REPOSITORY}/src/slipstream/__init__.py\n"
    for path in (REPOSITORY / "README.md", Path(sys.prefix) / "new", "/usr/new"):
        touched = hosts["host1"].run("touch", path, user="root")
        assert "Read-only file system" in touched.stderr, path


def test_a_shared_folder_is_the_only_one_that_hosts_share(hosts: Hosts) -> None:
    hosts["host1"].output("sh", "-c", "echo from host1 > /shared/note")
    assert hosts.desk.output("cat", "/shared/note") == "from host1\n"
    assert hosts.shared["/shared"].joinpath("note").read_text() == "from host1\n"
    roots = hosts.desk.output("ls", "/").split()
    assert not {REPOSITORY.parts[1], "tmp", "shared"} - set(roots)
    assert hosts.desk.run("test", "-e", hosts.folder).returncode == 1


@pytest.mark.launcher("tmux")
def test_a_tmux_session_outlives_its_login_and_ends_with_the_power(hosts: Hosts) -> None:
    host = hosts["host1"]
    hosts.desk.output(*SSH, "host1", "echo kept > ~/kept; tmux new-session -d -s job 'sleep 999'")
    assert "job: 1 windows" in hosts.desk.output(*SSH, "host1", "tmux ls")
    sleeping = [pid for pid, line in host.processes().items() if line == "sleep 999"]
    assert len(sleeping) == 1
    host.kill()
    assert not Path(f"/proc/{sleeping[0]}").exists()
    assert hosts.desk.run(*IN_VAIN, "host1", "true").returncode == 255
    host.boot()
    assert hosts.desk.output(*SSH, "host1", "cat kept; uptime | wc -l") == "kept\n1\n"
    assert hosts.desk.run(*SSH, "host1", "tmux ls").returncode == 1


@pytest.mark.launcher("rsync")
def test_files_are_copied(hosts: Hosts) -> None:
    hosts.desk.write(f"{HOME}/code/train.py", "print('trained')\n")
    hosts.desk.output("rsync", "-a", "code", "host2:")
    assert hosts["host2"].output(sys.executable, "code/train.py") == "trained\n"


def test_a_cut_host_is_silent_and_comes_back(hosts: Hosts) -> None:
    hosts["host2"].cut()
    assert "timed out" in hosts.desk.run(*IN_VAIN, "host2", "true").stderr
    hosts["host2"].heal()
    assert hosts.desk.output(*SSH, "host2", "hostname") == "host2\n"
    assert hosts.desk.run(*IN_VAIN, "nowhere", "true").returncode == 255


def test_keys_are_checked_in_both_directions(hosts: Hosts) -> None:
    host = hosts["host2"]
    hosts.trust(host, key=False)
    assert "Permission denied" in hosts.desk.run(*SSH, "host2", "true").stderr
    hosts.trust(host)
    hosts.change_key(host)
    host.kill()
    host.boot()
    assert "HOST IDENTIFICATION HAS CHANGED" in hosts.desk.run(*SSH, "host2", "true").stderr
    hosts.introduce()
    assert hosts.desk.output(*SSH, "host2", "hostname") == "host2\n"


def test_a_program_at_the_desk_can_be_killed(hosts: Hosts, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = hosts.desk.start("sh", "-c", "echo began; sleep 998 & sleep 997", log=log)
    wait_until(lambda: "sleep 998" in hosts.desk.processes().values())
    program.kill()
    assert (program.process.returncode, log.read_text()) == (-9, "began\n")
    assert "sleep 998" in hosts.desk.processes().values()
    hosts.desk.output("pkill", "sleep")  # of this host only: others are out of its sight


def test_a_disk_can_be_full(hosts: Hosts) -> None:
    (host,) = hosts.start(home_bytes=1 << 20)
    wrote = hosts.desk.run(*SSH, host.name, "head -c 2000000 /dev/zero > big")
    assert "No space left on device" in wrote.stderr
    assert host.path(f"{HOME}/big").stat().st_size <= 1 << 20


@pytest.mark.launcher("faketime")
def test_a_clock_can_be_ahead(hosts: Hosts) -> None:
    (host,) = hosts.start(clock_seconds=3600)
    told = float(hosts.desk.output(*SSH, host.name, "date +%s.%N"))
    assert 3500 < told - time.time() < 3700
    assert abs(float(hosts.desk.output("date", "+%s.%N")) - time.time()) < 100


def test_hosts_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(PLUGINS)!r})\n"
        "from pathlib import Path\n"
        "from cluster_hosts import open_hosts\n"
        f"with open_hosts(Path({str(tmp_path)!r})) as hosts:\n"
        "    hosts.start()\n"
        "    hosts['host1'].output('sh', '-c', 'setsid sleep 996 > /dev/null 2>&1 &')\n"
        "    host, switch = hosts['host1'], hosts.switch.process\n"
        "    print(*host.processes(), host.first, switch.pid, flush=True)\n"
        "    input()\n"
    )
    maker = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert maker.stdout is not None
    pids = maker.stdout.readline().split()
    assert len(pids) == 3
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    maker.terminate()
    maker.communicate(timeout=60)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
