"""The question for the cost of a run, before its machines are created."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from slipstream.cli.output import remark
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.control.estimate import Estimate


def confirm_cost(estimate: Estimate) -> bool:
    """Show what the machines of a run cost, and ask whether to create them.

    Args:
        estimate: Estimate of the cost.

    Raises:
        UsageError: nobody can be asked, because there is no terminal.
    """
    remark(describe(estimate), style="")
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked for the cost here; allow it with --yes")
    return typer.confirm("Create these machines?", err=True)


def describe(estimate: Estimate) -> str:
    """Return an estimate as a sentence."""
    kind = " (spot)" if estimate.is_spot else ""
    machines = f"{estimate.num_machines} x {estimate.offer.instance_type}{kind}"
    if estimate.price_per_hour is None or estimate.most is None:
        return f"{machines}, whose price is not known, for at most {estimate.hours:.1f} h"
    return (
        f"{machines} for {estimate.price_per_hour:.2f} US dollars an hour, at most"
        f" {estimate.most:.2f} in {estimate.hours:.1f} h"
    )
