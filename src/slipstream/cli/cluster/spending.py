"""The commands of `slipstream cluster` about money: what there is, what it costs, what is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.cluster.machine_examples import machine_examples
from slipstream.cli.cluster.machine_options import ProviderName, Region
from slipstream.cli.cluster.machines import open_groups
from slipstream.cli.options import AsJson
from slipstream.cli.output import emit

if TYPE_CHECKING:
    from slipstream.cluster.control.costs import ClusterCost
    from slipstream.cluster.groups.group_session import GroupSession
    from slipstream.cluster.providers.gc import GcReport
    from slipstream.cluster.providers.protocol import Found, Provider

Pattern = Annotated[
    str,
    typer.Argument(metavar="TEXT", show_default="all", help="Text that the name must contain."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("cost", epilog=machine_examples("cost"))(cost)
    app.command("gc", epilog=machine_examples("gc"))(gc)
    app.command("images", epilog=machine_examples("images"))(images)
    app.command("gpus", epilog=machine_examples("gpus"))(gpus)


def cost(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", show_default="all", help="Name of a group or of a run."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what machines have cost by the ledger, beside what was estimated."""
    from rich.table import Table

    from slipstream.cluster.control.costs import cluster_costs

    costs = cluster_costs(open_groups().store, time.time(), name)
    table = Table("cluster", "on", "machine hours", "spent", "an hour now", "estimated most")
    for item in costs:
        table.add_row(
            item.cluster,
            f"{item.provider} {item.region}",
            f"{item.machine_hours:.2f}",
            _dollars(item.spent if item.has_prices else None),
            _now(item),
            _dollars(item.most),
        )
    shown: list[Any] = [table] if costs else ["no machines have been created"]
    emit([asdict(item) for item in costs], shown, as_json=as_json, notes=_remarks(costs))


def gc(
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="PROVIDER",
            show_default="all that the ledger knows",
            help="Provider to search: aws or aliyun.",
        ),
    ] = "",
    region: Region = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Delete it; without this, it is only listed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find by their tags what has outlived its deadline, and delete it.

    Exit code: 1 if something could not be deleted or searched.
    """
    from slipstream.cluster.providers.gc import collect

    session = open_groups()
    providers = _searched(session, on, region)
    report = collect(providers, session.ledger, time.time(), dry_run=not yes)
    if yes:
        _forget_ended(session)
    entry = {
        "is_dry": report.is_dry,
        "doomed": [_found_entry(found) for found in report.doomed],
        "kept": [_found_entry(found) for found in report.kept],
        "closed": [{"token": item.token, "kind": item.kind} for item in report.closed],
        "leaks": report.leaks,
    }
    emit(entry, _report(report, providers), as_json=as_json)
    raise typer.Exit(1 if report.leaks else 0)


def images(
    pattern: Pattern = "", on: ProviderName = "aws", region: Region = "", as_json: AsJson = False
) -> None:
    """List images of a provider that machines can boot."""
    from rich.table import Table

    from slipstream.cluster.providers.choice import cloud_provider

    found = cloud_provider(on, region).images(pattern)
    table = Table("image", "name")
    for external_id, name in found:
        table.add_row(external_id, name)
    entries = [{"image": external_id, "name": name} for external_id, name in found]
    emit(entries, [table] if entries else ["no image has this name"], as_json=as_json)


def gpus(
    pattern: Pattern = "", on: ProviderName = "aws", region: Region = "", as_json: AsJson = False
) -> None:
    """List types of machines with GPUs and their prices, the cheapest first."""
    from rich.table import Table

    from slipstream.cluster.providers.choice import cloud_provider

    offers = [offer for offer in cloud_provider(on, region).offers(pattern) if offer.num_gpus]
    table = Table("type", "GPUs", "processors", "memory", "an hour", "as spot")
    for offer in offers:
        table.add_row(
            offer.instance_type,
            f"{offer.num_gpus} x {offer.gpu}",
            str(offer.num_cores),
            f"{offer.memory_gib:g} GiB",
            _dollars(offer.price),
            _dollars(offer.spot_price),
        )
    sources = sorted({offer.price_source for offer in offers})
    shown: list[Any] = [table] if offers else ["no type of machine has such GPUs"]
    emit([asdict(offer) for offer in offers], shown, as_json=as_json, notes=sources)


def _searched(session: GroupSession, on: str, region: str) -> list[Provider]:
    """Return the providers of all regions in which something was created, and of the given one."""
    from slipstream.cluster.providers.choice import cloud_provider

    entries = session.ledger.resources(all_states=True)
    places = {(entry.provider, entry.region) for entry in entries}
    if on:
        places = {place for place in places if place[0] == on and region in ("", place[1])}
        asked = cloud_provider(on, region)
        places.add((asked.name, asked.region))
    return [cloud_provider(provider, region) for provider, region in sorted(places)]


def _forget_ended(session: GroupSession) -> None:
    """Forget the groups whose time is over and of which nothing is left."""
    from slipstream.cluster.groups.group_record import GroupFolder, all_groups

    for record in all_groups(session.home):
        is_over = record.request.deadline_at < time.time()
        if is_over and not session.ledger.resources(record.name):
            GroupFolder(session.home, record.name).forget()


def _report(report: GcReport, providers: Sequence[Provider]) -> list[Any]:
    from rich.table import Table

    places = ", ".join(f"{provider.name} {provider.region}" for provider in providers)
    done = "would be deleted" if report.is_dry else "deleted"
    lines = [f"searched: {places or 'nothing, as nothing has been created'}"]
    lines += [f"{len(report.doomed)} {done}, {len(report.kept)} kept until their deadline"]
    lines += report.leaks
    if report.is_dry and report.doomed:
        lines.append("delete them with: slipstream cluster gc --yes")
    table = Table("kind", "id", "cluster", "deadline passed")
    for found in report.doomed:
        passed = f"{(time.time() - found.deadline_at) / 3600.0:.1f} h ago"
        table.add_row(found.kind, found.external_id, found.cluster, passed)
    return [*([table] if report.doomed else []), *lines]


def _found_entry(found: Found) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "id": found.external_id,
        "cluster": found.cluster,
        "deadline_at": found.deadline_at,
    }


def _remarks(costs: Sequence[ClusterCost]) -> list[str]:
    unknown = [item.cluster for item in costs if not item.has_prices]
    return [f"no price is known of machines of {', '.join(unknown)}"] if unknown else []


def _now(item: ClusterCost) -> str:
    if not item.num_open:
        return "given back"
    return _dollars(item.per_hour if item.has_prices else None)


def _dollars(value: float | None) -> str:
    return "not known" if value is None else f"{value:.2f} $"
