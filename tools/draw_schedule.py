"""Draw the learning rates for docs/horovod.md: python tools/draw_schedule.py > FILE.svg

The curves show slipstream.train.SmoothExponentialDecay.
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.train import SmoothExponentialDecay

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 28, 36, 44
STEPS, MOST = 4000, 16
CURVES = {1: "#7f8c8d", 4: "#2980b9", 16: "#c0392b"}
TEXT = "#7f8c8d"  # a grey that is readable on white and on black


def x_of(step: float) -> float:
    """Return the x coordinate of a step number."""
    return LEFT + (WIDTH - LEFT - RIGHT) * step / STEPS


def y_of(rate: float) -> float:
    """Return the y coordinate of a learning rate."""
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / MOST


def text(x: float, y: float, content: str, anchor: str = "middle", color: str = TEXT) -> str:
    """Return an SVG element with a label."""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}"'
        f' font-family="sans-serif" font-size="12">{content}</text>'
    )


def axes() -> Iterator[str]:
    """Yield the SVG elements of both axes, including numbers and titles."""
    for rate in (0, 4, 8, 12, 16):
        y = y_of(rate)
        yield f'<path d="M{LEFT} {y:g}H{WIDTH - RIGHT}" stroke="{TEXT}" stroke-opacity="0.3"/>'
        yield text(LEFT - 8, y + 4, str(rate), "end")
    for step in range(0, STEPS + 1, 1000):
        yield text(x_of(step), HEIGHT - BOTTOM + 18, str(step))
    yield text(x_of(STEPS / 2), HEIGHT - 6, "step")
    yield text(LEFT, TOP - 16, "times the rate of one rank", "start")


def curve(workers: int, color: str) -> Iterator[str]:
    """Yield two SVG elements: the curve for a number of workers, and its label."""
    rate = SmoothExponentialDecay(
        workers=workers, warmup_steps=500, decay_steps=1000, decay_rate=0.6
    )
    points = " ".join(f"{x_of(step):.1f},{y_of(rate(step)):.1f}" for step in range(0, STEPS, 20))
    yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>'
    name = "1 rank" if workers == 1 else f"{workers} ranks"
    yield text(x_of(1100), y_of(rate(1100)) - 6, name, "start", color)


def main() -> None:
    """Print the chart as SVG."""
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">')
    print("<title>Learning rate over steps for 1, 4 and 16 ranks</title>")
    for line in axes():
        print(line)
    for workers, color in CURVES.items():
        for line in curve(workers, color):
            print(line)
    print("</svg>")


if __name__ == "__main__":
    main()
