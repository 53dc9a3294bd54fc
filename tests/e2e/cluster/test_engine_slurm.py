"""The engine of Slurm keeps the contract of engines, on a real Slurm with two nodes.

What is its own: Slurm takes nodes away and starts the job again, and it makes jobs wait.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import open_hosts
from engine_contract import PROGRAM, RUN_SECONDS, EngineContract, Site
from host import Program
from slurm_cluster import SlurmCluster, start_slurm
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("slurmctld", "slurmd", "munged", "srun", "rsync"),
    pytest.mark.multiprocess,
]

FOLDER = "/shared/slipstream"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Yield a Slurm with two nodes, which share a folder with the desk."""
    shared = tmp_path_factory.mktemp("shared")
    with open_hosts(tmp_path_factory.mktemp("hosts"), {"/shared": shared}) as hosts:
        yield start_slurm(hosts)


@pytest.fixture(scope="module")
def site(slurm: SlurmCluster) -> Site:
    """Return the nodes of Slurm."""
    return Site(
        desk=slurm.hosts.desk,
        hosts=slurm.nodes,
        fields={"on": "slurm", "hosts": 2, "slurm": {"folder": FOLDER}},
        broken={"slurm": {"folder": FOLDER, "partition": "missing"}},
        refusal="choose another slurm.partition",
    )


@pytest.fixture(autouse=True)
def no_jobs(slurm: SlurmCluster) -> Iterator[None]:
    """Cancel what a test that failed has left."""
    yield
    slurm.hosts.desk.output("scancel", "--user=trainer")


class TestSlurm(EngineContract):
    """The engine of Slurm."""


# A rank of the first start waits for ever; one of the second start ends at once.
ONCE = "if [ -e b$RANK ]; then echo back; else touch b$RANK; echo first; sleep 1000; fi"


def started(site: Site, name: str, log: Path, **fields: Any) -> Program:
    """Return a client whose job has started, and waits for ever until it starts again."""
    job = site.write_job(name, ["sh", "-c", ONCE], **fields)
    client = site.start("run", job, log=log)
    wait_until(lambda: "first\n" in log.read_text())
    return client


@pytest.mark.slow("Slurm takes nodes away")
def test_a_job_that_is_requeued_goes_on(slurm: SlurmCluster, site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    client = started(site, "requeued", log)
    name = f"--name={site.run_id('requeued')}"
    number = site.desk.output("squeue", "--noheader", "--format=%A", name).strip()
    site.desk.output("scontrol", "requeue", number)
    assert client.process.wait(RUN_SECONDS) == 0, log.read_text()
    assert "[host1:0] back\n" in log.read_text()
    site.assert_clean()


@pytest.mark.slow("Slurm takes nodes away")
def test_a_job_at_its_time_limit_is_requeued(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ["--time=1", "--signal=B:TERM@55"]
    slurm = {"folder": FOLDER, "options": options}
    client = started(site, "limited", log, slurm=slurm)
    assert client.process.wait(RUN_SECONDS) == 0, log.read_text()
    assert "[host1:0] back\n" in log.read_text()
    site.assert_clean()


@pytest.mark.slow("Slurm takes nodes away")
def test_a_node_without_power_is_replaced(slurm: SlurmCluster, site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    client = started(site, "dark", log)
    slurm.nodes[1].kill()
    wait_until(lambda: "down" in " ".join(slurm.node_states()))
    slurm.nodes[1].boot()
    assert client.process.wait(RUN_SECONDS) == 0, log.read_text()
    assert "[host2:1] back\n" in log.read_text()
    site.assert_clean()


@pytest.mark.slow("Slurm takes nodes away")
def test_a_job_shrinks_to_the_nodes_that_are_left(
    slurm: SlurmCluster, site: Site, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client = started(site, "shrunk", log, hosts="1:2", retry={"host_wait": 1})
    slurm.nodes[1].kill()
    assert client.process.wait(RUN_SECONDS) == 0, log.read_text()
    assert "[0] back\n" in log.read_text()
    slurm.nodes[1].boot()
    wait_until(lambda: set(slurm.node_states()) == {"idle"})
    site.assert_clean()


def test_a_job_that_would_wait_for_ever_is_refused(site: Site) -> None:
    slurm = {"folder": FOLDER, "options": ["--hold"]}
    done = site.slipstream("run", site.write_job("held", f"{PROGRAM} 0 0", slurm=slurm))
    assert done.returncode == 2
    assert "waits for ever, for the reason JobHeldUser" in done.stderr
    assert site.desk.output("squeue", "--noheader", f"--name={site.run_id('held')}") == ""


def test_resources_that_no_node_has_are_refused(site: Site) -> None:
    job = site.write_job("large", f"{PROGRAM} 0 0", resources={"cpus": 1000})
    done = site.slipstream("run", job)
    assert "waits for ever, for the reason PartitionConfig" in done.stderr
    job = site.write_job("large", f"{PROGRAM} 0 0", resources={"gpu": "H100"})
    assert "set slurm.options: --gres=gpu:NAME:NUMBER" in site.slipstream("run", job).stderr


def test_secrets_are_not_left_in_the_shared_folder(slurm: SlurmCluster, site: Site) -> None:
    job = site.write_job("secret", f"{PROGRAM} 0 0")
    assert site.slipstream("run", job).returncode == 0
    shared = slurm.hosts.shared["/shared"]
    kept = [path for path in shared.rglob("*") if path.is_file()]
    assert any(path.name == "journal.jsonl" for path in kept)
    texts = [path.read_text(errors="replace") for path in kept]
    assert not any("PRIVATE KEY" in text or "SLIPSTREAM_JOB_KEY" in text for text in texts)
