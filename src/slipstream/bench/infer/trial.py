"""Base of the measurement of one model: it makes files and runs the contenders' rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.prepare import SECONDS
from slipstream.bench.infer.processes import Contestant, ProcessError, run_to_end

Tell = Callable[[str], None]


@dataclass(kw_only=True)
class ModelTrial:
    """Measurement of one model; subclasses define the contenders.

    Args:
        model: Name of the model.
        folder: Path of the folder with the model's files.
        tell: Function that receives a line of progress about each step.
        notes: Sentences that say which contenders were left out, and why.
    """

    model: str
    folder: Path
    tell: Tell
    notes: list[str] = field(default_factory=list[str])

    def job(self, **fields: Any) -> InferJob:
        """Return instructions about the model; `fields` sets further fields of `InferJob`."""
        return InferJob(model=self.model, folder=str(self.folder), **fields)

    def has(self, file: str) -> bool:
        """Return whether a file is in the folder and complete."""
        return (self.folder / (file + SECONDS)).exists()

    def make(self, module: str, job: InferJob, cores: frozenset[int]) -> None:
        """Make the file that a job names: run a module of this benchmark in a separate process.

        Raises:
            ProcessError: the process failed.
        """
        self.tell(f"{self.model}: making {job.file}")
        run_to_end(module, job.as_text(), cores)

    def takes_part(self, title: str, obstacle: str, make: Callable[[], None]) -> bool:
        """Make a contender's file; return False and note the reason if the contender cannot run.

        Args:
            title: Readable name of the contender.
            obstacle: Reason why the contender cannot run; "" if it can.
            make: Function that makes the file.
        """
        if not obstacle:
            try:
                make()
            except ProcessError as error:
                obstacle = str(error)
        if obstacle:
            self.notes.append(f"{self.model}: {title} is left out: {obstacle}")
        return not obstacle

    def rounds(
        self, title: str, contestants: Sequence[Contestant], count: int, seconds: float
    ) -> dict[str, list[dict[str, Any]]]:
        """Let every contender run a turn in each round; every second round reverses the order.

        Args:
            title: Text with which the lines of progress begin.
            contestants: Processes of the contenders, which get the command `turn`.
            count: Number of rounds.
            seconds: Length of a turn in seconds.

        Returns:
            The answers of each contender to `turn`, by the contender's name.
        """
        answers: dict[str, list[dict[str, Any]]] = {}
        for number in range(count):
            self.tell(f"{title}: round {number + 1} of {count}")
            for contestant in contestants if number % 2 == 0 else contestants[::-1]:
                turns = answers.setdefault(contestant.job.contender, [])
                turns.append(contestant.ask(f"turn {seconds}"))
        return answers
