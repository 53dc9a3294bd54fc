"""What a compilation looks for, and what it lets pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slipstream.infer.accuracy import Comparison
from slipstream.infer.engines.protocol import Recipe
from slipstream.infer.measure import MOST_ROUNDS

Target = Literal["latency", "throughput", "memory"]
TARGETS: tuple[Target, ...] = ("latency", "throughput", "memory")

FAITHFUL_DB = 60.0  # float32 that differs more computes something else: rounding leaves 90 and more
DEFAULT_DB = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is looked for.

    Args:
        target: latency: least time of one call; throughput: least time per call when as many run
            as there are threads; memory: least bytes of weights, then time.
        budget: percentage points of right answers that may be lost, where there are labels.
        snr_db: least signal to noise in dB, with the noise that samples of the kind have at most
            on average, as far as those that judge tell; default 20, or none where so many have
                labels that one of them is not more than the budget.
        seconds: that the search may take; what has begun is finished.
        most_rounds: rounds after which candidates are timed no further, 5 or more; default 200.
        threads: of every candidate.
        engines: names of those to try; default all whose results a package can hold.
        without: names of rewrites to leave out.
    """

    target: Target = "latency"
    budget: float = 0.3
    snr_db: float | None = None
    seconds: float = 300.0
    most_rounds: int = MOST_ROUNDS
    threads: int = 1
    engines: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def allowed(self, labelled: int) -> str:
        """The budget in words, for so many samples with labels."""
        least = self._least_db(labelled)
        if not labelled:
            return f"a signal to noise of {least:g} dB or more"
        lost = f"{self.budget:g} percentage points of top-1 lost"
        if least is None:
            return lost
        few = "" if self._tells(labelled) else f" ({labelled} labels cannot tell so little)"
        return f"{lost}{few}, and a signal to noise of {least:g} dB or more"

    def objection(self, recipe: Recipe, comparison: Comparison) -> str:
        """Why results are not good enough; "" where they are."""
        found, loss = comparison.snr_db, comparison.top1_loss
        if recipe.precision == "fp32" and found < FAITHFUL_DB:
            return f"its float32 is wrong: {found:.1f} dB, and rounding leaves {FAITHFUL_DB:g}"
        if loss is not None and loss > self.budget:
            return f"it loses {loss:.2f} points of top-1, and {self.budget:g} are allowed"
        least = self._least_db(comparison.labelled)
        sure = comparison.sure_db
        if least is not None and sure < least:
            other = f" (on other samples perhaps {sure:.1f})" if found >= least else ""
            return f"{found:.1f} dB{other}, and {least:g} is the least"
        return ""

    def _least_db(self, labelled: int) -> float | None:
        return DEFAULT_DB if self.snr_db is None and not self._tells(labelled) else self.snr_db

    def _tells(self, labelled: int) -> bool:
        """Whether one answer of so many is not more than the budget."""
        return labelled * self.budget >= 100
