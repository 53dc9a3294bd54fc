"""Constants that are mapped from a file: the system takes their memory back when it needs it."""

# NumPy's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
import tempfile
from dataclasses import replace

import numpy as np

from slipstream.infer.graph.graph import Graph

SMALL = 2**16  # bytes: less is not worth a mapping of its own
ALIGNMENT = 64


def spilled(graph: Graph, beside: Graph) -> Graph:
    """Return a graph whose constants are mapped from a file, but for those that another graph holds
    too, and small ones. The file is in the folder for temporary ones (`TMPDIR`), has no name, and
    is there as long as the arrays are."""
    held = {id(array) for array in beside.constants.values()}
    names = [
        name
        for name, array in graph.constants.items()
        if id(array) not in held and array.nbytes >= SMALL and array.dtype.kind in "fiub"
    ]
    constants = dict(graph.constants)
    with tempfile.TemporaryFile() as file:
        for name in names:
            array = np.asarray(graph.constants[name], order="C")
            place = file.seek(-(-file.seek(0, os.SEEK_END) // ALIGNMENT) * ALIGNMENT)
            file.write(array.reshape(-1).view(np.uint8).data)
            file.flush()
            constants[name] = np.asarray(np.memmap(file, array.dtype, "r", place, array.shape))
    return replace(graph, constants=constants)
