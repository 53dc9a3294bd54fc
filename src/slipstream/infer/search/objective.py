"""The objective of a compilation, and the accuracy that it requires."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from slipstream.errors import UsageError
from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison
from slipstream.infer.engines import ENGINES
from slipstream.infer.engines.gpu.cards import parse_device
from slipstream.infer.engines.protocol import FLOATS, Recipe
from slipstream.infer.machine import LARGE_BYTES
from slipstream.infer.measure import LEAST_ROUNDS, MOST_ROUNDS

Target = Literal["latency", "throughput", "memory"]
TARGETS: tuple[Target, ...] = ("latency", "throughput", "memory")

# Signal-to-noise ratio in dB below which float32 results count as wrong; rounding alone leaves 90
# dB and more.
FAITHFUL_DB = 60.0
DEFAULT_DB = 20.0  # least ratio without labels. Chosen by hand, not measured.
# Margin in dB that 16-bit floats need if there are too few samples for a confidence bound. Chosen
# by hand, not measured.
FLOATS_DB = 10.0
AGREEMENT = 95.0  # least percentage of equal answers. Chosen by hand, not measured.


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """The objective and the limits of a search.

    Args:
        target: Quantity to minimise (default "latency"). "latency" is the time of one call.
            "throughput" is the time per call if as many calls run at the same time as there are
            threads. "memory" is the size of the weights; the time decides between equal sizes.
        budget: Greatest loss of top-1 accuracy in percentage points, if samples have labels
            (default 0.3).
        snr_db: Least signal-to-noise ratio in dB that each output and each group of an output's
            channels must have. In int8, the lower 95 % confidence bound of the ratio for unseen
            samples must reach `snr_db`. The default is 20, but there is no limit if labels alone
            prove that the loss is within the budget.
        agreement: Percentage of predicted classes and integer outputs that must equal the model's
            own (default 95). The percentage applies if there are no labels, and an output gives
            classes or their probabilities.
        seconds: Time limit of the search in seconds (default 300). A step that has begun is
            finished even if the time is over.
        most_rounds: Greatest number of timing rounds per candidate, 5 or more (default 200).
        threads: Number of threads of every candidate (default 1).
        engines: Names of the engines to try (default: all engines for which a package can store a
            model).
        without: Names of the rewrites to leave out (default none).
        device: Devices whose engines are tried: "cpu", "cuda" for the first GPU, "cuda:1" for the
            second, or "auto" (the default) for the CPU and the first GPU.
        large_bytes: Threshold in bytes for the total size of the model's constants (default 1 GiB).
            If the model's constants have at least `large_bytes` together, only one candidate is in
            memory at a time. The search of such a large model takes less than twice the memory of
            the model.
    """

    target: Target = "latency"
    budget: float = 0.3
    snr_db: float | None = None
    agreement: float = AGREEMENT
    seconds: float = 300.0
    most_rounds: int = MOST_ROUNDS
    threads: int = 1
    engines: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    device: str = "auto"
    large_bytes: int = LARGE_BYTES

    def __post_init__(self) -> None:
        """Raise UsageError for a value that is not allowed."""
        if self.target not in TARGETS:
            raise UsageError(f"the target is {self.target!r}; allowed: {', '.join(TARGETS)}")
        parse_device(self.device)
        unknown = sorted(set(self.engines) - set(ENGINES))
        if unknown:
            raise UsageError(
                f"no engine is called {', '.join(unknown)}; allowed: {', '.join(ENGINES)}"
            )
        self._check_limits()

    def _check_limits(self) -> None:
        """Raise UsageError for a limit that is out of range or not finite."""
        limits = {"budget": self.budget, "snr": self.snr_db, "agreement": self.agreement}
        for name, limit in limits.items():
            if limit is not None and not math.isfinite(limit):
                raise UsageError(f"the {name} is {limit}; allowed: a number")
        if self.budget < 0:
            raise UsageError(f"the budget is {self.budget:g}; allowed: 0 and more")
        if not 0 <= self.agreement <= 100:
            raise UsageError(f"the agreement is {self.agreement:g} %; allowed: 0 to 100")
        if self.seconds <= 0:
            raise UsageError(f"seconds is {self.seconds:g}; allowed: more than 0")
        if self.threads < 1:
            raise UsageError(f"threads is {self.threads}; allowed: 1 and more")
        if self.most_rounds < LEAST_ROUNDS:
            raise UsageError(
                f"most_rounds is {self.most_rounds}; allowed: {LEAST_ROUNDS} and more,"
                " because fewer rounds have no quartiles"
            )

    def allowed(self, comparison: Comparison) -> str:
        """Return a phrase that states the accuracy that a candidate must reach."""
        least = f"a signal-to-noise ratio of {self._least_db:g} dB or more"
        if not comparison.labelled:
            same = f", and {self.agreement:g} % of the answers the same"
            return least + (same if comparison.answers else "")
        lost = f"{self.budget:g} percentage points of top-1 lost"
        if self.snr_db is not None or not self._is_sure(comparison):
            return f"{lost}, and {least}"
        return lost

    def objection(self, recipe: Recipe, comparison: Comparison) -> str:
        """Return why a candidate's results are not accurate enough, or "" if they are."""
        loss, same = comparison.top1_loss, comparison.agreement
        is_plain = recipe.precision == "fp32" and not recipe.parts
        if is_plain and comparison.snr_db < FAITHFUL_DB:
            ratio = _ratio(comparison)
            return f"its float32 is wrong: {ratio}, and rounding leaves {FAITHFUL_DB:g} dB or more"
        if loss is not None and loss > self.budget:
            return f"it loses {loss:.2f} points of top-1, and {self.budget:g} are allowed"
        if loss is None and same is not None and same < self.agreement:
            return (
                f"{same:.1f} % of its answers equal the model's, and {self.agreement:g} % are"
                " required"
            )
        if self.snr_db is None and self._is_sure(comparison):
            return ""
        return self._too_noisy(recipe, comparison)

    def is_hopeful(self, comparison: Comparison) -> bool:
        """Return whether a candidate may still prove accurate enough on more samples."""
        return bool(comparison.labelled) or comparison.snr_db >= self._least_db

    def refutes(self, recipe: Recipe, judged: Comparison, held_out: Comparison) -> str:
        """Return why held-out samples speak against a candidate, or "" if they do not.

        `judged` is a comparison in which the candidate was accurate enough.
        """
        both = judged.together(held_out)
        needs_ratio = self.snr_db is not None or not self._is_sure(both)
        if needs_ratio and held_out.snr_db < self._least_db:
            return f"{_ratio(held_out)}, and {self._least_db:g} dB are required"
        return self.objection(recipe, both)

    def _too_noisy(self, recipe: Recipe, comparison: Comparison) -> str:
        """Return the reason why a candidate's outputs are too noisy, or "" if they are not."""
        snr_db, least_db = comparison.snr_db, self._least_db
        if snr_db < least_db:
            return f"{_ratio(comparison)}, and {least_db:g} dB are required"
        if not has_bytes(recipe):
            return self._too_near(recipe, comparison)
        if comparison.samples < ENOUGH:
            return f"{comparison.samples} samples are too few to judge bytes; {ENOUGH} are required"
        bound_db = comparison.sure_db
        if bound_db < least_db:
            bound = f"on other samples perhaps {bound_db:.1f}"
            return f"{snr_db:.1f} dB ({bound}), and {least_db:g} dB are required"
        return ""

    def _too_near(self, recipe: Recipe, comparison: Comparison) -> str:
        """Return why the outputs of a floating-point recipe are too noisy, or "".

        The noise of floating point hardly depends on the inputs. So a ratio that exceeds the limit
        by FLOATS_DB is enough, even on few samples.
        """
        least = self._least_db + FLOATS_DB
        if recipe.precision == "fp32" or comparison.snr_db >= least:
            return ""
        if comparison.samples >= ENOUGH and comparison.sure_db >= self._least_db:
            return ""
        return f"{comparison.snr_db:.1f} dB, and {recipe.precision} requires {least:g} dB"

    def _is_sure(self, comparison: Comparison) -> bool:
        """Return whether labels alone prove that the loss is within the budget."""
        most = comparison.most_loss
        return most is not None and most <= self.budget

    @property
    def _least_db(self) -> float:
        return DEFAULT_DB if self.snr_db is None else self.snr_db


def _ratio(comparison: Comparison) -> str:
    """Return a phrase that states the signal-to-noise ratio of a comparison."""
    if not comparison.is_finite_alike:
        return "it has numbers where the model has NaN or infinity, or the reverse, so no dB"
    return f"{comparison.snr_db:.1f} dB"


def has_bytes(recipe: Recipe) -> bool:
    """Return whether a recipe computes in int8, whose noise differs from input to input."""
    return recipe.precision not in FLOATS or any(has_bytes(part.recipe) for part in recipe.parts)
