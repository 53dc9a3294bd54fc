"""If nodes with a constant condition are replaced by the nodes of the selected branch."""

# The stubs of onnx do not state all types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnx import GraphProto

from slipstream.infer.graph.graph import Node, Subgraph
from slipstream.infer.graph.onnx_file import read_nodes
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite


def _take(editor: Editor, node: Node) -> Replacement:
    condition = editor.constant(node.inputs[0])
    if condition is None or condition.size != 1:
        return None
    selected = node.get("then_branch" if condition.all() else "else_branch")
    branch = GraphProto.FromString(selected.data)
    nodes, constants = read_nodes(branch)
    defined = [*constants, *(output for inner in nodes for output in inner.outputs if output)]
    names = {name: editor.name(name) for name in defined}
    if any(_reads_inside(inner, names) for inner in nodes):
        return None
    for name, array in constants.items():
        editor.graph.constants[names[name]] = array
    results = [
        Node("Identity", [names.get(item.name, item.name)], [output])
        for item, output in zip(branch.output, node.outputs, strict=True)
        if output
    ]
    return [*(_renamed(inner, names) for inner in nodes), *results]


def _reads_inside(node: Node, names: Mapping[str, str]) -> bool:
    """Return whether a subgraph of the node reads a value that gets a new name in `names`."""
    renamed = {old for old, new in names.items() if old != new}
    return any(
        isinstance(attribute, Subgraph) and not renamed.isdisjoint(attribute.reads)
        for attribute in node.attributes.values()
    )


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    return replace(
        node,
        inputs=[names.get(name, name) for name in node.inputs],
        outputs=[names.get(name, name) for name in node.outputs],
    )


REWRITES = (
    rewrite(
        "branches",
        "an If with a constant condition is replaced by the selected branch",
        _take,
        "If",
    ),
)
