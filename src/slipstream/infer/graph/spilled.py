"""Map constants from a file, so that the operating system can reclaim their memory."""

# NumPy's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
import tempfile
from dataclasses import replace

import numpy as np

from slipstream.infer.graph.graph import Graph

SMALL = 2**16  # bytes; a smaller constant is not mapped. Chosen by hand, not measured.
ALIGNMENT = 64  # bytes


def spilled(graph: Graph, beside: Graph) -> Graph:
    """Return a graph whose constants are mapped from a file.

    Small constants, and constants whose arrays are also in the graph `beside`, stay in memory. The
    file is in the folder for temporary files (`TMPDIR`). The file has no name, and is deleted with
    the arrays.
    """
    shared = {id(array) for array in beside.constants.values()}
    names = [
        name
        for name, array in graph.constants.items()
        if id(array) not in shared and array.nbytes >= SMALL and array.dtype.kind in "fiub"
    ]
    constants = dict(graph.constants)
    with tempfile.TemporaryFile() as file:
        for name in names:
            array = np.asarray(graph.constants[name], order="C")
            offset = file.seek(-(-file.seek(0, os.SEEK_END) // ALIGNMENT) * ALIGNMENT)
            file.write(array.reshape(-1).view(np.uint8).data)
            file.flush()
            constants[name] = np.asarray(np.memmap(file, array.dtype, "r", offset, array.shape))
    return replace(graph, constants=constants)
