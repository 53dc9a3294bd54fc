"""Wide & Deep (Cheng et al., arXiv 1606.07792), in a size that fits the Criteo data set."""

from __future__ import annotations

from slipstream.bench.models.layers import ModelLayer, ReplayModel, embedding, linear, table

CATEGORIES = 26
NUMBERS = 13
ROWS = 3_200_000


def wide_deep() -> ReplayModel:
    """Return Wide & Deep with 61.1 M parameters, nine tenths of them in embedding tables."""
    width, hidden, depth = 16, 1024, 7
    layers: list[ModelLayer] = [
        embedding("wide", [table("wide", (ROWS, 1), rows_per_sample=CATEGORIES)]),
        embedding("deep", [table("deep", (ROWS, width), rows_per_sample=CATEGORIES)]),
    ]
    features = NUMBERS + CATEGORIES * width
    for index in range(depth):
        layers.append(linear(f"hidden{index}", (features, hidden)))
        features = hidden
    layers.append(linear("score", (features, 1)))
    return ReplayModel(
        name="wide-deep",
        layers=tuple(layers),
        batch=16384,
        sample=f"a row of {CATEGORIES} categories and {NUMBERS} numbers",
    )
