"""Importer of PyTorch modules and exported programs, through torch.onnx.

Both exporters of torch.onnx are tried: the older exporter, based on TorchScript, and the newer
exporter, based on torch.export. The results of the exported graph are compared with the module's
own results.
"""

# The types of torch are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportDeprecated=false

from __future__ import annotations

import inspect
import io
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines.onnxruntime import graph_session
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.importers.external_data import read_with_external
from slipstream.infer.importers.onnx_models import graph_of
from slipstream.infer.importers.shapes import Shapes
from slipstream.infer.importers.user_errors import called
from slipstream.infer.machine import LARGE_BYTES

OPSET = 17
T = TypeVar("T")
Read: TypeAlias = "tuple[onnx.ModelProto, dict[str, Array]]"  # a model and its large constants
# Lowest signal-to-noise ratio of a faithful export in dB. Rounding alone leaves 100 dB and more.
LEAST_DB = 60.0


@dataclass(frozen=True)
class Exported:
    """A PyTorch module and the graph that was exported from it.

    Args:
        graph: Graph whose inputs have the names of the module's arguments.
        module: Module that takes tensors: the graph's inputs, in the graph's order.
        snr_db: Signal-to-noise ratio, in dB, of the graph's results compared with the module's
            results.
    """

    graph: Graph
    module: Any
    snr_db: float


def is_torch(source: object) -> bool:
    """Return whether the object is a module or an exported program, without importing torch."""
    return any(
        f"{kind.__module__}.{kind.__qualname__}"
        in ("torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram")
        for kind in type(source).__mro__
    )


def read_program(path: Path) -> Any:
    """Load the exported program of a .pt2 file; raise UsageError if this fails."""
    import torch

    try:
        return torch.export.load(str(path))
    except Exception as error:  # errors of torch, zip and pickle, of many classes
        raise UsageError(f"{path}: torch.export.load cannot read it: {error}") from error


def export(
    source: Any, example_inputs: object, shapes: Shapes, large_bytes: int = LARGE_BYTES
) -> Exported:
    """Return the graph of a module or exported program.

    Args:
        source: A torch.nn.Module, which is put into eval mode, or a torch.export.ExportedProgram.
        example_inputs: Array or tensor; or several of them, as a sequence or as a dictionary by
            argument name. If `example_inputs` is None, the exported program's own example inputs
            are used. If it has none, random numbers are used.
        shapes: Shapes of the random inputs, by argument name.
        large_bytes: Threshold in bytes for the total size of a module's parameters (default 1 GiB).
            If a module's parameters have at least `large_bytes` together, the exporter based on
            torch.export is tried first, because it does not copy parameters.

    Raises:
        UsageError: If there is no example, if both exporters fail (the message lists every operator
            without a counterpart in ONNX), or if results of the graph and the module differ.
    """
    import torch

    is_program = isinstance(source, torch.export.ExportedProgram)
    program: Any = source if is_program else None
    module: Any = program.module() if is_program else source.eval()
    names = _arguments(module, program, example_inputs)
    tensors = _tensors(names, example_inputs, shapes, program)
    with torch.no_grad():
        results = called(f"the module {type(source).__name__}", lambda: module(*tensors.values()))
    outputs = _output_names(results)
    is_large = sum(item.nbytes for item in module.parameters()) >= large_bytes
    model, large = _exported(
        module, program, tuple(tensors.values()), list(tensors), outputs, is_large=is_large
    )
    graph = graph_of(model, large, f"the export of {type(source).__name__}")
    snr_db = _compared(graph, tensors, results)
    return Exported(graph, module, snr_db)


# ---- arguments ---------------------------------------------------------------------------------


def _arguments(module: Any, program: Any, example: object) -> list[str]:
    """Return the names of the inputs; the names of arguments in `*args` are numbered."""
    if program is not None:
        return list(program.graph_signature.user_inputs)
    names: list[str] = []
    for item in inspect.signature(module.forward).parameters.values():
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD):
            names.append(item.name)
        elif item.kind == item.VAR_POSITIONAL and isinstance(example, (tuple, list)):
            names += [f"{item.name}_{number}" for number in range(len(example) - len(names))]
    return names


def _tensors(names: Sequence[str], example: object, shapes: Shapes, program: Any) -> dict[str, Any]:
    """Return the tensors of the example inputs, by argument name."""
    import torch

    if example is None and program is not None and program.example_inputs is not None:
        example = program.example_inputs[0]
    if isinstance(example, Mapping):
        example_by_name: dict[str, Any] = {str(name): item for name, item in example.items()}
    elif isinstance(example, (tuple, list)):
        example_by_name = dict(zip(names, example, strict=False))
    elif example is not None:
        example_by_name = dict(zip(names, [example], strict=False))
    else:
        random = torch.Generator().manual_seed(0)
        example_by_name = {
            name: torch.randn(shape, generator=random) for name, shape in shapes.items()
        }
    unknown = sorted(example_by_name.keys() - set(names))
    if not example_by_name or unknown:
        what = f"there is no argument {', '.join(unknown)}" if unknown else "none is given"
        raise UsageError(
            f"a PyTorch module needs an example of its inputs, but {what}; the arguments are"
            f" {', '.join(names)}: pass example_inputs, let the factory return (module, inputs),"
            " or add --shape NAME=1,3,224,224 for float32"
        )
    return {
        name: torch.as_tensor(example_by_name[name]) for name in names if name in example_by_name
    }


def _flat(result: Any) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    items = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(items) == 1:
        return {"output": items[0]}
    return {f"output_{number}": item for number, item in enumerate(items)}


def _output_names(result: Any) -> list[str]:
    import torch

    flat = _flat(result)
    if not flat or not all(isinstance(item, torch.Tensor) for item in flat.values()):
        kinds = ", ".join(type(item).__name__ for item in flat.values())
        raise UsageError(
            f"the module returns {kinds or 'nothing'}; allowed: a tensor, or a tuple, list or"
            " dictionary of tensors; wrap the module in one that returns these"
        )
    return list(flat)


# ---- the two exporters -------------------------------------------------------------------------


def _exported(
    module: Any,
    program: Any,
    tensors: tuple[Any, ...],
    inputs: list[str],
    outputs: list[str],
    *,
    is_large: bool,
) -> Read:
    def by_script() -> Read:
        return _by_script(module, tensors, inputs, outputs), {}

    def by_program() -> Read:
        return _by_program(program or module, tensors, inputs, outputs)

    is_program_first = is_large or program is not None
    exporters = [by_program, by_script] if is_program_first else [by_script, by_program]
    reasons: list[str] = []
    for exporter in exporters:
        try:
            return _quietly(exporter)
        # Exporters run code of the module, so they may raise errors of any class.
        except Exception as error:  # noqa: BLE001
            reasons.append(_first_line(error))
    missing = _missing_operators(module, tensors)
    if missing:
        raise UsageError(
            f"these operators of the module have no counterpart in ONNX: {', '.join(missing)}"
        )
    raise UsageError(f"torch.onnx cannot export the module: {'; then: '.join(reasons)}")


def _by_script(
    module: Any, tensors: tuple[Any, ...], inputs: list[str], outputs: list[str]
) -> onnx.ModelProto:
    import torch

    file: Any = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(
            module,
            tensors,
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=inputs,
            output_names=outputs,
        )
    return onnx.load_model_from_string(file.getvalue())


def _by_program(
    program: Any, tensors: tuple[Any, ...], inputs: list[str], outputs: list[str]
) -> Read:
    """Export a program through a temporary file.

    Large constants stay mapped into memory, so they can be read after the file is deleted.
    """
    import torch

    exported = torch.onnx.export(
        program, tensors, dynamo=True, verbose=False, input_names=inputs, output_names=outputs
    )
    assert exported is not None
    with tempfile.TemporaryDirectory(prefix="slipstream-export-") as folder:
        path = Path(folder, "model.onnx")
        exported.save(path, external_data=True)
        for value in exported.model.graph.initializers.values():
            value.const_value = None  # torch.onnx keeps the graph alive, and with it the weights
        return read_with_external(path)


def _quietly(exporter: Callable[[], T]) -> T:
    """Call an exporter; suppress its output and its warnings, but let its exceptions pass."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return exporter()
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message that is not blank, without terminal colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _missing_operators(module: Any, tensors: tuple[Any, ...]) -> list[str]:
    """Return the operators of a module that the TorchScript exporter does not support.

    Return [] if torch does not report such operators.
    """
    try:
        from torch.onnx._internal.torchscript_exporter.utils import unconvertible_ops

        _, missing = _quietly(lambda: unconvertible_ops(module, tensors, opset_version=OPSET))
    # The function is private to torch and may change; it only improves a message.
    except Exception:  # noqa: BLE001
        return []
    return sorted(set(map(str, missing)))


# ---- the proof ---------------------------------------------------------------------------------


def _compared(graph: Graph, tensors: Mapping[str, Any], result: Any) -> float:
    """Return the signal-to-noise ratio, in dB, of a graph's results against the module's results.

    Raises:
        UsageError: If the ratio is too low, or if the graph cannot be run.
    """
    inputs = {name: np.asarray(item.numpy(), order="C") for name, item in tensors.items()}
    expected: dict[str, Array] = {
        name: item.detach().numpy()
        for name, item in zip(graph.outputs, _flat(result).values(), strict=True)
    }
    try:
        session = graph_session(graph, 1)
        results = session.run(inputs)
    except (UnsupportedError, RuntimeError) as error:
        raise UsageError(f"the graph that torch.onnx exported cannot be run: {error}") from error
    comparison = Comparison()
    comparison.add(results, expected)
    if comparison.snr_db < LEAST_DB:
        raise UsageError(
            "the graph that torch.onnx exported computes something else than the module: the"
            f" signal-to-noise ratio is {comparison.snr_db:.0f} dB; allowed: {LEAST_DB:.0f} and"
            " more; a module must not draw random numbers or branch on its inputs"
        )
    return comparison.snr_db
