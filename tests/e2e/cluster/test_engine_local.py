"""The engine of this host keeps the contract of engines."""

from collections.abc import Iterator

import pytest
from cluster_hosts import open_hosts
from engine_contract import EngineContract, Site

pytestmark = [pytest.mark.netns, pytest.mark.multiprocess]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield a desk alone."""
    with open_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        desk = hosts.desk
        yield Site(
            desk=desk,
            hosts=[desk],
            fields={"on": "local"},
            broken={"hosts": 2},
            refusal="allowed: 1, or another engine",
        )


class TestLocal(EngineContract):
    """The engine of this host."""
