"""The engine of ssh hosts keeps the contract of engines."""

import pytest
from cluster_hosts import Hosts
from engine_contract import EngineContract, Site

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
]


@pytest.fixture(scope="module")
def site(hosts: Hosts) -> Site:
    """Return two hosts behind ssh."""
    nodes = [hosts["host1"], hosts["host2"]]
    fields = {"on": "ssh", "hosts": 2, "ssh": {"hosts": [node.name for node in nodes]}}
    broken = {"ssh": {"hosts": ["nowhere", "host1"], "options": ["ConnectTimeout=1"]}}
    return Site(
        desk=hosts.desk,
        hosts=nodes,
        fields=fields,
        broken=broken,
        refusal="nowhere cannot be reached",
    )


class TestSsh(EngineContract):
    """The engine of ssh hosts."""
