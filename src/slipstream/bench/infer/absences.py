"""Contenders of a benchmark that cannot run, or that fail, while the others go on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from slipstream.errors import SlipstreamError

LONGEST_REASON = 300  # greatest number of characters of an error of another program


class Absences:
    """The contenders that are left out of the measurement of one model.

    Args:
        model: Name of the model, with which each note begins.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self.notes: list[str] = []
        self.failures: list[str] = []

    @contextmanager
    def noted(self, contender: str) -> Generator[None]:
        """Note an error inside the `with` block, and go on behind the block.

        Errors of Slipstream say why a contender cannot run here. Other errors come from the
        contender's own engine, for example because it has too little memory; they are failures.
        """
        try:
            yield
        except SlipstreamError as error:
            self.notes.append(f"{self._model}: {contender} is left out: {error}")
        except Exception as error:  # noqa: BLE001  # engines raise errors of any class
            reason = f"{type(error).__name__}: {_first_line(error)}"
            note = f"{self._model}: {contender} is left out, because it failed: {reason}"
            self.notes.append(note)
            self.failures.append(note)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or ["no reason is given"])[0][:LONGEST_REASON]
