"""Groups of commands with Slipstream's own form of help texts and usage errors.

The module of a command is imported when the command is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from slipstream.cli.help_text import columns_of_help, help_text, usage

# Descriptions of allowed values, by the kind of error with which pydantic (inside typer) refuses a
# value.
ALLOWED_VALUES = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


class Command(TyperCommand):
    """A command whose help text has Slipstream's form."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; an error message names the wrong value and the allowed values."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _value_message(error)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        formatter.write(help_text(self, ctx, columns_of_help()))

    def get_usage(self, ctx: Any) -> str:
        """Return the usage line, which is also printed before an error."""
        return f"Usage: {usage(self, ctx)}"


class CommandGroup(TyperGroup):
    """A group of commands whose help text has Slipstream's form.

    Attributes:
        load: Function that adds the commands when they are needed; None once they are added.
    """

    load: Callable[[typer.Typer], None] | None = None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        formatter.write(help_text(self, ctx, columns_of_help()))

    def get_usage(self, ctx: Any) -> str:
        """Return the usage line, which is also printed before an error."""
        return f"Usage: {usage(self, ctx)}"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names; an unknown name raises an error."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = ", ".join(self.list_commands(ctx))
            ctx.fail(f"No such command {args[0]!r}; allowed: {names}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, or None if no command has it."""
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if self.load is not None and not self.commands:
            app = CommandLine()
            type(self).load(app)  # pyright: ignore[reportOptionalCall]
            self.commands = typer.main.get_group(app).commands


class CommandLine(typer.Typer):
    """Commands and groups with Slipstream's help texts; errors have no boxes or tracebacks."""

    def __init__(self, *, cls: type[TyperGroup] = CommandGroup, **settings: Any) -> None:
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(
            cls=cls,
            context_settings=names,
            no_args_is_help=True,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            **settings,
        )

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **settings: Any
    ) -> Any:
        """Return a decorator that turns a function into a command."""
        return super().command(name, cls=cls, **settings)

    def add_lazy(self, name: str, load: Callable[[typer.Typer], None], **settings: Any) -> None:
        """Add a group whose commands are imported when the group is called.

        Args:
            name: Word that calls the group on the command line.
            load: Function that adds the commands to an app.
            settings: Settings of the group, such as its `help` text.
        """
        lazy = type("LazyGroup", (CommandGroup,), {"load": staticmethod(load)})
        self.add_typer(CommandLine(cls=lazy, add_completion=False), name=name, **settings)


def _value_message(error: typer.BadParameter) -> str:
    """Return a message about a wrong value, such as "'0'; allowed: at least 1"."""
    problems: Any = getattr(error.__cause__, "errors", None)
    if problems is None:
        return error.message
    problem = problems()[0]
    allowed = ALLOWED_VALUES.get(problem["type"])
    if allowed is None:
        return problem["msg"].removeprefix("Value error, ")
    return f"{str(problem['input'])!r}; allowed: {allowed.format(**problem.get('ctx', {}))}"
