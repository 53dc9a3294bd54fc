"""What nodes cost, held against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.graph.analysis import analyse
from slipstream.infer.graph.graph import SLIPSTREAM, Graph, Node, Value

FLOAT = np.dtype(np.float32)


def graph(
    nodes: list[Node],
    outputs: list[str],
    shapes: dict[str, tuple[int, ...]],
    **constants: tuple[int, ...],
) -> Graph:
    values = {name: Value(FLOAT, shape) for name, shape in shapes.items()}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in constants.items()}
    inputs = {"x": values.pop("x")}
    return Graph(inputs=inputs, outputs=outputs, nodes=nodes, constants=arrays, values=values)


@pytest.mark.parametrize(
    ("node", "x", "weights", "y", "flops"),
    [
        (Node("Conv", ["x", "w"], ["y"]), (1, 8, 10, 10), (16, 8, 3, 3), (1, 16, 8, 8), 147456),
        # Depthwise: each channel's window is its own.
        (
            Node("Conv", ["x", "w"], ["y"], {"group": 8}),
            *((1, 8, 10, 10), (8, 1, 3, 3), (1, 8, 8, 8)),
            2 * 8 * 64 * 9,
        ),
        (
            Node("ConvTranspose", ["x", "w"], ["y"], {"strides": [2, 2]}),
            *((1, 8, 5, 5), (8, 4, 2, 2), (1, 4, 10, 10)),
            2 * 25 * 8 * 4 * 4,
        ),
        (Node("MatMul", ["x", "w"], ["y"]), (2, 3, 4), (4, 5), (2, 3, 5), 2 * 2 * 3 * 4 * 5),
        (Node("Gemm", ["x", "w"], ["y"], {"transA": 1}), (4, 3), (4, 5), (3, 5), 2 * 3 * 4 * 5),
        (
            Node("Attention", ["x", "x", "x"], ["y"], {"heads": 2}, domain=SLIPSTREAM),
            *((1, 6, 32), (1,), (1, 6, 32)),
            # Scores and their mean of values, 6 x 6 of 16 numbers for each of 2 heads.
            2 * (2 * 6 * 6 * 16) * 2,
        ),
    ],
)
def test_products_count_two_operations_for_each_pair(
    node: Node,
    x: tuple[int, ...],
    weights: tuple[int, ...],
    y: tuple[int, ...],
    flops: int,
):
    found = analyse(graph([node], ["y"], {"x": x, "y": y}, w=weights))
    assert found.flops == flops
    (cost,) = found.nodes
    assert cost.is_product
    assert cost.bytes_written == 4 * np.prod(y)


def test_bytes_and_intensity_are_of_what_is_read_and_written_once():
    node = Node("Mul", ["x", "x"], ["y"])
    found = analyse(graph([node], ["y"], {"x": (1, 100), "y": (1, 100)}))
    (cost,) = found.nodes
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (100, 400, 400)
    assert cost.intensity == 100 / 800
    assert not cost.is_product
    assert (found.flops, found.bytes_moved, found.intensity) == (0, 800, 0.0)


def test_moves_compute_nothing_and_unknown_shapes_count_as_nothing():
    nodes = [Node("Transpose", ["x"], ["y"]), Node("Relu", ["y"], ["z"])]
    found = analyse(graph(nodes, ["z"], {"x": (2, 3), "y": (3, 2)}))
    assert [cost.flops for cost in found.nodes] == [0, 0]


def test_dead_and_duplicate_nodes_are_named():
    nodes = [
        Node("Relu", ["x"], ["a"]),
        Node("Relu", ["x"], ["b"]),  # as a
        Node("LeakyRelu", ["x"], ["c"], {"alpha": 0.1}),
        Node("LeakyRelu", ["x"], ["d"], {"alpha": 0.2}),
        Node("Neg", ["a"], ["e"]),
        Node("Neg", ["b"], ["f"]),  # as e, since b is as a
        Node("Exp", ["x"], ["unread"]),
        Node("Log", ["unread"], ["unread, too"]),
        Node("Sum", ["c", "d", "e", "f"], ["y"]),
    ]
    found = analyse(graph(nodes, ["y"], {"x": (4,), "y": (4,)}))
    assert found.duplicates == ("b", "f")
    assert found.dead == ("unread", "unread, too")
