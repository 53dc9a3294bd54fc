"""Hosts for tests of the cluster."""

from collections.abc import Iterator

import pytest
from cluster_hosts import Hosts, open_hosts


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Yield a desk and two hosts, which all mount /shared."""
    shared = tmp_path_factory.mktemp("shared")
    with open_hosts(tmp_path_factory.mktemp("hosts"), {"/shared": shared}) as hosts:
        hosts.start(2)
        yield hosts
