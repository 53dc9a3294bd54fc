"""The forecast of a run beside what it took, in `slipstream cluster status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from slipstream.cli.cluster.plan import duration_words, interval_words

if TYPE_CHECKING:
    from slipstream.cluster.spec import ForecastPlan


def outcome_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return lines about what a run took, and about the forecast of its plan.

    Args:
        facts: Values of the record of the run.
    """
    from slipstream.cluster.control.written_back import TOOK_FACT, recorded_plan

    plan, took = recorded_plan(facts), facts.get(TOOK_FACT)
    if plan is not None:
        return list(_compared(plan, took))
    return [] if took is None else [f"training: {_took(took)}"]


def _compared(plan: ForecastPlan, took: Mapping[str, Any] | None) -> Iterator[str]:
    yield f"plan: {plan.model}, {plan.batch} samples a step, on {plan.hardware}"
    if took is None:
        total = "" if plan.seconds is None else f"{interval_words(plan.seconds)}, "
        yield f"forecast: {total}{interval_words(plan.seconds_per_step)} a step"
        return
    if plan.seconds is None:
        yield f"training: took {_took(took)}"
    else:
        forecast = duration_words(plan.seconds.value)
        off = _off(took["training_seconds"], plan.seconds.value)
        yield f"training: forecast {forecast}, took {_took(took)}, {off}"
    step = took["seconds_per_step"]
    if step is not None:
        forecast = plan.seconds_per_step.value
        by = "as the job reported" if took["source"] == "progress" else "start and end included"
        yield (
            f"step: forecast {duration_words(forecast)}, took {duration_words(step)} ({by}),"
            f" {_off(step, forecast)}"
        )
    if took["dollars"] is not None:
        if plan.dollars is None:
            yield f"cost: {took['dollars']:,.2f} $"
        else:
            off = _off(took["dollars"], plan.dollars.value)
            yield (
                f"cost: forecast {plan.dollars.value:,.2f} $, took {took['dollars']:,.2f} $, {off}"
            )


def _took(took: Mapping[str, Any]) -> str:
    hosts, attempts = took["hosts"], took["attempts"]
    where = f" on {', '.join(hosts)}" if len(hosts) <= 4 else f" on {len(hosts)} hosts"
    again = f" in {attempts} attempts" if attempts > 1 else ""
    return f"{duration_words(took['training_seconds'])}{again}{where}"


def _off(measured: float, forecast: float) -> str:
    return f"{measured / forecast - 1:+.0%}"
