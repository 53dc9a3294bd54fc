"""`slipstream ask`: run a compiled model on files, and show its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream import infer
from slipstream.cli.options import AsJson, file_option
from slipstream.cli.output import as_text, emit, show, write_file
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from slipstream.serve.client import FilePrediction

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream ask model.slip cat.jpg
  slipstream ask http://localhost:8000 cat.jpg dog.jpg
  slipstream ask http://localhost:8000/v2/models/resnet cat.jpg --json

TARGET is a package, or the address of a server; the address names a model if the server has
several. FILES are images if the model takes images, .npy files, and .npz files of arrays by input.
If the server demands a token, --token-file is the file that the server was started with.

[bold]Exit code[/bold]: 1 if the model cannot answer, 2 for wrong usage.
"""
NUM_SHOWN = 8  # how many numbers of an output are printed


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("ask", epilog=EXAMPLES)(ask)


def ask(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Package (file.slip) or server (http://host:port)."),
    ],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Images, .npy or .npz files.")
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File of access tokens; the first one is sent to the server."
        ),
    ] = None,
    output: Annotated[
        Path | None, file_option("-o", "--output", help="File for the predictions as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a compiled model on files, and show its predictions."""
    _ = infer.load  # raises an error at once if a package is not installed
    from slipstream.serve.access import read_tokens
    from slipstream.serve.client import open_predictor

    missing = [file for file in files if not file.is_file()]
    if missing:
        raise UsageError(f"{missing[0]}: there is no such file")
    token = None if token_file is None else read_tokens(token_file).allowed[0].decode()
    model = open_predictor(target, token)
    answers: list[dict[str, Any]] = []
    for file in files:
        answer = model.predict(file)
        answers.append({"file": str(file), **_fields(answer)})
        if not as_json:
            show([_heading(file), *_shown(answer)])
    if as_json:
        emit(answers, [], as_json=True)
    if output is not None:
        write_file(output, as_text(answers))


def _heading(file: Path) -> RenderableType:
    from rich.text import Text

    return Text(str(file), style="bold")


def _fields(answer: FilePrediction) -> dict[str, Any]:
    outputs = {name: array.tolist() for name, array in answer.outputs.items()}
    labels = answer.outputs.get("labels")
    if labels is None or not answer.classes:
        return {"outputs": outputs}
    names = [answer.classes.get(label, "") for label in labels.ravel().tolist()]
    return {"outputs": outputs, "classes": names}


def _shown(answer: FilePrediction) -> list[RenderableType]:
    """Return a table of predicted classes or boxes, and the first numbers of each other output."""
    outputs = dict(answer.outputs)
    shown: list[RenderableType] = []
    if {"labels", "scores"} <= outputs.keys() and outputs["labels"].ndim == 2:
        labels, scores = outputs.pop("labels"), outputs.pop("scores")
        boxes, counts = outputs.pop("boxes", None), outputs.pop("counts", None)
        count = labels.shape[-1] if counts is None else int(counts.ravel()[0])
        shown.append(_table(answer, labels, scores, boxes, count))
    for name, array in outputs.items():
        numbers = ", ".join(f"{number:.5g}" for number in array.ravel()[:NUM_SHOWN].tolist())
        more = f", and {array.size - NUM_SHOWN} more" if array.size > NUM_SHOWN else ""
        shown.append(f"  {name} {array.dtype} {array.shape}: {numbers}{more}")
    return shown


def _table(answer: FilePrediction, labels: Any, scores: Any, boxes: Any, count: int) -> Table:
    from rich.table import Table

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
