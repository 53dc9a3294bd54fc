"""The Ray on which tests of the cluster run takes jobs from those with its token."""

from __future__ import annotations

import sys

import pytest
from ray_cluster import RAY, RayCluster

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("unshare", "nsenter", "setpriv", "sshd"),
    pytest.mark.multiprocess,
]

DRIVER = """
import ray, socket
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init()
group = placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=60)
host = ray.remote(num_cpus=1)(lambda: socket.gethostname())
at = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i) for i in range(3)]
print("ran on", *sorted(ray.get([host.options(scheduling_strategy=one).remote() for one in at])))
"""


@pytest.mark.slow("cluster of Ray")
def test_a_job_with_the_token_runs_on_all_hosts(ray_cluster: RayCluster) -> None:
    ray_cluster.hosts.shared["/shared"].joinpath("driver.py").write_text(DRIVER)
    assert "ran on host1 host2 host3\n" in ray_cluster.submit(sys.executable, "/shared/driver.py")
    without = {**ray_cluster.environ, "RAY_AUTH_MODE": "disabled"}
    listed = ray_cluster.hosts.desk.run(RAY, "job", "list", environ=without)
    assert listed.returncode == 1
    assert "Missing authentication token" in listed.stderr


@pytest.mark.slow("cluster of Ray", represents=False)
def test_a_lost_node_is_noticed_and_comes_back(ray_cluster: RayCluster) -> None:
    ray_cluster.nodes[2].kill()
    ray_cluster.wait_for(2)
    ray_cluster.nodes[2].boot()
    ray_cluster.wait_for(3)
