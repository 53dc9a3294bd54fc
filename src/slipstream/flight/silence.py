"""Ranks that others lost: stopped, behind a cut network, gone without a trace, or on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slipstream.flight.cause import Cause, Facts, others_in_words, when
from slipstream.flight.facts import RankFacts, capital, place_in_words, ranks_in_words
from slipstream.flight.folder import Evidence
from slipstream.flight.record import RecordedPeer

_STOPPED = ("stopped", "traced")
# Peers that a rank loses within this time are lost for one reason.
_TOGETHER_SECONDS = 1.0
_SILENT = ("has been silent", "cannot be reached", "timed out", "unreachable", "No route")


@dataclass(frozen=True, slots=True)
class _Loss:
    """A rank that another rank lost, with that rank's reason."""

    observer: int
    peer: RecordedPeer

    @property
    def is_silence(self) -> bool:
        return any(text in self.peer.why for text in _SILENT)


def find_silence(evidence: Evidence, facts: Facts) -> Cause | None:
    """Return the cause if ranks lost others."""
    losses = [
        loss for each in facts.values() for loss in _first_losses(each) if loss.peer.rank in facts
    ]
    lost = {loss.peer.rank for loss in losses}
    if not losses:
        return None
    return _stopped(evidence, facts, lost) or _cut(facts, losses) or _gone(evidence, facts, losses)


def _first_losses(each: RankFacts) -> list[_Loss]:
    """Return the peers that a rank lost first; later ones are consequences."""
    peers = () if each.engine is None else each.engine.peers
    gone = [peer for peer in peers if peer.state == "gone" and peer.ended is not None]
    first = min((peer.ended or 0.0 for peer in gone), default=0.0)
    return [
        _Loss(each.rank, peer) for peer in gone if (peer.ended or 0.0) <= first + _TOGETHER_SECONDS
    ]


def _stopped(evidence: Evidence, facts: Facts, lost: Iterable[int]) -> Cause | None:
    """Return the cause if a lost rank was stopped, as SIGSTOP or a debugger does it."""
    for rank in sorted(lost):
        each, end = facts[rank], evidence.end_of(rank)
        pauses = [event.text for event in each.events if event.kind == "paused"]
        is_stopped = end is not None and end.state in _STOPPED
        if not is_stopped and not pauses:
            continue
        state = f"was {end.state}" if end is not None and is_stopped else "did not run for a while"
        others = others_in_words(facts, (rank,))
        return Cause(
            kind="stopped",
            ranks=(rank,),
            headline=f"{capital(each.name)} {state} and went silent, so the others gave it up"
            f"{others}.",
            details=tuple(f"rank {rank}: {text}" for text in pauses),
            advice=(
                "SIGSTOP, Ctrl-Z, a debugger or a paused container or virtual machine stops a"
                " process. If such pauses are wanted, raise SLIPSTREAM_PEER_TIMEOUT above their"
                " length.",
            ),
        )
    return None


def _cut(facts: Facts, losses: list[_Loss]) -> Cause | None:
    """Return the cause if ranks of two hosts lost each other, although all of them went on."""
    pairs = {(loss.observer, loss.peer.rank) for loss in losses}
    mutual = {(a, b) for a, b in pairs if (b, a) in pairs and a < b}
    if not mutual:
        return None
    hosts: dict[str, set[int]] = {}
    for rank in {rank for pair in mutual for rank in pair}:
        hosts.setdefault(facts[rank].host, set()).add(rank)
    if len(hosts) > 1:
        named = [f"host {host} ({ranks_in_words(ranks)})" for host, ranks in sorted(hosts.items())]
    else:
        named = [ranks_in_words([rank]) for rank in sorted(next(iter(hosts.values())))]
    between = f"{', '.join(named[:-1])} and {named[-1]}"
    ranks = tuple(sorted({rank for pair in mutual for rank in pair}))
    why = next(loss.peer.why for loss in losses if (loss.observer, loss.peer.rank) in pairs)
    return Cause(
        kind="network",
        ranks=ranks,
        headline=f"The network between {between} was cut: each side lost the other, and both were"
        f" running{others_in_words(facts, ())}.",
        details=(f"rank {losses[0].observer} said of rank {losses[0].peer.rank}: {why}",),
        advice=(
            "Look for a cable, switch, firewall or interface that failed at this time: `ip -s link`"
            " on both hosts counts errors, and `dmesg` names links that went down.",
            "`slipstream doctor --route-to HOST` shows the interface that leads to a host.",
            "If the network comes back after some seconds, a higher SLIPSTREAM_PEER_TIMEOUT lets"
            " the job wait for it.",
        ),
    )


def _gone(evidence: Evidence, facts: Facts, losses: list[_Loss]) -> Cause | None:
    """Return the cause if a rank is gone, and neither a signal nor an exception is known."""
    suspects: dict[int, list[_Loss]] = {}
    for loss in losses:
        suspects.setdefault(loss.peer.rank, []).append(loss)
    unrecorded = {rank: seen for rank, seen in suspects.items() if facts[rank].record is None}
    chosen = unrecorded or suspects
    rank, seen = max(chosen.items(), key=lambda item: len(item[1]))
    each, why = facts[rank], seen[0].peer.why
    end = evidence.end_of(rank)
    is_silent = seen[0].is_silence
    others = others_in_words(facts, (rank,))
    if end is not None and end.status is not None and end.status >= 0 and not end.by_launcher:
        how = f"ended with exit code {end.status}{when(evidence, rank)} without leaving the job"
        advice = _exit_advice(rank)
    elif evidence.launcher is not None and evidence.launcher.failed_host:
        how = f"was lost with host {evidence.launcher.failed_host}: {evidence.launcher.reason}"
        advice = ("Look whether that host is up, and whether ssh reaches it.",)
    elif is_silent:
        how = f"went silent: its process was stopped, or its host or network is down ({why})"
        advice = (
            f"Look whether host {each.host or 'of the rank'} is up and whether process"
            f" {each.pid or 'of the rank'} still runs there (`ps -o stat,wchan -p PID`); the state"
            " T means stopped.",
        )
    else:
        how = f"ended without a flight record, so it was probably killed ({why})"
        advice = (
            "A process that SIGKILL ends writes nothing. Look for the out-of-memory killer"
            f" (`dmesg | grep -i 'killed process'`) and into the scheduler's log on host"
            f" {each.host or 'of the rank'}.",
        )
    return Cause(
        kind="lost",
        ranks=(rank,),
        headline=f"{capital(each.name)} {how}{others}.",
        advice=advice,
    )


def _exit_advice(rank: int) -> tuple[str, ...]:
    return (
        f"Look for os._exit() or an exit in native code on rank {rank}; sys.exit() would have told"
        " the other ranks.",
    )


def find_leaver(evidence: Evidence, facts: Facts) -> Cause | None:
    """Return the cause if a rank left the job while others still needed it."""
    for each in facts.values():
        peers = () if each.engine is None else each.engine.peers
        left = [peer for peer in peers if peer.state == "left" and peer.ended is not None]
        left = [peer for peer in left if peer.rank in facts]
        failure = each.failure
        if failure is None or not left:
            continue
        first = min(left, key=lambda peer: peer.ended or 0.0)
        if (first.ended or 0.0) > failure.at:
            continue
        return _leaver(evidence, facts, first.rank)
    return None


def _leaver(evidence: Evidence, facts: Facts, rank: int) -> Cause:
    end = evidence.end_of(rank)
    how = ""
    if end is not None and end.status is not None and not end.by_launcher:
        how = f" with exit code {end.status}{when(evidence, rank)}"
    others = others_in_words(facts, (rank,))
    place = place_in_words(facts[rank].place)
    return Cause(
        kind="left",
        ranks=(rank,),
        headline=f"{capital(facts[rank].name)} ended its script{how}, without an exception,"
        f" while others still needed it{others}.",
        details=(f"rank {rank} was at {place}",) if place else (),
        advice=(
            "Look for sys.exit() or an early return on that rank, or for a loop that has fewer"
            " steps there: all ranks must call the same number of operations.",
        ),
    )
