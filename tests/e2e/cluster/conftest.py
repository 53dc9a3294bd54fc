"""Hosts, and clusters of them, for tests of the cluster."""

from collections.abc import Iterator

import pytest
from cluster_hosts import Hosts, open_hosts
from ray_cluster import RayCluster, start_ray
from slurm_cluster import SlurmCluster, start_slurm


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Yield a desk and two hosts, which all mount /shared."""
    shared = tmp_path_factory.mktemp("shared")
    with open_hosts(tmp_path_factory.mktemp("hosts"), {"/shared": shared}) as hosts:
        hosts.start(2)
        yield hosts


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Yield a Slurm of two nodes, which mount /shared like the desk."""
    shared = tmp_path_factory.mktemp("shared")
    with open_hosts(tmp_path_factory.mktemp("slurm"), {"/shared": shared}) as hosts:
        yield start_slurm(hosts)


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> SlurmCluster:
    """Return the Slurm cluster with idle nodes, whatever the test before has done to it."""
    slurm_cluster.recover()
    return slurm_cluster


@pytest.fixture(scope="session")
def started_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Yield a Ray of three nodes, which mount /shared like the desk."""
    shared = tmp_path_factory.mktemp("shared")
    with open_hosts(tmp_path_factory.mktemp("ray"), {"/shared": shared}) as hosts:
        yield start_ray(hosts)


@pytest.fixture
def ray_cluster(started_ray: RayCluster) -> RayCluster:
    """Return the Ray cluster with all nodes alive, whatever the test before has done to it."""
    started_ray.recover()
    return started_ray
