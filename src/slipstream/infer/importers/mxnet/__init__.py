"""Importer of MXNet. NAME-symbol.json has the nodes, and NAME-0000.params has the arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.importers.builder import Builder, refuse_all
from slipstream.infer.importers.mxnet import arrange, pointwise, products, reduce, windows
from slipstream.infer.importers.mxnet.params import read_params
from slipstream.infer.importers.mxnet.symbol import VARIABLE, Symbol, SymbolOptions, read_symbol

Convert = Callable[[Builder, SymbolOptions, list[str]], "str | list[str]"]

OPERATORS: dict[str, Convert] = {
    **products.OPERATORS,
    **windows.OPERATORS,
    **pointwise.OPERATORS,
    **arrange.OPERATORS,
    **reduce.OPERATORS,
}
INTEGERS = {"3": np.uint8, "4": np.int32, "5": np.int8, "6": np.int64}  # by their __dtype__


@np.errstate(all="ignore")  # numbers in files may be infinite or NaN
def read_mxnet(
    path: Path, params: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph of a network, and notes for the user.

    Args:
        path: Network file, NAME-symbol.json.
        params: Weight file, NAME-0000.params.
        shapes: Shapes by name, for inputs whose shape the network file does not give. The network's
            inputs are the variables that have no array in the weight file.

    Raises:
        UsageError: If a file cannot be read, if operators are not supported (the message lists all
            of them), or if arrays or shapes do not fit.
    """
    symbol = read_symbol(path)
    arrays = read_params(params)
    operators = [node.op for node in symbol.nodes.values() if node.op != VARIABLE]
    refuse_all(str(path), operators, list(OPERATORS))
    builder = Builder(path.name.removesuffix("-symbol.json"))
    values = _variables(builder, symbol, arrays, shapes, str(path))
    for number, node in symbol.nodes.items():
        if node.op == VARIABLE:
            continue
        builder.where = node.options.where
        inputs = [_output(values, entry, builder.where) for entry in node.inputs]
        try:
            names = OPERATORS[node.op](builder, node.options, inputs)
        except (IndexError, ValueError) as error:
            raise UsageError(f"{builder.where}: its inputs do not fit: {error}") from error
        values[number] = [names] if isinstance(names, str) else names
    notes = ("16-bit floats are computed in float32",) if _has_halves(arrays) else ()
    return builder.finish(_outputs(symbol, values)), notes


def _output(values: Mapping[int, list[str]], entry: tuple[int, int], where: str) -> str:
    number, output = entry
    if output >= len(values[number]):
        raise UsageError(
            f"{where}: it reads output {output} of a node of which only the first"
            f" {len(values[number])} outputs are imported"
        )
    return values[number][output]


def _outputs(symbol: Symbol, values: Mapping[int, list[str]]) -> dict[str, str]:
    """Return the names of the output values; the key is the name that MXNet gives to the output.

    MXNet calls the output of a node `NODE_output`. If a node has several outputs, a number follows
    this name.
    """
    outputs: dict[str, str] = {}
    for (number, output), name in zip(symbol.heads, symbol.names, strict=True):
        has_several = len(values[number]) > 1
        title = f"{name}_output{output if has_several else ''}"
        outputs[title] = _output(values, (number, output), name)
    return outputs


def _variables(
    builder: Builder,
    symbol: Symbol,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    where: str,
) -> dict[int, list[str]]:
    variables = {number: node for number, node in symbol.nodes.items() if node.op == VARIABLE}
    inputs = [node.name for node in variables.values() if node.name not in arrays]
    unknown = sorted(shapes.keys() - set(inputs))
    if unknown:
        raise UsageError(f"{where}: no input {', '.join(unknown)}; it has {', '.join(inputs)}")
    values: dict[int, list[str]] = {}
    missing: list[str] = []
    for number, node in variables.items():
        builder.where = node.name
        if node.name in arrays:
            values[number] = [builder.constant("array", _plain(arrays[node.name]))]
            continue
        shape = shapes.get(node.name) or tuple(node.options.integers("__shape__"))
        if not shape or min(shape) < 1:
            missing.append(node.name)
        else:
            dtype = INTEGERS.get(node.options.text("__dtype__", ""), np.float32)
            values[number] = [builder.input(node.name, shape, dtype)]
    if missing:
        raise UsageError(
            f"{where}: neither an array nor a shape is known for {', '.join(missing)}; add --shape"
            f" {missing[0]}=1,3,224,224 for inputs, or name the .params file of this network"
        )
    return values


def _plain(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _has_halves(arrays: Mapping[str, Array]) -> bool:
    return any(array.dtype == np.float16 for array in arrays.values())
