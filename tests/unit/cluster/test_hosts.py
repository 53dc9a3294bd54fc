"""Lists of hosts as users write them."""

import pytest

from slipstream.cluster import Host, parse_hosts
from slipstream.cluster.hosts import address_of_first
from slipstream.errors import UsageError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [Host(name="a", slots=1, login="a")]),
        (
            "a:2, me@b.site:16",
            [
                Host(name="a", slots=2, login="a"),
                Host(name="b.site", slots=16, login="me@b.site"),
            ],
        ),
        ("[fd00::1]:4", [Host(name="fd00::1", slots=4, login="fd00::1")]),
        ("10.0.0.7", [Host(name="10.0.0.7", slots=1, login="10.0.0.7")]),
    ],
)
def test_hosts_are_read(text: str, hosts: list[Host]) -> None:
    assert parse_hosts(text) == tuple(hosts)


def test_a_host_without_a_number_gets_the_default() -> None:
    assert [host.slots for host in parse_hosts("a,b:3", default_slots=2)] == [2, 3]


@pytest.mark.parametrize(
    "text", ["", "a,", "a:0", "a:x", "-oProxyCommand=x", "me@-x", "a b", "fd00::1"]
)
def test_what_is_no_host_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="allowed: "):
        parse_hosts(text)


def test_a_host_named_twice_is_refused_with_the_sum() -> None:
    with pytest.raises(UsageError, match="a:5"):
        parse_hosts("a:2,b,a:3")


def test_localhost_needs_no_ssh_unless_as_another_user() -> None:
    local, other_user = parse_hosts("localhost")[0], parse_hosts("me@localhost")[0]
    assert (local.is_local, other_user.is_local) == (True, False)


def test_ranks_reach_the_first_host_under_its_name() -> None:
    assert address_of_first(parse_hosts("a:2,b")) == "a"
    assert address_of_first(parse_hosts("localhost:2")) == "127.0.0.1"


def test_this_host_is_reached_where_its_route_to_the_others_begins() -> None:
    assert address_of_first(parse_hosts("localhost,127.0.0.2")) == "127.0.0.1"
