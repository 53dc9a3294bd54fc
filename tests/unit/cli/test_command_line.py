"""Every command has examples, help texts and options of one meaning; help texts break no word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from slipstream.cli import app
from slipstream.cli.help_text import help_text

MOST_IN_FIRST_GROUP = 12
# Names of options that have one spelling, and others that would mean the same.
ONE_NAME = {
    "--peers": ("--peer",),
    "--chart": ("--picture",),
    "--images": ("--pictures",),
    "--output": ("--out", "--json-file"),
    "--search-time": ("--search",),
}


def walk(command: Any, path: tuple[str, ...], parent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, command and context of every command below a group."""
    context = typer.Context(command, info_name=path[-1], parent=parent)
    yield " ".join(path), command, context
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from walk(command.get_command(context, name), (*path, name), context)


COMMANDS = {
    path: (command, context)
    for path, command, context in walk(typer.main.get_command(app), ("slipstream",), None)
}
OPTIONS = [
    (path, param)
    for path, (command, context) in COMMANDS.items()
    for param in command.get_params(context)
    if param.param_type_name == "option"
]

every_command = pytest.mark.parametrize("path", COMMANDS)


def with_option(name: str) -> list[tuple[str, Any]]:
    return [(path, param) for path, param in OPTIONS if name in param.opts]


@every_command
def test_a_command_shows_examples(path: str) -> None:
    epilog = COMMANDS[path][0].epilog or ""
    words = path.replace("slipstream forecast plan", "slipstream forecast").replace(
        "slipstream forecast forecast", "slipstream forecast"
    )
    assert f"\n  {words}" in epilog


@every_command
def test_arguments_and_options_have_a_help_text_without_their_default(path: str) -> None:
    command, context = COMMANDS[path]
    for param in command.get_params(context):
        assert param.help, param.name
        assert "efault:" not in param.help, param.name
        assert "[dim]" not in param.help, param.name


@every_command
def test_the_first_group_of_options_is_short(path: str) -> None:
    command, context = COMMANDS[path]
    first = [
        param
        for param in command.get_params(context)
        if param.param_type_name == "option"
        and not getattr(param, "rich_help_panel", None)
        and param.name != "help"
    ]
    assert len(first) <= MOST_IN_FIRST_GROUP, [param.opts for param in first]


@every_command
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_breaks_lines_between_words(path: str, columns: int) -> None:
    command, context = COMMANDS[path]
    narrow, wide = (help_text(command, context, width) for width in (columns, 10_000))
    words = [word for word in narrow.split() if word != "\\"]
    assert sorted(words) == sorted(wide.split())
    for line in narrow.splitlines():
        assert len(line) <= columns or len(line.split()) == 1, line


def test_json_is_a_switch_everywhere() -> None:
    assert len(with_option("--json")) > 10
    for path, param in with_option("--json"):
        assert param.is_flag, path


def test_output_has_a_short_name_everywhere() -> None:
    for path, param in with_option("--output"):
        assert "-o" in param.opts, path
        assert param.metavar in ("FILE", "FOLDER"), path


def test_names_of_hosts_are_for_three_commands_and_their_number_for_labs() -> None:
    assert sorted(path for path, _ in with_option("--hosts")) == [
        "slipstream doctor",
        "slipstream run",
        "slipstream serve",
    ]
    for path, _ in with_option("--num-hosts"):
        assert path.startswith(("slipstream lab", "slipstream bench"))
    for path, param in with_option("--ranks-per-host"):
        assert "anks on" in param.help, path


def test_lists_are_texts_with_commas() -> None:
    for name in ("--peers", "--models", "--codecs", "--sizes", "--backends"):
        for path, param in with_option(name):
            assert (param.metavar, param.multiple) == ("LIST", False), (path, name)


def test_bit_rates_and_times_are_named_so() -> None:
    for name in ("--rate", "--flow-rate", "--uplink", "--cross-traffic"):
        for path, param in with_option(name):
            assert param.metavar == "RATE", (path, name)
    for name in ("--turn-time", "--search-time", "--deadline", "--timeout", "--grace", "--delay"):
        for path, param in with_option(name):
            assert param.metavar == "TIME", (path, name)


@pytest.mark.parametrize("name", ONE_NAME)
def test_an_option_has_one_name(name: str) -> None:
    for other in ONE_NAME[name]:
        assert not with_option(other), f"{other} is {name}"
