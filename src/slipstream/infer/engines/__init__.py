"""The engines that can run a graph, behind one protocol."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from slipstream.errors import UsageError
from slipstream.infer.engines.inductor import Inductor
from slipstream.infer.engines.native import Native
from slipstream.infer.engines.nvidia import CUDA, TENSORRT
from slipstream.infer.engines.onnxruntime import OnnxRuntime
from slipstream.infer.engines.openvino import OpenVino
from slipstream.infer.engines.protocol import FLOATS as FLOATS
from slipstream.infer.engines.protocol import PRECISIONS as PRECISIONS
from slipstream.infer.engines.protocol import Engine as Engine
from slipstream.infer.engines.protocol import Executable as Executable
from slipstream.infer.engines.protocol import Precision as Precision
from slipstream.infer.engines.protocol import Recipe as Recipe
from slipstream.infer.engines.protocol import Rounding as Rounding
from slipstream.infer.engines.split import Split
from slipstream.infer.machine import LARGE_BYTES

ENGINES: MappingProxyType[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            *(OnnxRuntime(), OpenVino(), Native(), CUDA, TENSORRT),
            *(Inductor(), Inductor("inductor-cuda", "cuda")),
        )
    }
)


def engine_of(name: str, large_bytes: int = LARGE_BYTES) -> Engine:
    """The engine of this name, also that of recipes with parts; UsageError where there is none.
    Constants of so many bytes, default 1 GiB, are copied no more than they have to be."""
    if name == Split.name:
        return Split(engine_of)
    if name not in ENGINES:
        raise UsageError(f"no engine is called {name!r}; there are {', '.join(ENGINES)}")
    engine = ENGINES[name]
    return replace(engine, file_bytes=large_bytes) if isinstance(engine, OnnxRuntime) else engine
