"""The peer of `slipstream bench serve`: FastAPI around an engine, as one would write it by hand.

    python -m slipstream.bench.serve.peer MODEL PORT THREADS [RUNS]

MODEL is a file of ONNX for ONNX Runtime, or a package for the engine that it names. It takes and
gives the same bytes as ours, says where it listens once it is ready, and ends by SIGTERM. Port
0 is any that is free; RUNS, default 1, are those at a time.
"""

# ONNX Runtime has no types, and NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

JSON_LENGTH = "inference-header-content-length"
DTYPES = {
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_,
    "UINT8": np.uint8, "INT8": np.int8, "INT32": np.int32, "INT64": np.int64,
}  # fmt: skip
DATATYPES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


Run = Callable[[dict[str, Any]], dict[str, Any]]


def runner_of(path: str, threads: int, runs: int) -> Run:
    """Return a function that runs a model.

    Args:
        path: Path of an ONNX file or of a package.
        threads: Threads of a run that has the machine to itself.
        runs: Batches that may execute at the same time.
    """
    return (
        _onnx_runner(path, threads, runs) if path.endswith(".onnx") else _own(path, threads, runs)
    )


def _onnx_runner(path: str, threads: int, runs: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if runs > 1:
        # They fight for cores, so what waits does not spin then.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run


def _own(path: str, threads: int, runs: int) -> Run:
    """Return our engine, called as our server calls it; concurrent runs share the threads."""
    from slipstream.infer.package.package import read
    from slipstream.infer.run.session import prepare_executable

    run = prepare_executable(read(Path(path)), threads, runs).run
    return lambda inputs: dict(run(inputs))


def application(run: Run, runs: int) -> FastAPI:
    """Return the application.

    Args:
        run: Function that runs the only model.
        runs: Batches that may execute at the same time.
    """
    app = FastAPI(openapi_url=None)
    pool = ThreadPoolExecutor(runs)

    @app.post("/v2/models/{model}/infer")
    async def infer(model: str, request: Request) -> Response:
        inputs = inputs_of(await request.body(), int(request.headers[JSON_LENGTH]))
        # Other requests are read meanwhile.
        outputs = await asyncio.get_running_loop().run_in_executor(pool, run, inputs)
        head, raw = response_of(model, outputs)
        return Response(
            b"".join([head, *raw]),
            headers={JSON_LENGTH: str(len(head))},
            media_type="application/octet-stream",
        )

    del infer  # FastAPI has it
    return app


def inputs_of(body: bytes, json_length: int) -> dict[str, Any]:
    """Return tensors by name, on the memory of a body that holds JSON and then their bytes."""
    found: dict[str, Any] = {}
    at = json_length
    for each in orjson.loads(memoryview(body)[:json_length])["inputs"]:
        end = at + each["parameters"]["binary_data_size"]
        array = np.frombuffer(memoryview(body)[at:end], DTYPES[each["datatype"]])
        found[each["name"]] = array.reshape(each["shape"])
        at = end
    return found


def response_of(model: str, outputs: dict[str, Any]) -> tuple[bytes, list[bytes]]:
    """Return the JSON of a response, and the bytes of its tensors."""
    raw = {name: np.ascontiguousarray(each).tobytes() for name, each in outputs.items()}
    said = [
        {
            "name": name, "datatype": DATATYPES[each.dtype], "shape": each.shape,
            "parameters": {"binary_data_size": len(raw[name])},
        }
        for name, each in outputs.items()
    ]  # fmt: skip
    return orjson.dumps({"model_name": model, "outputs": said}), list(raw.values())


def main(path: str, port: int, threads: int, runs: int) -> None:
    """Serve a model until SIGTERM."""
    app = application(runner_of(path, threads, runs), runs)
    # With the protocol named, asyncio and uvloop turn Nagle's algorithm off.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", port))
    listening.listen(1024)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning",
                            access_log=False, timeout_graceful_shutdown=1)  # fmt: skip
    print(f"REST   http://127.0.0.1:{listening.getsockname()[1]}/v2", flush=True)
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main(sys.argv[1], *(int(each) for each in (*sys.argv[2:4], *(sys.argv[4:] or ("1",)))))
