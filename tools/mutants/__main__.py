"""Measure the quality of the tests: they must fail for small random changes of the source.

A mutant is the source with one small random change. A test that fails because of this change kills
the mutant. A mutant that no test kills survives.

    python -m tools.mutants draw --seed 26 --count 40   draw mutants, and write tests/mutants.json
    python -m tools.mutants run [--only ID]             run the tests of each mutant's part
    python -m tools.mutants closest [--only ID]         run the few closest tests (takes seconds)
    python -m tools.mutants reach                       find the tests that reach survivors
    python -m tools.mutants whole [--only ID]           run `make test` on survivors, or only the
                                                        tests that reach them
    python -m tools.mutants equivalent ID --why REASON  replace a mutant by another of its part
    python -m tools.mutants show [--json]               show the outcomes

After writing a test for a surviving mutant, call `run --only ID` again. While tests run, files of
the checkout are changed. These files are restored if a signal other than SIGKILL arrives; a second
signal ends the tests at once. `run` and `whole` continue where they stopped. If the outcome of some
mutants is unclear, the command returns 1; in this case, call the command again. Call all commands
from the root of a clone that has its own environment. Nothing else may use the clone at the same
time. C++ mutants are built in build/mutants.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from . import reach
from . import results as outcomes
from .commands import LIMIT_SECONDS, build_commands, part_commands, whole_commands
from .draw import Mutant, draw
from .execute import UnclearError, changed, execute, git, limit_memory, meet, refuse_changes
from .results import Results, counts, describe, load, show

ROOT = Path.cwd()
# For each command: the outcome before the tests, if they kill the mutant, and if it survives.
OUTCOMES = {
    "closest": ("", outcomes.KILLED_BY_PART, ""),
    "run": ("", outcomes.KILLED_BY_PART, outcomes.SURVIVED),
    "whole": (outcomes.SURVIVED, outcomes.KILLED_BY_WHOLE, outcomes.ESCAPED),
}


def run_one(results: Results, mutant: Mutant, how: str) -> list[Mutant]:
    """Run tests on a mutant and store the outcome; return mutants that must be tested next.

    If the mutant does not compile, another mutant is drawn to replace it. The list contains the new
    mutant if the command tests mutants without an outcome; otherwise, the list is empty.
    """
    before, killed, survived = OUTCOMES[how]
    if how == "whole":
        commands = whole_commands(mutant)
    else:
        commands = part_commands(ROOT, mutant, closest=how == "closest")
    build = build_commands(mutant, whole=how == "whole")
    ended = meet(ROOT, mutant, commands, LIMIT_SECONDS[how], build)
    if ended is None:
        drawn = results.replace(ROOT, mutant, outcomes.NOT_COMPILED)
        return [drawn] if drawn.outcome == before else []
    if mutant.outcome != before:  # the mutant survived these tests earlier
        killed, survived = outcomes.KILLED_BY_NEW, mutant.outcome
    mutant.outcome, mutant.test = survived if ended.ok else killed, ended.test
    mutant.commit = git(ROOT, "rev-parse", "--short", "HEAD")
    results.save(ROOT)
    print(f"{describe(mutant)}\n  {mutant.seconds} s {mutant.test}", flush=True)
    return []


def run(how: str, only: int | None) -> int:
    """Run a command's tests on the mutants that await them; return 1 if a result is unclear."""
    refuse_changes(ROOT)
    limit_memory()
    unclear = 0
    results = load(ROOT)
    if only is None:
        waiting = [mutant for mutant in results.mutants if mutant.outcome == OUTCOMES[how][0]]
    else:
        waiting = [living(results, only, OUTCOMES[how][0])]
    for mutant in waiting:
        try:
            waiting += run_one(results, mutant, how)
        except UnclearError as doubt:
            unclear = 1
            print(f"mutant {mutant.id} is unclear: {doubt}", file=sys.stderr)
    return unclear


def living(results: Results, number: int, before: str = "") -> Mutant:
    """Return the mutant with an id; exit if it is not alive and its outcome is not `before`."""
    for mutant in results.mutants:
        if mutant.id == number:
            if mutant.outcome in (before, *outcomes.ALIVE):
                return mutant
            outcome = mutant.outcome or outcomes.NOT_MET
            sys.exit(f"mutant {number} is {outcome}; this command takes mutants that are alive")
    sys.exit(f"there is no mutant {number}; list all: python -m tools.mutants show")


def find_reached() -> None:
    """Run all tests once, to find the tests that reach surviving mutants."""
    refuse_changes(ROOT)
    results = load(ROOT)
    survivors = [mutant for mutant in results.mutants if mutant.outcome == outcomes.SURVIVED]
    for mutant in survivors:
        reach.note_file(ROOT, mutant).unlink(missing_ok=True)
    with changed(reach.texts_with_notes(ROOT, survivors)):
        ended = execute(ROOT, ["make", "test-python"], LIMIT_SECONDS["whole"])
    # Tests may fail, but the test run must not.
    if not ended.ok and "::" not in ended.test:
        sys.exit(f"not all tests ran: {ended.test}")
    for mutant in survivors:
        mutant.reached = reach.folders(ROOT, mutant)
        print(f"{mutant.id}: {mutant.file}:{mutant.line}: {' '.join(mutant.reached) or 'nothing'}")
    results.save(ROOT)


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawn = commands.add_parser("draw")
    drawn.add_argument("--seed", type=int, required=True, help="seed of the random numbers")
    drawn.add_argument("--count", type=int, default=40, help="number of mutants (default 40)")
    for name in OUTCOMES:
        commands.add_parser(name).add_argument("--only", type=int, metavar="ID", help="one mutant")
    commands.add_parser("reach")
    equivalent = commands.add_parser("equivalent")
    equivalent.add_argument("id", type=int, help="number of the mutant")
    equivalent.add_argument("--why", required=True, help="reason why no test can kill the mutant")
    commands.add_parser("show").add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def main() -> int:
    """Run the command that the command line names."""
    asked = arguments()
    if asked.command == "draw":
        commit = git(ROOT, "rev-parse", "--short", "HEAD")
        results = Results(asked.seed, commit, draw(ROOT, asked.seed, asked.count))
        results.save(ROOT)
        return 0
    if asked.command == "reach":
        find_reached()
        return 0
    if asked.command in OUTCOMES:
        return run(asked.command, asked.only)
    results = load(ROOT)
    if asked.command == "equivalent":
        mutant = living(results, asked.id)
        print(describe(results.replace(ROOT, mutant, outcomes.EQUIVALENT, asked.why)))
    elif asked.json:
        print(json.dumps(counts(results), indent=1))
    else:
        show(results, Console(width=130))
    return 0


if __name__ == "__main__":
    sys.exit(main())
