"""FastAPI server with which `slipstream bench serve` compares Slipstream's server.

    python -m slipstream.bench.serve.peer MODEL PORT THREADS [RUNS]

The server is written as users would write it. MODEL is an ONNX file, which ONNX Runtime runs, or a
package from `slipstream compile`, which its own engine runs. This server accepts and returns the
same bytes as the server of Slipstream. The server prints its address when it is ready, and stops
when it gets SIGTERM. Port 0 stands for any free port. RUNS is the number of batches that may
execute at the same time (default 1).
"""

# ONNX Runtime has no type annotations, and NumPy's type stubs leave result types unspecified.
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
        path: Path of an ONNX file, or of a package from `slipstream compile`.
        threads: Number of threads; batches that execute at the same time share them.
        runs: Number of batches that may execute at the same time.
    """
    make = _onnx_runner if path.endswith(".onnx") else _package_runner
    return make(path, threads, runs)


def _onnx_runner(path: str, threads: int, runs: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if runs > 1:
        # Concurrent runs compete for the cores, so waiting threads must not spin.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run


def _package_runner(path: str, threads: int, runs: int) -> Run:
    """Return a function that runs a package's engine as our server does."""
    from slipstream.infer.package.package import read
    from slipstream.infer.run.session import prepare_executable

    run = prepare_executable(read(Path(path)), threads, runs).run
    return lambda inputs: dict(run(inputs))


def application(run: Run, runs: int) -> FastAPI:
    """Return the web application.

    Args:
        run: Function that maps input arrays by name to output arrays by name.
        runs: Number of batches that may execute at the same time.
    """
    app = FastAPI(openapi_url=None)
    pool = ThreadPoolExecutor(runs)

    @app.post("/v2/models/{model}/infer")
    async def infer(model: str, request: Request) -> Response:
        inputs = inputs_of(await request.body(), int(request.headers[JSON_LENGTH]))
        # Meanwhile the event loop reads other requests.
        outputs = await asyncio.get_running_loop().run_in_executor(pool, run, inputs)
        head, raw = response_of(model, outputs)
        return Response(
            b"".join([head, *raw]),
            headers={JSON_LENGTH: str(len(head))},
            media_type="application/octet-stream",
        )

    del infer  # FastAPI keeps the function
    return app


def inputs_of(body: bytes, json_length: int) -> dict[str, Any]:
    """Return the input tensors of a request body by name, as views of its memory.

    Args:
        body: JSON, followed by the bytes of the tensors.
        json_length: Length of the JSON in bytes.
    """
    inputs: dict[str, Any] = {}
    begin = json_length
    for tensor in orjson.loads(memoryview(body)[:json_length])["inputs"]:
        end = begin + tensor["parameters"]["binary_data_size"]
        array = np.frombuffer(memoryview(body)[begin:end], DTYPES[tensor["datatype"]])
        inputs[tensor["name"]] = array.reshape(tensor["shape"])
        begin = end
    return inputs


def response_of(model: str, outputs: dict[str, Any]) -> tuple[bytes, list[bytes]]:
    """Return a pair: the JSON of a response, and the bytes of its tensors."""
    raw = {name: np.ascontiguousarray(array).tobytes() for name, array in outputs.items()}
    tensors = [
        {
            "name": name, "datatype": DATATYPES[array.dtype], "shape": array.shape,
            "parameters": {"binary_data_size": len(raw[name])},
        }
        for name, array in outputs.items()
    ]  # fmt: skip
    return orjson.dumps({"model_name": model, "outputs": tensors}), list(raw.values())


def main(path: str, port: int, threads: int, runs: int) -> None:
    """Serve a model until the process gets SIGTERM."""
    app = application(runner_of(path, threads, runs), runs)
    # asyncio and uvloop turn off Nagle's algorithm only if the socket was created with IPPROTO_TCP.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", port))
    listening.listen(1024)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning",
                            access_log=False, timeout_graceful_shutdown=1)  # fmt: skip
    print(f"REST   http://127.0.0.1:{listening.getsockname()[1]}/v2", flush=True)
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main(sys.argv[1], *(int(each) for each in (*sys.argv[2:4], *(sys.argv[4:] or ("1",)))))
