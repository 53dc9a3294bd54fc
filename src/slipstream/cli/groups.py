"""Groups of commands whose parts are imported when they are called, with help texts of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from slipstream.cli.help_text import columns_of_help, help_text, usage


class Command(TyperCommand):
    """A command with our help text."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        formatter.write(help_text(self, ctx, columns_of_help()))

    def get_usage(self, ctx: Any) -> str:
        """Return the usage line, which precedes errors too."""
        return f"Usage: {usage(self, ctx)}"


class CommandGroup(TyperGroup):
    """A group of commands with our help text.

    Attributes:
        load: Function that adds the commands when they are needed; None if all are there.
    """

    load: Callable[[typer.Typer], None] | None = None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        formatter.write(help_text(self, ctx, columns_of_help()))

    def get_usage(self, ctx: Any) -> str:
        """Return the usage line, which precedes errors too."""
        return f"Usage: {usage(self, ctx)}"

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of that name."""
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if self.load is not None and not self.commands:
            app = CommandLine()
            type(self).load(app)  # pyright: ignore[reportOptionalCall]
            self.commands = typer.main.get_group(app).commands


class CommandLine(typer.Typer):
    """Commands and groups with our help text; errors appear without boxes and tracebacks."""

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
        """Return a decorator that makes a function a command."""
        return super().command(name, cls=cls, **settings)

    def add_lazy(self, name: str, load: Callable[[typer.Typer], None], **settings: Any) -> None:
        """Add a group whose commands are imported when it is called.

        Args:
            name: Name of the group.
            load: Function that adds the commands to an app.
            settings: Texts of the group, such as `help`.
        """
        lazy = type("LazyGroup", (CommandGroup,), {"load": staticmethod(load)})
        self.add_typer(CommandLine(cls=lazy, add_completion=False), name=name, **settings)
