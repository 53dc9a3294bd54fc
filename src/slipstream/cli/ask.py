"""`slipstream ask`: what a compiled model says of a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.lab.display import make_console

if TYPE_CHECKING:
    from slipstream.serve.client import FilePrediction

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream ask model.slip cat.jpg
  slipstream ask http://localhost:8000 cat.jpg dog.jpg
  slipstream ask http://localhost:8000/v2/models/resnet cat.jpg --json

\b
TARGET is a package, or the address of a server: of one of its models where it has several. FILES
are images if the model takes them, .npy files, and .npz files of arrays by input.
Where a server lets in only who has a token, --token-file is the file that it was given too.
[bold]Exit code[/bold]: 1 where the model cannot answer, 2 for wrong usage.
"""
SHOWN = 8  # numbers of an output, and classes of scores


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("ask", epilog=EXAMPLES)(ask)


def ask(
    target: Annotated[str, typer.Argument(help="Package, file.slip, or server, http://host:port.")],
    files: Annotated[list[Path], typer.Argument(help="Images, .npy or .npz files.")],
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first token is sent to the server.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print a JSON line per file.")] = False,
) -> None:
    """Ask a compiled model about FILES, and show its answers."""
    _ = infer.load  # first: it says what is not installed
    from slipstream.serve.access import read_tokens
    from slipstream.serve.client import open_predictor

    missing = [file for file in files if not file.is_file()]
    if missing:
        raise UsageError(f"{missing[0]}: there is no such file")
    token = None if token_file is None else read_tokens(token_file).allowed[0].decode()
    model = open_predictor(target, token)
    console = make_console(sys.stdout)
    for file in files:
        answer = model.predict(file)
        if is_json:
            print(json.dumps({"file": str(file), **_told(answer)}), flush=True)
            continue
        console.print(str(file), style="bold", markup=False)
        for part in _shown(answer):
            console.print(part)


def _told(answer: FilePrediction) -> dict[str, Any]:
    outputs = {name: array.tolist() for name, array in answer.outputs.items()}
    labels = answer.outputs.get("labels")
    if labels is None or not answer.classes:
        return {"outputs": outputs}
    names = [answer.classes.get(label, "") for label in labels.ravel().tolist()]
    return {"outputs": outputs, "classes": names}


def _shown(answer: FilePrediction) -> list[Table | str]:
    """Return tables of the best classes or boxes, and the first numbers of other outputs."""
    outputs = dict(answer.outputs)
    shown: list[Table | str] = []
    if {"labels", "scores"} <= outputs.keys() and outputs["labels"].ndim == 2:
        labels, scores = outputs.pop("labels"), outputs.pop("scores")
        boxes, counts = outputs.pop("boxes", None), outputs.pop("counts", None)
        count = labels.shape[-1] if counts is None else int(counts.ravel()[0])
        shown.append(_table(answer, labels, scores, boxes, count))
    for name, array in outputs.items():
        numbers = ", ".join(f"{number:.5g}" for number in array.ravel()[:SHOWN].tolist())
        more = f", and {array.size - SHOWN} more" if array.size > SHOWN else ""
        shown.append(f"  {name} {array.dtype} {array.shape}: {numbers}{more}")
    return shown


def _table(answer: FilePrediction, labels: Any, scores: Any, boxes: Any, count: int) -> Table:
    table = Table(show_edge=False, pad_edge=True, box=None)
    for heading in ("score", "label", *(["class"] if answer.classes else [])):
        table.add_column(heading, justify="right" if heading != "class" else "left")
    if boxes is not None:
        table.add_column("left, top, right, bottom")
    for at in range(count):
        label = int(labels.reshape(-1, labels.shape[-1])[0, at])
        row = [f"{scores.reshape(-1, scores.shape[-1])[0, at]:.4f}", str(label)]
        row += [answer.classes.get(label, "")] if answer.classes else []
        if boxes is not None:
            row.append(", ".join(f"{number:.4g}" for number in boxes.reshape(-1, 4)[at].tolist()))
        table.add_row(*row)
    if not count:
        table.add_row("nothing")
    return table
