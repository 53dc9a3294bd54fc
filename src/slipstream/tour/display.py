"""Display of the tour on a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.style import Style
from rich.table import Table
from rich.text import Text

from slipstream.forecast import Interval
from slipstream.forecast.report.terminal import duration, rounded, share
from slipstream.infer.package.report import Report
from slipstream.tour.results import Compared, Forecasts
from slipstream.tour.serving import Answered, Pixels
from slipstream.tour.training import Trained

NUM_STEPS = 4

_SHADES = " .:-=+*#%@"
_BAR_WIDTH = 24


class Terminal:
    """Display of the tour, with a progress bar for each step.

    Args:
        console: Console on which results are shown.
        bars: Console on which the progress bars are shown.
    """

    def __init__(self, console: Console, bars: Console) -> None:
        self._console = console
        self._begun = 0
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(_BAR_WIDTH),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=bars,
            transient=True,
            disable=not bars.is_terminal,
        )

    def begin(self, title: str) -> None:
        """Begin the next step."""
        self._begun += 1
        self._say(Text(f"\n{self._begun}/{NUM_STEPS}  {title}", style="bold"))

    def progress(self, what: str, share: float) -> None:
        """Move the progress bar."""
        if not self._bar.tasks:
            self._bar.add_task(what, total=1.0)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=what, completed=share)

    def forecast(self, forecasts: Forecasts) -> None:
        """Show the forecast of the training."""
        steps = forecasts.steps
        epochs = f"{forecasts.epochs} epoch{'s' if forecasts.epochs > 1 else ''}"
        self._say(
            f"{' '.join(_bounds(duration(steps.step)))} a step, limited by {steps.limit}:"
            f" {' '.join(_bounds(duration(forecasts.seconds(steps))))} for {epochs}."
            f" A rank without communication trains {forecasts.alone:,.0f} images per second."
        )

    def trained(self, forecasts: Forecasts, trained: Trained) -> None:
        """Show the results of the training next to the forecasts."""
        table = Table(title="Forecasts and measurements", title_justify="left")
        for name in ("", "from kernels", "error", "and from steps", "error", "measured"):
            style = "dim" if name == "error" else "bold" if name == "measured" else None
            table.add_column(name, justify="right" if name else "left", style=style)
        for quantity in forecasts.beside(trained):
            cells = [*_forecast(quantity, quantity.kernels), *_forecast(quantity, quantity.steps)]
            table.add_row(quantity.name, *cells, _number(quantity.unit, quantity.measured))
        self._say(table)
        self._say(
            f"{trained.accuracy:.2%} of the test images are classified correctly. The training took"
            f" {trained.whole_seconds:.0f} s with reading, tests and checkpoints."
        )

    def compiled(self, report: Report, package: Path) -> None:
        """Show the compiled model."""
        self._say(Text(report.choice, style="bold"))
        self._say(f"Judged on {report.data}; allowed: {report.allowed}.")
        self._say(f"{package}: {package.stat().st_size / 1e3:.0f} kB")

    def answered(self, answered: Answered) -> None:
        """Show the answers of the server."""
        classes = Table.grid(padding=(0, 1))
        classes.add_row(Text(f"a test image: {answered.label}", style="bold"))
        for name, probability in answered.likeliest:
            bar = "#" * round(_BAR_WIDTH * probability)
            classes.add_row(f"{name:<12} {probability:6.1%}  {bar}")
        table = Table.grid(padding=(0, 3))
        table.add_row(_image(answered.pixels, self._console.color_system), classes)
        self._say(table)
        self._say(
            f"{answered.right} of {answered.asked} images are classified correctly over REST, with"
            f" a median of {answered.middle_ms:.2f} ms from a request to its answer."
        )

    def end(self, package: Path, seconds: float) -> None:
        """Show the duration of the tour, and possible next steps for the user."""
        minutes, remainder = divmod(round(seconds), 60)
        self._say(f"\nThe tour took {minutes}:{remainder:02d}. Go on with:")
        self._say(f"slipstream serve {package}", soft_wrap=True)

    def close(self) -> None:
        """Remove the progress bar."""
        for task in self._bar.task_ids:
            self._bar.stop()
            self._bar.remove_task(task)

    def _say(self, what: Text | Table | str, *, soft_wrap: bool = False) -> None:
        self.close()
        self._console.print(what, markup=False, highlight=False, soft_wrap=soft_wrap)
        self._console.file.flush()


def _bounds(texts: tuple[str, str]) -> tuple[str, ...]:
    value, bounds = texts
    return (value, f"({bounds})") if bounds else (value,)


def _forecast(compared: Compared, interval: Interval) -> tuple[str, str]:
    """Return two texts: a forecast with its interval, and the forecast's relative error."""
    texts = {"s": duration, "": share, "1/s": rounded}[compared.unit](interval)
    if compared.unit:
        error = f"{interval.value / compared.measured - 1:+.1%}"
    else:
        error = f"{100 * (interval.value - compared.measured):+.0f} pt"
    return " ".join(_bounds(texts)), error


def _number(unit: str, value: float) -> str:
    if unit == "s":
        return f"{value:.1f} s" if value >= 1 else f"{1e3 * value:.1f} ms"
    return f"{value:,.0f}" if unit else f"{value:.0%}"


def _image(pixels: Pixels, colors: str | None) -> Text:
    """Return a grey image as text; each line shows two rows of pixels, as half blocks or ASCII."""
    text = Text()
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        for above, below in zip(upper, lower, strict=True):
            if colors is None:
                text.append(_SHADES[(above + below) * len(_SHADES) // 511])
            else:
                style = Style(color=_grey(above), bgcolor=_grey(below))
                text.append("▀", style)
        text.append("\n")
    text.right_crop(1)
    return text


def _grey(level: int) -> str:
    return "#" + 3 * f"{level:02x}"
