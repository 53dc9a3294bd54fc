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
        failures: Sentences of `notes` about contenders that failed, though they should run here.
    """

    model: str
    folder: Path
    tell: Tell
    notes: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])

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
                self.note_failure(title, error)
                return False
        if obstacle:
            self.notes.append(f"{self.model}: {title} is left out: {obstacle}")
        return not obstacle

    def note_failure(self, title: str, error: Exception) -> None:
        """Note that a contender failed, and is left out."""
        note = f"{self.model}: {title} is left out, because it failed: {error}"
        self.notes.append(note)
        self.failures.append(note)

    def drop(self, contestant: Contestant, error: ProcessError) -> None:
        """React to a contender that failed in its turn; this base class raises the error."""
        del contestant
        raise error

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
            The answers to `turn` by the contender's name, without contenders that were dropped.
        """
        answers: dict[str, list[dict[str, Any]]] = {each.job.contender: [] for each in contestants}
        left = list(contestants)
        for number in range(count):
            self.tell(f"{title}: round {number + 1} of {count}")
            for contestant in left[:: 1 if number % 2 == 0 else -1]:
                try:
                    answer = contestant.ask(f"turn {seconds}")
                except ProcessError as error:
                    self.drop(contestant, error)
                    left.remove(contestant)
                    del answers[contestant.job.contender]
                else:
                    answers[contestant.job.contender].append(answer)
        return answers
