"""What the doctor says of findings on hosts and pairs."""

from dataclasses import replace

import pytest

from slipstream.cluster.doctor import Examination, HostFindings, PairFindings, problems_of

HOST = HostFindings(name="a", python="3.11.2", slipstream="1.0", tools=("tmux", "rsync"))
PAIR = PairFindings(
    source="a",
    target="b",
    port=20000,
    state="open",
    latency=1e-4,
    bandwidth=1e9,
    mtu=1500,
    ssh_reached=True,
    text="",
)


def verdict(*hosts: HostFindings, pairs: tuple[PairFindings, ...] = ()) -> list[tuple[str, bool]]:
    found = Examination(hosts=hosts, pairs=pairs)
    return [(problem.text, problem.stops_jobs) for problem in problems_of(found, "1.0")]


def test_good_hosts_have_no_problem() -> None:
    assert verdict(HOST, replace(HOST, name="b"), pairs=(PAIR,)) == []


@pytest.mark.parametrize(
    ("host", "text", "stops_jobs"),
    [
        (replace(HOST, slipstream="0.9"), "Slipstream is 0.9, here it is 1.0", True),
        (replace(HOST, slipstream=""), "Slipstream is missing, here it is 1.0", False),
        (replace(HOST, python="3.9.1"), "Python is 3.9.1", True),
        (replace(HOST, tools=("rsync",)), "tmux missing", False),
        (replace(HOST, error="no key"), "no key", True),
    ],
)
def test_a_host_that_lacks_something(host: HostFindings, text: str, stops_jobs: bool) -> None:
    assert verdict(host) == [(text, stops_jobs)]


def test_a_clock_is_wrong_only_beyond_the_error_of_the_measurement() -> None:
    assert verdict(replace(HOST, skew=1.5, skew_error=0.6), HOST) == []
    text = "its clock is +5.0 s off (± 10 ms)"
    assert verdict(replace(HOST, skew=5.0, skew_error=0.01), HOST) == [(text, False)]
    assert verdict(replace(HOST, skew=90.0, skew_error=0.01), HOST)[0][1]


@pytest.mark.parametrize(
    ("state", "ssh_reached", "advice"),
    [
        ("dropped", True, "firewall"),
        ("dropped", False, "route"),
        ("refused", True, "firewall"),
        ("unreachable", False, "route"),
        ("name unknown", False, "resolve"),
        ("small only", True, "MTU"),
        ("no answer", False, "look at this host"),
    ],
)
def test_the_advice_for_a_pair_fits_its_failure(state: str, ssh_reached: bool, advice: str) -> None:
    pair = replace(PAIR, state=state, ssh_reached=ssh_reached)
    (problem,) = problems_of(Examination(hosts=(), pairs=(pair,)), "1.0")
    assert advice in problem.remedy
    assert problem.stops_jobs


def test_what_stops_jobs_comes_first() -> None:
    hosts = (replace(HOST, tools=()), replace(HOST, name="b", error="no key"))
    assert [stops for _, stops in verdict(*hosts)] == [True, False]
