"""Lists of hosts as users write them."""

from pathlib import Path

import pytest

from slipstream.cluster.launch import Host, fill_hosts, parse_hosts, read_hostfile
from slipstream.cluster.launch.hosts import address_of_first
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


def test_a_hostfile_names_hosts_and_slots(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# ours\na slots=2\n\nme@b   slots=4  # the large one\nc\n")
    hosts = read_hostfile(hostfile)
    assert [(each.name, each.slots) for each in hosts] == [("a", 2), ("b", 4), ("c", 1)]


@pytest.mark.parametrize("text", ["a slots=x", "a slots=0", "a slots=1 max=2", "a 2 3", "# none"])
def test_a_hostfile_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text(text)
    with pytest.raises(UsageError, match="allowed"):
        read_hostfile(hostfile)


def test_a_hostfile_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none cannot be read: No such file"):
        read_hostfile(tmp_path / "none")


@pytest.mark.parametrize(
    ("num_ranks", "filled"), [(1, [1]), (2, [2]), (3, [2, 1]), (5, [2, 3]), (6, [2, 3, 1])]
)
def test_hosts_are_filled_in_turn(num_ranks: int, filled: list[int]) -> None:
    hosts = fill_hosts(parse_hosts("a:2,b:3,c"), num_ranks)
    assert [each.slots for each in hosts] == filled


@pytest.mark.parametrize("num_ranks", [0, 7])
def test_hosts_hold_no_more_than_their_slots(num_ranks: int) -> None:
    with pytest.raises(UsageError, match=f"-np is {num_ranks}; allowed: 1 to 6"):
        fill_hosts(parse_hosts("a:2,b:3,c"), num_ranks)


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("127.0.0.2", False), ("a", False)],
)
def test_this_host_has_three_names(text: str, is_local: bool) -> None:
    assert parse_hosts(text)[0].is_local is is_local


@pytest.mark.parametrize(("text", "slots"), [("a:1", 1), ("a:99999", 99999)])
def test_slots_have_at_most_five_digits(text: str, slots: int) -> None:
    assert parse_hosts(text)[0].slots == slots
    with pytest.raises(UsageError):
        parse_hosts("a:100000")
    with pytest.raises(UsageError):
        parse_hosts("a:01")


def test_a_host_by_itself_has_one_slot_and_no_login() -> None:
    host = Host(name="a")
    assert (host.slots, host.login, host.is_local) == (1, "", False)


def test_a_zone_and_a_user_are_read_with_an_ipv6_address() -> None:
    (host,) = parse_hosts("me@[fe80::1%eth0]:3")
    assert (host.name, host.login, host.slots) == ("fe80::1%eth0", "me@fe80::1%eth0", 3)


def test_a_host_to_which_no_route_leads_is_named() -> None:
    with pytest.raises(UsageError, match=r"no route from this host to 'nowhere\.invalid'"):
        address_of_first(parse_hosts("localhost,nowhere.invalid"))


def test_hosts_that_are_filled_keep_their_logins() -> None:
    assert fill_hosts(parse_hosts("me@a:2,b"), 1) == (Host(name="a", slots=1, login="me@a"),)
