"""`slipstream run --plan`: the plan of a forecast, and what the job takes from it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import stderr_console
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.spec import ForecastPlan, JobSpec
    from slipstream.cluster.spec.plan import PlanInterval

STANDARD_INPUT = "-"

_NAMES = {
    "cost_cap": "cost cap",
    "cloud.instance_type": "machines",
    "resources.gpus": "GPUs",
    "resources.gpu": "GPU",
}


def chosen_plan(file: str | None, choose: int | None) -> ForecastPlan | None:
    """Return the plan that the command line names, or None.

    Args:
        file: Value of --plan: a path, "-" for the standard input, or None.
        choose: Value of --choose, or None.

    Raises:
        UsageError: the plan cannot be used, or only --choose is given.
    """
    if file is None:
        if choose is not None:
            raise UsageError(f"--choose is {choose}, but no plan is given; say --plan FILE too")
        return None
    from slipstream.cluster.spec import read_plan, read_plan_file

    if file != STANDARD_INPUT:
        return read_plan_file(Path(file), choose or 1)
    if sys.stdin.isatty():
        raise UsageError(
            "--plan is -, and nothing is piped in; allowed: slipstream forecast MODEL --batch 64"
            " --json | slipstream run --plan - train.py"
        )
    plan = read_plan(sys.stdin.read(), "the plan on the standard input", choose or 1)
    _answer_at_the_terminal()
    return plan


def _answer_at_the_terminal() -> None:
    """Let questions be answered at the terminal, since the standard input was the plan."""
    if sys.stderr.isatty():
        with suppress(OSError):  # without a terminal, the question says that nobody can be asked
            sys.stdin = Path("/dev/tty").open(encoding="utf-8")  # noqa: SIM115 (until the end)


def show_plan(spec: JobSpec, plan: ForecastPlan) -> None:
    """Print on stderr what a job has from its plan, what it does not have, and the forecast.

    Args:
        spec: Description of the job, filled from the plan.
        plan: Plan of the job.
    """
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for title, text in _rows(spec, plan):
        table.add_row(title, text)
    stderr_console().print(table)


def plan_entry(spec: JobSpec, plan: ForecastPlan) -> dict[str, Any]:
    """Return the event about a plan, for programs.

    Args:
        spec: Description of the job, filled from the plan.
        plan: Plan of the job.
    """
    from slipstream.cluster.control.outcome import plan_differences
    from slipstream.cluster.spec.plan import plan_fields

    differences = plan_differences(spec, plan)
    return {
        "event": "plan",
        "plan": plan.model_dump(mode="json"),
        "fields": plan_fields(plan, spec.on),
        "differences": {
            name: {"plan": planned, "job": chosen}
            for name, (planned, chosen) in differences.items()
        },
    }


def _rows(spec: JobSpec, plan: ForecastPlan) -> Iterator[tuple[str, str]]:
    from slipstream.cluster.control.outcome import plan_differences
    from slipstream.cluster.spec.plan import flat_plan_fields

    differences = plan_differences(spec, plan)
    taken = flat_plan_fields(plan, spec.on)
    yield "plan", f"{plan.model}, {plan.batch} samples a step, on {plan.hardware}"
    named = [_words(name, value) for name, value in taken.items() if name not in differences]
    yield "from the plan", ", ".join(filter(None, named))
    if differences:
        kept = (
            f"{_words(name, chosen) or name} (the plan has {_value_words(name, planned)})"
            for name, (planned, chosen) in differences.items()
        )
        yield "from the job", "; ".join(kept)
    yield "forecast", _forecast_words(plan)
    if plan.memory_bytes.high > plan.device_bytes:
        yield "tight", "the upper bound of the memory is more than a device has"


def _words(name: str, value: object) -> str:
    """Return a field of a job with its value, or "" for one that says nothing."""
    if name.startswith("env."):
        return name.removeprefix("env.")
    if name == "cloud.spot":
        return "spot" if value else ""
    return f"{_NAMES.get(name, name)} {_value_words(name, value)}"


def _value_words(name: str, value: object) -> str:
    if isinstance(value, float) and name == "deadline":
        return duration_words(value)
    return f"{value:.2f} $" if name == "cost_cap" else str(value)


def _forecast_words(plan: ForecastPlan) -> str:
    parts = [f"{interval_words(plan.seconds_per_step)} a step"]
    if plan.seconds is not None:
        parts.insert(0, interval_words(plan.seconds))
    if plan.dollars is not None:
        parts.append(f"{plan.dollars.value:,.2f} $")
    earlier = plan.correction
    if earlier.observations:
        runs = f"{earlier.observations} earlier run{'s' * (earlier.observations > 1)}"
        parts.append(f"corrected by {runs}: seconds x {earlier.factor:.2f}")
    return ", ".join(parts)


def interval_words(interval: PlanInterval) -> str:
    """Return a duration with its interval, such as "1 h 10 min (55 min to 1 h 30 min)"."""
    low, high = duration_words(interval.low), duration_words(interval.high)
    return f"{duration_words(interval.value)} ({low} to {high})"


def duration_words(seconds: float) -> str:
    """Return a duration such as "1 h 10 min", "85 s" or "210 ms".

    Args:
        seconds: Duration in seconds.
    """
    if seconds < 1.0:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120.0:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60.0)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {rest} min" if rest else f"{hours} h"
