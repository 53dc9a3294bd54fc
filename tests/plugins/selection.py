"""Chooses what `make test` runs of grids and of slow tests, and says what it left out.

`pytest` runs everything. `pytest --share N`, which `make test` calls with the number of the commit
(run_tests.py), runs

- of each test marked `sweep`: every corner case (each list of parameters gave it its first or its
  last entry, or the case is marked `corner`), and at least a quarter of all cases, in the order of
  a hash of their parameters. Which quarter depends on the number: those of four successive numbers
  are all cases;
- of each kind of `slow` tests, one, which is another for the next number;
- all that a command line names with `::`.
"""

from __future__ import annotations

import json
import numbers
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import commits
import pytest

SHARES = 4
LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare --share and --left-out."""
    group = parser.getgroup("selection", "what is run of sweeps and of slow tests")
    group.addoption(
        "--share",
        type=share_number,
        metavar="all|N",
        help="share of the sweeps, and the slow tests, that are run: all (the default), or those "
        "of a number from 0 on, such as a commit's",
    )
    group.addoption(
        "--left-out", type=Path, metavar="FILE", help="file that gets what is left out, as JSON"
    )


def share_number(text: str) -> int | None:
    """Return the number of a share; None for all of them."""
    return None if text == "all" else int(text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what this share leaves out; before -m does, so that every part leaves out the same.

    What this machine cannot run has been marked before (conftest.py).
    """
    left_out = config.stash[LEFT_OUT] = {"sweep": [], "slow": []}
    check_kinds(items)
    number: int | None = config.getoption("--share")
    if number is None:
        return
    kept = share_of_sweeps(items, number) & one_of_each_kind(items, number)
    kept |= {item.nodeid for item in items if is_named(item, config.args)}
    for item in items:
        if item.nodeid not in kept:
            left_out["slow" if is_slow(item) else "sweep"].append(item.nodeid)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def is_named(item: pytest.Item, arguments: Iterable[str]) -> bool:
    """Return whether the command line names a case, its test or its class."""
    name = item.nodeid
    return any(
        name == named or name.startswith((f"{named}[", f"{named}::"))
        for named in arguments
        if "::" in named
    )


def grouped(
    items: Iterable[pytest.Item], key: Callable[[pytest.Item], str]
) -> Iterable[list[pytest.Item]]:
    """Return the items in lists of those that have the same key."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups.values()


def share_of_sweeps(items: list[pytest.Item], number: int) -> set[str]:
    """Return the names of the cases that this share runs, with all that are in no sweep."""
    kept = {item.nodeid for item in items if item.get_closest_marker("sweep") is None}
    swept = [item for item in items if item.nodeid not in kept]
    for cases in grouped(swept, lambda item: item.nodeid.partition("[")[0]):
        kept |= {case.nodeid for case in cases if is_corner(case)}
        names = {case.nodeid.partition("[")[2]: case.nodeid for case in cases}
        # By their parameters alone, so that tests of the same list run the same of it.
        kept |= {names[name] for name in commits.turn(names, number, SHARES)}
    return kept


def is_corner(case: pytest.Item) -> bool:
    """Return whether each list of parameters gave its first or its last entry to the case."""
    if case.get_closest_marker("corner"):
        return True
    lists = list(case.iter_markers("parametrize"))
    if not isinstance(case, pytest.Function) or not lists:
        raise pytest.UsageError(f"{case.nodeid} is marked sweep and has no parameters")
    try:
        return all(is_at_an_end(case.callspec.params, *each.args[:2]) for each in lists)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(
            f"{case.nodeid}: the parameters of a sweep are names and a list: {error}"
        ) from error


def is_at_an_end(
    params: Mapping[str, object], names: str | Sequence[str], entries: Iterable[object]
) -> bool:
    """Return whether the parameters of these names are the first or last entries of their list."""
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    own = [params[name] for name in split]
    first, *others = entries
    last = others[-1] if others else first
    return any(
        all(is_same(one, other) for one, other in zip(own, values(end, len(own)), strict=True))
        for end in (first, last)
    )


def values(entry: Any, count: int) -> Sequence[object]:
    """Return the values of an entry of a list of parameters, which may be a pytest.param."""
    if hasattr(entry, "marks"):
        return entry.values
    return entry if count > 1 else [entry]


def is_same(one: object, other: object) -> bool:
    """Return whether two parameters are the same object or equal; arrays have no single answer."""
    return one is other or (isinstance(one, numbers.Number | str | tuple) and one == other)


def is_slow(item: pytest.Item) -> bool:
    """Return whether the test takes longer than ten seconds."""
    return item.get_closest_marker("slow") is not None


def kind(item: pytest.Item) -> str:
    """Return the kind of a slow test."""
    marker = item.get_closest_marker("slow")
    assert marker is not None
    if len(marker.args) != 1:
        raise pytest.UsageError(f"{item.nodeid}: slow needs one argument, the kind of the test")
    return marker.args[0]


def can_represent(item: pytest.Item) -> bool:
    """Return whether a slow test may run as an example: it is short enough, and not skipped."""
    is_short = all(marker.kwargs.get("represents", True) for marker in item.iter_markers("slow"))
    skipped = [*item.iter_markers("skip"), *item.iter_markers("skipif")]
    return is_short and all(marker.args and not marker.args[0] for marker in skipped)


def one_of_each_kind(items: list[pytest.Item], number: int) -> set[str]:
    """Return the names of one slow test of each kind, with all that are not slow."""
    kept = {item.nodeid for item in items if not is_slow(item)}
    for members in grouped(filter(is_slow, items), kind):
        able = sorted(member.nodeid for member in members if can_represent(member))
        kept |= {able[number % len(able)]} if able else set()
    return kept


def check_kinds(items: list[pytest.Item]) -> None:
    """Raise UsageError for a slow test that names no kind."""
    for item in filter(is_slow, items):
        kind(item)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was left out to the process that reports, or write it."""
    left_out = session.config.stash.get(LEFT_OUT, None)
    if left_out is None:
        return
    to_controller: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if to_controller is not None:
        to_controller["left_out"] = left_out
        return
    path: Path | None = session.config.getoption("--left-out")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(left_out, indent=1))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker of pytest-xdist left out; all leave out the same."""
    output = getattr(node, "workeroutput", {})
    if "left_out" in output:
        node.config.stash[LEFT_OUT] = output["left_out"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many cases were left out, and what runs them."""
    config = terminalreporter.config
    left_out = config.stash.get(LEFT_OUT, {})
    # Who asked for the file says it once for all parts.
    if any(left_out.values()) and config.getoption("--left-out") is None:
        terminalreporter.write_line(
            f"left out: {len(left_out['sweep'])} cases of sweeps and {len(left_out['slow'])} slow"
            " tests; make test-all runs them"
        )
