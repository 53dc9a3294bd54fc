"""The engine of Ray keeps the contract of engines, on a real Ray with three nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import open_hosts
from engine_contract import PROGRAM, PYTHON, SLIPSTREAM, EngineContract, Site
from host_boot import HOME
from ray_cluster import JOB_PORT, VARIABLES, RayCluster, start_ray
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("unshare", "nsenter", "setpriv"),
    pytest.mark.multiprocess,
]

END_SECONDS = 200.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Yield a Ray with three nodes."""
    with open_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield start_ray(hosts)


@pytest.fixture(scope="module")
def site(cluster: RayCluster) -> Site:
    """Return the nodes of Ray."""
    address = f"http://{cluster.nodes[0].name}:{JOB_PORT}"
    return Site(
        desk=cluster.hosts.desk,
        hosts=cluster.nodes,
        fields={"on": "ray", "hosts": 2, "ray": {"address": address}},
        broken={"ray": {"address": "http://nowhere:8265"}},
        refusal="the job server of Ray at http://nowhere:8265 cannot be reached",
        environ=VARIABLES,
        num_kills=5,
    )


class TestRay(EngineContract):
    """The engine of Ray."""


@pytest.mark.slow("node of Ray without power")
def test_a_node_without_power_is_replaced(cluster: RayCluster, site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    retry = {"host_wait": 60, "backoff": [0.1, 0.1]}
    job = site.write_job("dark", f"{PROGRAM} 60 0", hosts=2, retry=retry)
    client = site.start("run", job, log=log)
    wait_until(lambda: "rank 1 step 3\n" in log.read_text(), END_SECONDS)
    # The node of the driver is not the one to lose: Ray's own head is there.
    used = [node for node in cluster.nodes[1:] if f"[{node.name}:" in log.read_text()]
    used[0].kill()
    assert client.process.wait(END_SECONDS) == 0, log.read_text()
    assert "rank 0 step 59\n" in log.read_text()
    cluster.recover()
    site.assert_clean()


WRITES = """\
import os, pathlib
folder = pathlib.Path("results")
folder.mkdir(exist_ok=True)
(folder / "rank").write_text(os.environ["RANK"])
with (folder / "model.bin").open("wb") as file:
    for number in range(150):
        file.write(number.to_bytes(1, "big") * (1 << 20))
"""


@pytest.mark.slow("outputs of Ray")
def test_the_outputs_come_back(cluster: RayCluster, site: Site) -> None:
    job = site.write_job("outputs", "writes.py", outputs=["results"])
    site.desk.write(f"{HOME}/outputs/writes.py", WRITES)
    done = site.slipstream("run", job)
    assert done.returncode == 0, done.stderr
    assert "cannot be brought back" not in done.stderr, done.stderr
    assert site.desk.output("cat", f"{HOME}/outputs/results/rank") == "0"
    program = (
        "import sys; data = open(sys.argv[1], 'rb').read();"
        "assert data == b''.join(bytes([n]) * (1 << 20) for n in range(150))"
    )
    site.desk.output(PYTHON, "-c", program, f"{HOME}/outputs/results/model.bin")
    find = ["find", "/tmp", "-name", f"*slipstream-{site.run_id('outputs')}*"]
    left = [node.output(*find, user="root") for node in cluster.nodes]
    assert not any(left), left
    site.assert_clean()


@pytest.mark.slow("refusal by Ray")
def test_nodes_that_cannot_be_prepared_are_named(site: Site) -> None:
    software = {"python": str(PYTHON), "environment": "existing"}
    software["setup"] = "echo there is no room >&2; exit 5"
    done = site.slipstream("run", site.write_job("unready", f"{PROGRAM} 0 0", software=software))
    assert done.returncode == 1
    assert "a node of Ray cannot be prepared" in done.stderr
    assert "there is no room" in done.stderr
    site.assert_clean()


@pytest.mark.slow("refusal by Ray")
def test_a_wrong_token_is_named(site: Site) -> None:
    job = site.write_job("strange", f"{PROGRAM} 0 0")
    environ = {**site.environ, "RAY_AUTH_TOKEN": "0" * 64}
    done = site.desk.run(SLIPSTREAM, "run", job, environ=environ)
    assert done.returncode != 0
    assert "Ray refuses the token" in done.stderr
    assert "set RAY_AUTH_TOKEN" in done.stderr
