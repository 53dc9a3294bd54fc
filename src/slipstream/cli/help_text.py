"""The text of `--help`: usage, arguments, options in groups, commands, and examples.

The text is as wide as the terminal, and its lines break between words only. In usage and options,
one word names an option's value, such as N in `--num-hosts N`. The module imports only typer, so
that the text appears at once.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperGroup

# Widest left column; the help of a longer option begins on the next line.
MAX_NAME_COLUMNS = 26
MIN_COLUMNS, MAX_COLUMNS = 40, 120
# Number of columns if no stream is a terminal, as on the first terminals.
USUAL_COLUMNS = 80
# Longest remark in brackets, such as "[default: 3.0; x>=0]", that is never broken into lines.
MAX_UNBROKEN = 28
NO_BREAK_SPACE = "\u00a0"
# Names of types in Typer and Click, and our names for them.
VALUE_WORDS = {
    "int": "N", "int range": "N", "integer": "N", "integer range": "N",
    "float": "NUMBER", "float range": "NUMBER", "number": "NUMBER", "number range": "NUMBER",
    "str": "TEXT", "text": "TEXT", "path": "PATH", "file": "FILE", "directory": "FOLDER",
    "list[str]": "TEXT",
}  # fmt: skip


def columns_of_help() -> int:
    """Return COLUMNS if it is set, else the width of the terminal in columns, or 80."""
    columns = shutil.get_terminal_size((0, 0)).columns  # COLUMNS, or the terminal at stdout
    for number in (2, 0):
        if columns == 0:
            with suppress(OSError):
                columns = os.get_terminal_size(number).columns
    return _within(columns or USUAL_COLUMNS)


def _within(columns: int) -> int:
    return min(max(columns, MIN_COLUMNS), MAX_COLUMNS)


def help_text(command: Any, context: Any, columns: int) -> str:
    """Return the text that `--help` prints for a command.

    The text has the command's usage and description, then its arguments, its groups of options and
    its subcommands, and then examples.
    """
    lines = [*_hanging("Usage: ", usage(command, context), columns), ""]
    lines += _paragraphs(_plain(command.help or ""), columns)
    for title, rows in _sections(command, context).items():
        lines += [_heading(title), *_definitions(rows, columns), ""]
    lines += _paragraphs(_plain(command.epilog or ""), columns)
    return "\n".join(lines).rstrip() + "\n"


def usage(command: Any, context: Any) -> str:
    """Return the usage of a command: its name, options and arguments."""
    pieces = [" ".join(context.command_path.split()), "[OPTIONS]"]
    for param in command.get_params(context):
        if param.param_type_name == "argument":
            name = _argument_name(param)
            pieces.append(name if param.required else f"[{name}]")
    if isinstance(command, TyperGroup):
        pieces.append("COMMAND ...")
    return " ".join(pieces)


def _sections(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is None:
            continue
        is_argument = param.param_type_name == "argument"
        title = getattr(param, "rich_help_panel", None) or (
            "Arguments" if is_argument else "Options"
        )
        name = _argument_name(param) if is_argument else _option_name(record[0])
        sections.setdefault(title, []).append((name, _remark_in_words(record[1])))
    if isinstance(command, TyperGroup):
        named = [
            (name, command.get_command(context, name)) for name in command.list_commands(context)
        ]
        sections["Commands"] = [
            (name, _summary(inner)) for name, inner in named if inner and not inner.hidden
        ]
    return {title: rows for title, rows in sections.items() if rows}


def _argument_name(param: Any) -> str:
    if param.metavar:
        return param.metavar
    return param.name.upper() + ("..." if param.nargs != 1 else "")


def _option_name(record: str) -> str:
    """Return "--num-hosts N" for "--num-hosts <int range>"."""
    parts = re.fullmatch(r"((?:-\S+,? ?)+?)(?: ?([^-\s].*))?", record)
    if parts is None or parts[2] is None:
        return record
    word = re.sub(r"^<(.*)>$|^\[(.*)\]$", r"\1\2", parts[2])
    return f"{parts[1].strip()} {VALUE_WORDS.get(word.lower(), word)}"


def _remark_in_words(text: str) -> str:
    """Return "[default: 4; at least 1]" for "[default: (4); x>=1]"."""
    head, mark, remark = text.rpartition("  [")
    if not mark:
        return text
    remark = re.sub(r"default: \((.*)\)(?=[];])", r"default: \1", remark)
    remark = re.sub(r"(-?[\d.]+)<=x<=(-?[\d.]+)", r"\1 to \2", remark)
    remark = re.sub(r"x>=(-?[\d.]+)", r"at least \1", remark)
    return f"{head} [{remark}"


def _summary(command: Any) -> str:
    return _plain(command.short_help or command.help or "").split("\n\n")[0].replace("\n", " ")


def _plain(text: str) -> str:
    """Return a text without the markup of its headings."""
    return text.replace("\b\n", "").strip("\b\n")


def _definitions(rows: list[tuple[str, str]], columns: int) -> list[str]:
    limit = min(MAX_NAME_COLUMNS, columns // 2 - 4)
    left = max((len(name) for name, _ in rows if len(name) <= limit), default=limit)
    lines: list[str] = []
    for name, text in rows:
        parts = _wrap(text, columns - left - 4) or [""]
        if len(name) > left:
            lines += [f"  {part}" for part in _wrap(name, columns - 2)]
        else:
            lines.append(f"  {name:{left}}  {parts.pop(0)}".rstrip())
        lines += [" " * (left + 4) + part for part in parts]
    return lines


def _paragraphs(text: str, columns: int) -> list[str]:
    """Return wrapped paragraphs as lines; lines that begin with two spaces are examples."""
    lines: list[str] = []
    for paragraph in filter(None, text.split("\n\n")):
        prose: list[str] = []
        for line in [*paragraph.splitlines(), "  "]:
            if not line.startswith("  "):
                prose.append(line)
                continue
            lines += _prose(prose, columns)
            prose = []
            lines += _example(line, columns)
        lines.append("")
    return lines


def _prose(lines: list[str], columns: int) -> list[str]:
    text = " ".join(line.strip() for line in lines)
    parts = _wrap(text.replace("[bold]", "").replace("[/bold]", ""), columns)
    is_heading = text.startswith("[bold]") and text.endswith("[/bold]")
    return [_heading(part) for part in parts] if is_heading else parts


def _example(line: str, columns: int) -> list[str]:
    """Return an example as lines: a command and its remark, on the same line if both fit."""
    if len(line) <= columns:
        return [line.rstrip()] if line.strip() else []
    command, *remark = re.split(r"\s{2,}", line.strip(), maxsplit=1)
    together = re.sub(r" (-\S+) (?=[^-\s])", rf" \1{NO_BREAK_SPACE}", command)
    parts = _wrap(together, columns - 6)
    commands = [f"{'  ' if at == 0 else '    '}{part}" for at, part in enumerate(parts)]
    return [
        *(f"{part} \\" for part in commands[:-1]),
        commands[-1],
        *(f"      {part}" for text in remark for part in _wrap(text, columns - 6)),
    ]


def _hanging(head: str, text: str, columns: int) -> list[str]:
    parts = _wrap(text, columns - len(head))
    return [(head if at == 0 else " " * len(head)) + part for at, part in enumerate(parts)]


def _wrap(text: str, columns: int) -> list[str]:
    joined = re.sub(
        r"\[[^]]*\]$",
        lambda found: (
            found[0].replace(" ", NO_BREAK_SPACE) if len(found[0]) <= MAX_UNBROKEN else found[0]
        ),
        text,
    )
    lines = wrap(joined, columns, break_long_words=False, break_on_hyphens=False)
    return [line.replace(NO_BREAK_SPACE, " ") for line in lines]


def _heading(text: str) -> str:
    if not sys.stdout.isatty():
        return text
    from slipstream.settings.terminal import has_styles  # takes 25 ms; only terminals need it

    return typer.style(text, bold=True) if has_styles() else text
