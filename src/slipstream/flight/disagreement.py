"""Ranks that called different operations, and groups that a rank ended on purpose."""

from __future__ import annotations

import re
from collections import Counter

from slipstream.flight.cause import Cause, Facts
from slipstream.flight.facts import RankFacts, main_place, place_in_words, ranks_in_words
from slipstream.flight.folder import Evidence

# The engine's texts; core/engine/failures.cc and engine_groups.cc write them.
_DISAGREE = re.compile(
    r"the ranks of group '(?P<group>.*)' disagree about operation (?P<number>\d+)"
)
_PASSED = re.compile(r"^  rank (\d+): (.*)$", re.MULTILINE)
_ABORTED = re.compile(
    r"rank (?P<rank>\d+) aborted group '(?P<group>.*?)': (?P<reason>.*)", re.DOTALL
)


def find_mismatch(_: Evidence, facts: Facts) -> Cause | None:
    """Return the cause if the ranks passed different arguments for one operation."""
    for each in facts.values():
        failure = each.failure
        found = _DISAGREE.search(failure.text) if failure is not None else None
        if found is not None and failure is not None:
            passed = dict(_passed(each, found["group"], failure.text))
            return _mismatch(facts, found["group"], int(found["number"]), passed)
    return None


def _passed(each: RankFacts, group: str, text: str) -> list[tuple[int, str]]:
    """Return the arguments by rank of the world; the engine's text has ranks of the group."""
    groups = () if each.engine is None else each.engine.groups
    ranks = next((tuple(one.ranks) for one in groups if one.name == group and one.ranks), ())
    pairs = ((int(index), words) for index, words in _PASSED.findall(text))
    return [(ranks[index] if index < len(ranks) else index, words) for index, words in pairs]


def _mismatch(facts: Facts, group: str, number: int, passed: dict[int, str]) -> Cause:
    most, count = Counter(passed.values()).most_common(1)[0]
    odd = tuple(rank for rank, words in passed.items() if words != most)
    usual = tuple(rank for rank, words in passed.items() if words == most)
    has_majority = count > len(odd)
    ways = [f"{ranks_in_words([rank])} {words}" for rank, words in passed.items() if rank in odd]
    if has_majority:
        ways.append(f"{ranks_in_words(usual)} {most}")
    else:
        ways = [f"{ranks_in_words([rank])} {words}" for rank, words in passed.items()]
    places = [
        f"rank {rank} was at {place_in_words(facts[rank].place)}"
        for rank in (odd if has_majority else passed)
        if rank in facts and facts[rank].place is not None
    ]
    return Cause(
        kind="mismatch",
        ranks=odd if has_majority else tuple(passed),
        headline=f"The ranks called different operations: as operation {number} of group"
        f" '{group}', {'; '.join(ways)}.",
        details=tuple(places),
        advice=(
            "All ranks must call the same operations in the same order, with the same sizes, dtypes"
            " and roots. Look for a branch of the script that depends on the rank or on its data:"
            " a last batch of another size, an `if rank == 0`, parameters without a gradient.",
        ),
    )


def find_abort(_: Evidence, facts: Facts) -> Cause | None:
    """Return the cause if a rank has ended a group on purpose."""
    for each in facts.values():
        failure = each.failure
        found = _ABORTED.search(failure.text) if failure is not None else None
        if found is None:
            continue
        rank = int(found["rank"])
        occasions = facts[rank].occasions if rank in facts else ()
        places = [main_place(one) for one in occasions if one.kind == "abort"]
        place = place_in_words(next(iter(places), None))
        return Cause(
            kind="aborted",
            ranks=(rank,),
            headline=f"Rank {rank} aborted group '{found['group']}': {found['reason'].strip()}.",
            details=(f"rank {rank} was at {place}",) if place else (),
            advice=("The script, or a library that it uses, called abort(); its reason is above.",),
        )
    return None
