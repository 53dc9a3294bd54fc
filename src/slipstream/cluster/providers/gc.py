"""The collection of what is left behind: everything whose deadline has passed, found by its tags.

The tags decide, not the ledger, so resources are found that no ledger has. Resources of others in
the same account, which this ledger does not know, stay until their own deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.cluster.providers.pace import BusyError, Pace
from slipstream.cluster.providers.protocol import Found, Provider
from slipstream.cluster.records import Resource, ResourceLedger
from slipstream.errors import SlipstreamError

# A deletion or a creation may go on for this time without being a leak.
GRACE_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GcReport:
    """The result of a collection.

    Args:
        doomed: Resources whose time is over; they have been deleted unless the run was dry.
        kept: Resources whose deadline has not passed.
        closed: Entries of the ledger whose resource no longer exists.
        leaks: Sentences on what could not be deleted or asked, and on what has no deadline.
        is_dry: Whether nothing was deleted.
    """

    doomed: list[Found] = field(default_factory=list[Found])
    kept: list[Found] = field(default_factory=list[Found])
    closed: list[Resource] = field(default_factory=list[Resource])
    leaks: list[str] = field(default_factory=list[str])
    is_dry: bool = False


def collect(
    providers: Sequence[Provider],
    ledger: ResourceLedger,
    now: float,
    *,
    dry_run: bool = False,
    pace: Pace | None = None,
) -> GcReport:
    """Delete what has passed its deadline or was released; close entries of what is gone.

    Args:
        providers: Providers in all regions that are searched.
        ledger: Ledger of this user.
        now: Present time in seconds since 1970.
        dry_run: Whether nothing is deleted or written (default False).
        pace: Times of waiting (default `Pace()`).
    """
    report = GcReport(is_dry=dry_run)
    for provider in providers:
        try:
            _collect_region(provider, ledger, now, report, pace or Pace())
        except SlipstreamError as error:
            report.leaks.append(f"{_place(provider)} could not be searched to the end: {error}")
    return report


def _collect_region(
    provider: Provider, ledger: ResourceLedger, now: float, report: GcReport, pace: Pace
) -> None:
    found = provider.found()
    entries = [
        entry
        for entry in ledger.resources(all_states=True)
        if (entry.provider, entry.region) == (provider.name, provider.region)
    ]
    doomed = _doomed(found, entries, now)
    kept = [item for item in found if item not in doomed]
    report.doomed.extend(doomed)
    report.kept.extend(kept)
    known = {entry.token for entry in entries}
    report.leaks.extend(_remarks(provider, kept, known))
    if report.is_dry:
        return
    remaining = _delete_all(provider, doomed, report, pace)
    tokens = {item.token for item in [*kept, *remaining]}
    for entry in entries:
        is_old = now - entry.intended_at > GRACE_SECONDS
        if entry.state != "released" and entry.token not in tokens and is_old:
            ledger.released(entry.token)
            report.closed.append(entry)


def _doomed(found: Sequence[Found], entries: Sequence[Resource], now: float) -> list[Found]:
    """Return what has passed its cluster's deadline, and what the ledger says was released.

    The latest deadline of a cluster counts, because an extension may have been interrupted.
    """
    deadlines: dict[str, float] = {}
    for item in found:
        latest = deadlines.get(item.cluster, 0.0)
        deadlines[item.cluster] = max(item.deadline_at, latest)
    released = {
        entry.token
        for entry in entries
        if entry.state == "released" and now - (entry.released_at or now) > GRACE_SECONDS
    }
    return [item for item in found if 0.0 < deadlines[item.cluster] < now or item.token in released]


def _remarks(provider: Provider, kept: Sequence[Found], known: set[str]) -> list[str]:
    """Return sentences on resources that stay though this ledger cannot explain them."""
    return [
        f"{_named(provider, item)} has no deadline and is in no ledger here; delete it with:"
        f" slipstream cluster down {item.cluster}"
        for item in kept
        if item.deadline_at == 0.0 and item.token not in known
    ]


def _delete_all(
    provider: Provider, doomed: Sequence[Found], report: GcReport, pace: Pace
) -> list[Found]:
    """Delete resources in order, again while others use them; return those that are left."""
    order = {kind: position for position, kind in enumerate(provider.deletion_order)}
    pending = {item.external_id: item for item in doomed}
    reasons: dict[str, str] = {}

    def is_gone() -> bool:
        for item in sorted(pending.values(), key=lambda item: order[item.kind]):
            try:
                provider.delete(item)
            except BusyError as error:
                reasons[item.external_id] = str(error)
            except SlipstreamError as error:
                report.leaks.append(f"{_named(provider, item)} could not be deleted: {error}")
                refused.append(pending.pop(item.external_id))
        found = {item.external_id for item in provider.found()}
        for gone in [key for key in pending if key not in found]:
            del pending[gone]
        return not pending

    refused: list[Found] = []
    try:
        if pending:
            pace.until(is_gone, f"everything old is gone from {_place(provider)}")
    except BusyError:
        for item in pending.values():
            reason = reasons.get(item.external_id, "it is still listed")
            report.leaks.append(f"{_named(provider, item)} could not be deleted: {reason}")
    return [*pending.values(), *refused]


def _named(provider: Provider, item: Found) -> str:
    kind = item.kind.replace("_", " ")
    return f"{kind} {item.external_id} of {item.cluster or 'no cluster'} at {_place(provider)}"


def _place(provider: Provider) -> str:
    return f"{provider.name} {provider.region}"
