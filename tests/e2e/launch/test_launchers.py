"""The same script under other launchers, each of them the real one."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipstream.cluster.launch.ports import find_free_port_pair

pytestmark = pytest.mark.multiprocess

Wait = Callable[[Callable[[], object]], None]
LIMIT_SECONDS = 120.0


def launched(*command: str | Path, environ: Mapping[str, str] | None = None) -> str:
    """Run a launcher to its end and return what the ranks printed."""
    chosen = {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "SLIPSTREAM_JOB_KEY": secrets.token_hex(16),
    }
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **chosen, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_met(output: str, source: str, num_ranks: int) -> None:
    """Check that every rank knew its place from this launcher and that they found one another."""
    places = re.findall(rf"rank (\d+)/{num_ranks} local (\d+) from {source}", output)
    assert sorted(places) == [(str(rank), str(rank)) for rank in range(num_ranks)]
    assert "met " + " ".join(map(str, range(num_ranks))) in output


PYTORCH = pytest.param("meet_torch.py", marks=pytest.mark.slow("PyTorch under a launcher"))


@pytest.fixture(params=["meet.py", PYTORCH])
def script(request: pytest.FixtureRequest, ranks: Path) -> Path:
    """Return a program whose ranks meet, with PyTorch and without a framework."""
    if request.param == "meet_torch.py":
        pytest.importorskip("torch")
    return ranks / request.param


def test_torchrun(script: Path) -> None:
    pytest.importorskip("torch")
    torchrun = (sys.executable, "-m", "torch.distributed.run")
    master = ("--master-addr", "127.0.0.1", "--master-port", str(find_free_port_pair()))
    output = launched(*torchrun, "--nproc-per-node", "2", *master, script)
    assert_met(output, "environment", 2)


@pytest.mark.launcher("mpirun.openmpi")
def test_open_mpis_mpirun(script: Path) -> None:
    mpirun = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3")
    assert_met(launched(*mpirun, sys.executable, script), "openmpi", 3)


@pytest.mark.launcher("mpiexec.mpich")
def test_mpichs_mpiexec(script: Path) -> None:
    output = launched("mpiexec.mpich", "-n", "3", sys.executable, script)
    assert_met(output, "pmi", 3)


@pytest.mark.root
@pytest.mark.launcher("srun", "slurmctld", "slurmd", "munged")
class TestSlurm:
    """On a cluster of this one machine, with daemons, ports and files of its own."""

    def test_srun(self, slurm: "Slurm", script: Path) -> None:
        output = launched("srun", "-n3", sys.executable, script, environ=slurm.environ)
        assert_met(output, "slurm", 3)

    @pytest.mark.slow("job of Slurm")
    def test_srun_with_pmi(self, slurm: "Slurm", script: Path) -> None:
        srun = ("srun", "--mpi=pmi2", "-n2")
        output = launched(*srun, sys.executable, script, environ=slurm.environ)
        assert_met(output, "pmi", 2)

    @pytest.mark.slow("job of Slurm")
    def test_slipstream_run_in_a_batch_job(self, slurm: "Slurm", script: Path) -> None:
        job = slurm.folder / "job.sh"
        slipstream = Path(sys.executable).with_name("slipstream")
        job.write_text(f"#!/bin/sh\n{slipstream} run -n $SLURM_NTASKS {script}\n")
        out = slurm.folder / "job.out"
        launched("sbatch", "-n2", "--wait", "--output", out, job, environ=slurm.environ)
        assert_met(out.read_text(), "environment", 2)


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A cluster whose commands are found through `environ`."""

    folder: Path
    environ: Mapping[str, str]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory, wait_until: Wait) -> Iterator[Slurm]:
    """Munge, slurmctld and slurmd, until the node is idle."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "slurm.conf").write_text(slurm_conf(folder))
    (folder / "spool").mkdir()
    environ = {"SLURM_CONF": str(folder / "slurm.conf")}
    daemons: list[subprocess.Popen[bytes]] = []

    def is_idle() -> bool:
        for daemon in daemons:
            assert daemon.poll() is None, (folder / "daemons.log").read_text()
        listed = subprocess.run(
            ["sinfo", "-h", "-o", "%t"],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        return listed.stdout.strip() == "idle"

    with (folder / "daemons.log").open("w") as log:
        try:
            for command in daemon_commands(folder):
                daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
            wait_until(is_idle)
            yield Slurm(folder=folder, environ=environ)
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(LIMIT_SECONDS)


def daemon_commands(folder: Path) -> list[list[str]]:
    """Return the daemons' command lines, in the foreground each."""
    munge_files = [
        f"--{option}={folder}/munge.{name}"
        for option, name in (
            ("key-file", "key"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("seed-file", "seed"),
        )
    ]
    return [
        [daemon("munged"), "--foreground", "--force", *munge_files],
        [daemon("slurmctld"), "-D", "-f", f"{folder}/slurm.conf"],
        [daemon("slurmd"), "-D", "-f", f"{folder}/slurm.conf"],
    ]


def daemon(name: str) -> str:
    """Return the path of a daemon, which Debian keeps off the path of ordinary users."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert path is not None
    return path


def slurm_conf(folder: Path) -> str:
    """Return a configuration that keeps to one folder and touches no cgroup.

    `config_overrides` lets a machine with fewer cores have the four that the tests ask for.
    """
    controller_port = find_free_port_pair()
    node_port = controller_port + 1
    return f"""
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={socket.gethostname()} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
