"""PyTorch modules and exported programs, through torch.onnx.

Both of its exporters are tried: the one that follows TorchScript, and the one that follows
torch.export. What comes out is compared with what the module itself computes.
"""

# The types of torch are open in places.
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
Read: TypeAlias = "tuple[onnx.ModelProto, dict[str, Array]]"  # a model, and constants beside it
LEAST_DB = 60.0  # signal to noise of a faithful export: rounding alone leaves 100 and more


@dataclass(frozen=True)
class Exported:
    """A module and its graph.

    Args:
        graph: inputs have the names of the module's arguments.
        module: takes the graph's inputs in their order, as tensors.
        snr_db: Signal-to-noise ratio in dB of the graph's results against the module's.
    """

    graph: Graph
    module: Any
    snr_db: float


def is_torch(source: object) -> bool:
    """Tell whether the object is a module or an exported program; import nothing."""
    return any(
        f"{kind.__module__}.{kind.__qualname__}"
        in ("torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram")
        for kind in type(source).__mro__
    )


def read_program(path: Path) -> Any:
    """Load the exported program of a .pt2 file; UsageError if the file is none."""
    import torch

    try:
        return torch.export.load(str(path))
    except Exception as error:  # torch has many, and those of zip and pickle
        raise UsageError(f"{path}: torch.export.load cannot read it: {error}") from error


def export(
    source: Any, example_inputs: object, shapes: Shapes, large_bytes: int = LARGE_BYTES
) -> Exported:
    """Return the graph of a module or exported program.

    Args:
        source: torch.nn.Module, put into eval mode; or torch.export.ExportedProgram.
        example_inputs: an array or tensor, a sequence of them, or a dictionary by argument. Left
            out (None): random numbers of `shapes`, or those of the exported program.
        shapes: Shapes, by argument, of arguments that have no example.
        large_bytes: size of a module's parameters from which the exporter of torch.export, which
            copies none of them, has the first turn; default 1 GiB.

    Raises UsageError where there is no example, where both exporters fail (every operator that has
    no counterpart in ONNX is named), and where the graph computes something else.
    """
    import torch

    is_program = isinstance(source, torch.export.ExportedProgram)
    program: Any = source if is_program else None
    module: Any = program.module() if is_program else source.eval()
    names = _arguments(module, program, example_inputs)
    tensors = _tensors(names, example_inputs, shapes, program)
    with torch.no_grad():
        found = called(f"the module {type(source).__name__}", lambda: module(*tensors.values()))
    outputs = _output_names(found)
    is_large = sum(item.nbytes for item in module.parameters()) >= large_bytes
    model, large = _exported(
        module, program, tuple(tensors.values()), list(tensors), outputs, is_large=is_large
    )
    graph = graph_of(model, large, f"the export of {type(source).__name__}")
    snr_db = _compared(graph, tensors, found)
    return Exported(graph, module, snr_db)


# ---- arguments ---------------------------------------------------------------------------------


def _arguments(module: Any, program: Any, example: object) -> list[str]:
    """Names of the inputs; those of `*args` are numbered, as many as the example has."""
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
    """Return the example's tensors by argument."""
    import torch

    if example is None and program is not None and program.example_inputs is not None:
        example = program.example_inputs[0]
    if isinstance(example, Mapping):
        given: dict[str, Any] = {str(name): item for name, item in example.items()}
    elif isinstance(example, (tuple, list)):
        given = dict(zip(names, example, strict=False))
    elif example is not None:
        given = dict(zip(names, [example], strict=False))
    else:
        random = torch.Generator().manual_seed(0)
        given = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    strange = sorted(given.keys() - set(names))
    if not given or strange:
        what = f"there is no argument {', '.join(strange)}" if strange else "there is none"
        raise UsageError(
            f"a PyTorch module needs an example of its inputs, and {what}; the arguments are"
            f" {', '.join(names)}: pass example_inputs, let the factory return (module, inputs),"
            " or say --shape NAME=1,3,224,224 for float32"
        )
    return {name: torch.as_tensor(given[name]) for name in names if name in given}


def _flat(found: Any) -> dict[str, Any]:
    if isinstance(found, Mapping):
        return dict(found)
    several = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(several) == 1:
        return {"output": several[0]}
    return {f"output_{number}": item for number, item in enumerate(several)}


def _output_names(found: Any) -> list[str]:
    import torch

    flat = _flat(found)
    if not flat or not all(isinstance(item, torch.Tensor) for item in flat.values()):
        kinds = ", ".join(type(item).__name__ for item in flat.values())
        raise UsageError(
            f"the module returns {kinds or 'nothing'}; what can be compiled returns a tensor, or a"
            " tuple, list or dictionary of tensors: wrap it in a module that does"
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
    ways = [by_program, by_script] if is_program_first else [by_script, by_program]
    troubles: list[str] = []
    for way in ways:
        try:
            return _quietly(way)
        # Both exporters raise whatever the module makes them raise.
        except Exception as error:  # noqa: BLE001
            troubles.append(_trouble(error))
    missing = _missing_operators(module, tensors)
    if missing:
        raise UsageError(f"ONNX has nothing for the operators {', '.join(missing)} of the module")
    raise UsageError(f"torch.onnx cannot export the module: {'; then: '.join(troubles)}")


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
    """Through a file, from which large constants are mapped: it is gone when they are."""
    import torch

    exported = torch.onnx.export(
        program, tensors, dynamo=True, verbose=False, input_names=inputs, output_names=outputs
    )
    assert exported is not None
    with tempfile.TemporaryDirectory(prefix="slipstream-export-") as folder:
        path = Path(folder, "model.onnx")
        exported.save(path, external_data=True)
        for value in exported.model.graph.initializers.values():
            value.const_value = None  # torch.onnx goes on holding the graph, and so the weights
        return read_with_external(path)


def _quietly(way: Callable[[], T]) -> T:
    """Call an exporter without what it prints and warns of: its errors are exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return way()
    finally:
        logging.disable(before)


def _trouble(error: Exception) -> str:
    """The first line of an error that says something, without the terminal's colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _missing_operators(module: Any, tensors: tuple[Any, ...]) -> list[str]:
    """Operators that the exporter of TorchScript does not know; empty where it cannot tell."""
    try:
        from torch.onnx._internal.torchscript_exporter.utils import unconvertible_ops

        _, missing = _quietly(lambda: unconvertible_ops(module, tensors, opset_version=OPSET))
    # It is private to torch, and makes a message better.
    except Exception:  # noqa: BLE001
        return []
    return sorted(set(map(str, missing)))


# ---- the proof ---------------------------------------------------------------------------------


def _compared(graph: Graph, tensors: Mapping[str, Any], found: Any) -> float:
    """Signal to noise of the export's results; UsageError where it is no faithful one."""
    inputs = {name: np.asarray(item.numpy(), order="C") for name, item in tensors.items()}
    right: dict[str, Array] = {
        name: item.detach().numpy()
        for name, item in zip(graph.outputs, _flat(found).values(), strict=True)
    }
    try:
        session = graph_session(graph, 1)
        results = session.run(inputs)
    except (UnsupportedError, RuntimeError) as error:
        raise UsageError(f"what torch.onnx exported cannot be run: {error}") from error
    comparison = Comparison()
    comparison.add(results, right)
    if comparison.snr_db < LEAST_DB:
        raise UsageError(
            "what torch.onnx exported computes something else than the module: signal to noise is"
            f" {comparison.snr_db:.0f} dB, and {LEAST_DB:.0f} is the least; does the module draw"
            " random numbers, or take another way for other inputs?"
        )
    return comparison.snr_db
