"""The drawn mutants and their outcomes, stored in a file and shown as a table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from .draw import Mutant, next_mutant
from .parts import PARTS

RESULTS = Path("tests/mutants.json")
NOT_MET = "not tested"  # text that is shown for an empty outcome
KILLED_BY_PART, KILLED_BY_WHOLE = "killed by part", "killed by whole"
KILLED_BY_NEW = "killed by new test"  # the mutant survived until this test was written
SURVIVED, ESCAPED = "survived part", "escaped whole"
EQUIVALENT, NOT_COMPILED = "equivalent", "does not compile"
COLUMNS = (
    *(NOT_MET, KILLED_BY_PART, KILLED_BY_WHOLE, KILLED_BY_NEW),
    *(SURVIVED, ESCAPED, EQUIVALENT),
)
ALIVE = (SURVIVED, ESCAPED)
REPLACED = (EQUIVALENT, NOT_COMPILED)


@dataclass
class Results:
    """The mutants that were drawn with a seed from the sources of a commit.

    Args:
        seed: Seed of the random numbers.
        drawn_at: Commit of the sources from which the mutants were drawn.
        mutants: Mutants in the order in which they were drawn.
    """

    seed: int
    drawn_at: str
    mutants: list[Mutant]

    def save(self, root: Path) -> None:
        """Write the results to their file."""
        (root / RESULTS).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def replace(self, root: Path, mutant: Mutant, outcome: str, why: str = "") -> Mutant:
        """Set the outcome of a mutant; draw, store and return another mutant of the same part."""
        mutant.outcome, mutant.why = outcome, why
        drawn = next_mutant(root, self.seed, mutant.part, self.mutants)
        self.mutants.append(drawn)
        self.save(root)
        return drawn


def load(root: Path) -> Results:
    """Return the results from their file."""
    stored = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    mutants = [Mutant(**fields) for fields in stored["mutants"]]
    return Results(stored["seed"], stored["drawn_at"], mutants)


def counts(results: Results) -> dict[str, dict[str, int]]:
    """Return counts per part: drawn mutants, and mutants by outcome; the last row is the total."""
    rows: dict[str, dict[str, int]] = {}
    for name in [*PARTS, "all"]:
        mutants = [mutant for mutant in results.mutants if name in (mutant.part, "all")]
        rows[name] = {"drawn": sum(mutant.outcome not in REPLACED for mutant in mutants)}
        outcomes = [mutant.outcome or NOT_MET for mutant in mutants]
        rows[name] |= {column: outcomes.count(column) for column in COLUMNS}
    return rows


def show(results: Results, console: Console) -> None:
    """Print the counts, and each mutant that survived, is equivalent or needed a new test."""
    part = Column("part", min_width=max(map(len, PARTS)))
    table = Table(part, "drawn", *COLUMNS, box=None)
    for name, row in counts(results).items():
        table.add_row(name, *map(str, row.values()))
    console.print(f"seed {results.seed}, drawn at {results.drawn_at}", highlight=False)
    console.print(table)
    for mutant in results.mutants:
        if mutant.outcome in (*ALIVE, KILLED_BY_NEW, EQUIVALENT):
            console.print(f"\n{describe(mutant)}", highlight=False, markup=False)


def describe(mutant: Mutant) -> str:
    """Return the file and line of a mutant, its outcome and its changed lines as text."""
    head = f"{mutant.id}: {mutant.file}:{mutant.line}, {mutant.operator}: {mutant.outcome}"
    reason = f"\n  {mutant.why}" if mutant.why else ""
    before, after = (
        "\n".join(f"{sign} {line.strip()}" for line in lines.splitlines())
        for sign, lines in (("-", mutant.before), ("+", mutant.after))
    )
    return f"{head}{reason}\n{before}\n{after}"
