"""The peer of `slipstream bench serve`: FastAPI around ONNX Runtime, as one would write it by hand.

    python -m slipstream.bench.serve_peer MODEL.onnx PORT THREADS [RUNS]

It takes and gives the same bytes as ours, says where it listens once it is ready, and ends by
SIGTERM. Port 0 is any that is free; RUNS, default 1, are those at a time.
"""

# ONNX Runtime has no types, and NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

JSON_LENGTH = "inference-header-content-length"
DTYPES = {
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_,
    "UINT8": np.uint8, "INT8": np.int8, "INT32": np.int32, "INT64": np.int64,
}  # fmt: skip
DATATYPES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


class Runner:
    """A model, and threads that run it.

    Args:
        path: of an ONNX file.
        threads: of a run.
        runs: at a time. Several fight for cores, so what waits does not spin then.
    """

    def __init__(self, path: str, threads: int, runs: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        if runs > 1:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._names = [each.name for each in self._session.get_outputs()]
        self._pool = ThreadPoolExecutor(runs)

    async def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns outputs by name; other requests are read meanwhile."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._pool, self._session.run, self._names, inputs)
        return dict(zip(self._names, found, strict=True))


def application(runner: Runner) -> FastAPI:
    """Returns the application.

    Args:
        runner: of the only model.
    """
    app = FastAPI(openapi_url=None)

    @app.post("/v2/models/{model}/infer")
    async def infer(model: str, request: Request) -> Response:
        body = await request.body()
        outputs = await runner.run(inputs_of(body, int(request.headers[JSON_LENGTH])))
        head, raw = response_of(model, outputs)
        return Response(
            b"".join([head, *raw]),
            headers={JSON_LENGTH: str(len(head))},
            media_type="application/octet-stream",
        )

    del infer  # FastAPI has it
    return app


def inputs_of(body: bytes, json_length: int) -> dict[str, Any]:
    """Returns tensors by name, on the memory of a body that holds JSON and then their bytes."""
    found: dict[str, Any] = {}
    at = json_length
    for each in orjson.loads(memoryview(body)[:json_length])["inputs"]:
        end = at + each["parameters"]["binary_data_size"]
        array = np.frombuffer(memoryview(body)[at:end], DTYPES[each["datatype"]])
        found[each["name"]] = array.reshape(each["shape"])
        at = end
    return found


def response_of(model: str, outputs: dict[str, Any]) -> tuple[bytes, list[bytes]]:
    """Returns the JSON of a response, and the bytes of its tensors."""
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
    """Serves a model until SIGTERM."""
    app = application(Runner(path, threads, runs))
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
