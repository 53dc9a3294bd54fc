"""What a package promises of its accuracy, and on which samples that rests."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

from slipstream.infer.accuracy.accuracy import ENOUGH, EXACT, Comparison


class Accuracy(BaseModel):
    """How far results are from those of the imported model in float32, on the samples that were
    held out where there are any, else on those that judged.

    Args:
        snr_db: signal to noise in dB of the group of numbers where it is least, 200 where they are
            equal.
        sure_db: lower bound of it over all samples of the kind, with a confidence of 95 %; None
            where samples were too few or random.
        groups: dB of each output, or of each group of its channels where their sizes differ.
        agreement: percent of the answers that are the model's; None where no output answers.
        top1: percent of right answers; None without labels.
        reference_top1: the same of the model in float32.
        top1_loss: percentage points of right answers lost; None without labels.
        samples: number of inputs that this was measured on.
        labelled: labels among them.
        data: what they were, in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    snr_db: float
    sure_db: float | None = None
    groups: dict[str, float] = Field(default_factory=dict)
    agreement: float | None = None
    top1: float | None = None
    reference_top1: float | None = None
    top1_loss: float | None
    samples: int
    labelled: int
    data: str

    @property
    def words(self) -> str:
        """It, in a few words."""
        is_equal = self.snr_db >= EXACT
        found = ["equal to float32" if is_equal else f"{self.snr_db:.1f} dB of signal to noise"]
        if not is_equal and self.sure_db is not None and self.sure_db < EXACT:
            found[0] += f" ({self.sure_db:.1f} or more on others like them, 95 % sure)"
        if len(self.groups) > 1:
            each = ", ".join(f"{title} {_spelled(db)}" for title, db in self.groups.items())
            found.append(f"of each: {each}")
        if self.agreement is not None:
            found.append(f"{self.agreement:.4g} % of the answers are the model's")
        if self.top1 is not None and self.reference_top1 is not None:
            found.append(f"top-1 {self.top1:.2f} %, {self.reference_top1:.2f} % in float32")
        return "; ".join(found)


def accuracy_of(
    judged: Comparison, held_out: Comparison | None, calibrated: int, *, is_real: bool
) -> Accuracy:
    """What comparisons with the reference come to.

    Args:
        judged: differences on the samples that judged.
        held_out: differences on those that had no part in the choice; None where there were none.
        calibrated: number of others that calibrated bytes.
        is_real: they are real samples, no random numbers.
    """
    measured = judged if held_out is None else held_out
    both = judged if held_out is None else judged.together(held_out)
    return Accuracy(
        snr_db=measured.snr_db,
        sure_db=both.sure_db if is_real and both.samples >= ENOUGH else None,
        groups={title: powers.db for title, powers in measured.powers.items()},
        agreement=measured.agreement,
        top1=measured.top1,
        reference_top1=measured.reference_top1,
        top1_loss=measured.top1_loss,
        samples=measured.samples,
        labelled=measured.labelled,
        data=_data(judged, held_out, calibrated, is_real=is_real),
    )


def _data(
    judged: Comparison, held_out: Comparison | None, calibrated: int, *, is_real: bool
) -> str:
    if not is_real:
        return f"{judged.samples} random inputs, as there is no data"
    if held_out is None:
        return f"{_samples(judged)}, all of which judged"
    return f"{_samples(held_out)} held out; {judged.samples} others judged, {calibrated} calibrated"


def _samples(comparison: Comparison) -> str:
    labels = f" with {comparison.labelled} labels" if comparison.labelled else ""
    return f"{comparison.samples} sample{'' if comparison.samples == 1 else 's'}{labels}"


def _spelled(db: float) -> str:
    return "equal" if db >= EXACT else f"{db:.1f} dB"


def chance_note(comparison: Comparison) -> str:
    """A warning where the model itself is no better than chance, as where folders of images are
    not in the order of its classes; "" where it is better, and where there are no labels of two
    classes or more."""
    classes = len(comparison.classes)
    if classes < 2:
        return ""
    chance = 1 / classes
    expected = comparison.labelled * chance
    spread = math.sqrt(comparison.labelled * chance * (1 - chance))
    if comparison.reference_right > expected + 2 * spread:
        return ""
    return (
        f"the model in float32 is right in {comparison.reference_right} of {comparison.labelled},"
        f" and guessing among {classes} classes would be in {expected:.3g}: are the labels those of"
        " its classes?"
    )
