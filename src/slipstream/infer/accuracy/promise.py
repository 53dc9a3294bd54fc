"""The measured accuracy that a package states, and the samples of the measurement."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

from slipstream.infer.accuracy.accuracy import ENOUGH, EXACT, Comparison


class Accuracy(BaseModel):
    """The difference of a package's outputs from those of the imported model in float32.

    The difference is measured on the held-out samples if there are any, else on the judging samples
    (see `division`).

    Args:
        snr_db: Lowest signal-to-noise ratio in `groups`, in dB; 200 if all outputs are equal.
        sure_db: Lower 95 % confidence bound of `snr_db` for unseen samples; None if the samples
            were too few or random.
        groups: Signal-to-noise ratio in dB of each group of channels, by the title of the group.
            The channels of an output are one group, titled with the output's name, unless their
            magnitudes differ much.
        agreement: Percentage of predicted classes and integer outputs that equal the model's; None
            if no output has classes or integers.
        top1: Top-1 accuracy of the package in percent; None without labels.
        reference_top1: Top-1 accuracy of the model in float32 in percent; None without labels.
        top1_loss: Loss of top-1 accuracy in percentage points; None without labels.
        samples: Number of samples on which the difference was measured.
        labelled: Number of labels that these samples have.
        data: Description of the samples, for the report.
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
        """The accuracy in a few words."""
        is_equal = self.snr_db >= EXACT
        parts = ["equal to float32" if is_equal else f"{self.snr_db:.1f} dB signal-to-noise ratio"]
        if not is_equal and self.sure_db is not None and self.sure_db < EXACT:
            parts[0] += f" ({self.sure_db:.1f} or more on unseen samples, 95 % sure)"
        if len(self.groups) > 1:
            groups = ", ".join(f"{title} {_spelled(db)}" for title, db in self.groups.items())
            parts.append(f"by group: {groups}")
        if self.agreement is not None:
            parts.append(f"{self.agreement:.4g} % of the answers equal the model's")
        if self.top1 is not None and self.reference_top1 is not None:
            parts.append(f"top-1 {self.top1:.2f} %, {self.reference_top1:.2f} % in float32")
        return "; ".join(parts)


def accuracy_of(
    judged: Comparison, held_out: Comparison | None, calibrated: int, *, is_real: bool
) -> Accuracy:
    """Return the accuracy that a package states, from its comparisons with the reference.

    Args:
        judged: Comparison on the judging samples.
        held_out: Comparison on the held-out samples; None if no samples were held out.
        calibrated: Number of samples that were used for the calibration of int8.
        is_real: True if the samples are real, False if they are random numbers.
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
        return f"{judged.samples} random inputs, because there is no data"
    if held_out is None:
        return f"{_samples(judged)}, all of which judged"
    return f"{_samples(held_out)} held out; {judged.samples} others judged, {calibrated} calibrated"


def _samples(comparison: Comparison) -> str:
    labels = f" with {comparison.labelled} labels" if comparison.labelled else ""
    return f"{comparison.samples} sample{'' if comparison.samples == 1 else 's'}{labels}"


def _spelled(db: float) -> str:
    return "equal" if db >= EXACT else f"{db:.1f} dB"


def chance_note(comparison: Comparison) -> str:
    """Return a warning if the model itself is no better than chance, else "".

    A model seems no better than chance if, for example, the folders of images are not in the order
    of the model's classes. There is no warning if the samples have no labels, or labels of only one
    class.
    """
    classes = len(comparison.classes)
    if classes < 2:
        return ""
    chance = 1 / classes
    expected = comparison.labelled * chance
    spread = math.sqrt(comparison.labelled * chance * (1 - chance))
    if comparison.reference_right > expected + 2 * spread:
        return ""
    return (
        f"the model in float32 is right in {comparison.reference_right} of {comparison.labelled}"
        f" answers, and a guess among {classes} classes would be right in {expected:.3g}: check"
        " that the labels are the numbers of the model's classes"
    )
