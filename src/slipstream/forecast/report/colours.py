"""Colours that readers can tell apart on light and on dark pages."""

from __future__ import annotations

BLUE, ORANGE, GREEN, PINK, VIOLET = "#3b82d6", "#d9730d", "#2f9e63", "#c74b9b", "#8a63d2"
GOLD, TEAL, RED, GREY, OLIVE = "#b8860b", "#2a9da8", "#d64545", "#7a8794", "#6f8f2f"
ALL = (BLUE, ORANGE, GREEN, PINK, VIOLET, GOLD, TEAL, RED, OLIVE, GREY)

# Colours of the usual kinds of spans; other kinds get colours that are not used here.
SPANS = {
    "forward": BLUE,
    "backward": TEAL,
    "several": OLIVE,
    "all-reduce": ORANGE,
    "all-gather": VIOLET,
    "reduce-scatter": PINK,
    "send": GOLD,
    "update": GREY,
}
PARTS = (BLUE, TEAL, VIOLET, GOLD, ORANGE, GREEN, GREY, PINK)
USES = (BLUE, ORANGE, GREEN, TEAL, GOLD, VIOLET, GREY)


def of_spans(kinds: list[str]) -> list[str]:
    """Return a colour for each kind of task in a timeline chart.

    Args:
        kinds: Names of all kinds of tasks in the chart, such as "forward".
    """
    spare = [colour for colour in ALL if colour not in SPANS.values()]
    strange = [kind for kind in kinds if kind not in SPANS]
    return [SPANS.get(kind) or spare[strange.index(kind) % len(spare)] for kind in kinds]
