"""Commands `slipstream forecast`: a plan for training a model, and the measurements behind it."""

from __future__ import annotations

from typing import Any

import typer

from slipstream.cli.forecast import calibrate, check, plan, validate
from slipstream.cli.groups import Command, CommandGroup, CommandLine

PLAN = "plan"


class _PlanContext(typer.Context):
    """Context of the implicit sub-command `plan`; usage lines and errors leave out this name."""

    @property
    def command_path(self) -> str:
        """The command path of the group, without `plan`."""
        return self.parent.command_path if self.parent else "forecast"


class _PlanCommand(Command):
    """The implicit sub-command `plan`."""

    context_class = _PlanContext


class _ForecastGroup(CommandGroup):
    """Group of sub-commands; an argument that names none of them is passed to `plan`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [PLAN, *args]
        return super().parse_args(ctx, args)


def add_to(app: typer.Typer) -> None:
    """Add the command and its sub-commands to `app`."""
    group = CommandLine(
        cls=_ForecastGroup,
        help="Forecast the hardware, time and cost of training a model.",
        epilog=plan.EXAMPLES,
    )
    group.command(PLAN, cls=_PlanCommand, epilog=plan.EXAMPLES, hidden=True, no_args_is_help=True)(
        plan.plan
    )
    calibrate.add_to(group)
    check.add_to(group)
    validate.add_to(group)
    app.add_typer(group, name="forecast")
