"""How long wait() blocks the CPU while a collective is on the network, beside gloo's wait().

On a machine without a GPU the device is the test device of tests/torch/device, whose streams are
threads, and gloo reduces a tensor of the CPU, because it has no code for the test device. At
1 Gbit/s, an allreduce of 12.5 MB takes two ranks 100 ms:

    slipstream lab run --num-hosts 2 --rate 1gbit -- benchmarks/gpu/wait.py
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROUNDS = 20
NUM_BYTES = 12_500_000


def load_device() -> str:
    """Return the name of the device, which is a GPU if there is one."""
    if torch.cuda.is_available():
        return "cuda"
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests/torch/device"))
    import teststream

    import build

    teststream.load(build.build())
    return teststream.NAME


def measure(tensor: torch.Tensor, group: Any) -> dict[str, Any]:
    """Return the times of calls, of waits, and until the results are there."""
    module = torch.get_device_module(tensor.device)
    times: dict[str, list[float]] = {"call_us": [], "wait_us": [], "done_ms": []}
    for _ in range(ROUNDS):
        module.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        work = dist.all_reduce(tensor, group=group, async_op=True)
        called = time.perf_counter()
        work.wait()
        waited = time.perf_counter()
        module.synchronize()
        done = time.perf_counter()
        times["call_us"].append((called - begin) * 1e6)
        times["wait_us"].append((waited - called) * 1e6)
        times["done_ms"].append((done - begin) * 1e3)
    return {
        name: {"median": round(statistics.median(each), 1), "worst": round(max(each), 1)}
        for name, each in times.items()
    }


def main() -> None:
    """Print a row for each backend."""
    device = load_device()
    dist.init_process_group("slipstream")
    gloo = dist.new_group(backend="gloo")
    on_device = torch.zeros(NUM_BYTES // 4, device=device)
    rows = {
        "slipstream": (on_device, None),
        "gloo": (on_device if device == "cuda" else on_device.cpu(), gloo),
    }
    for backend, (tensor, group) in rows.items():
        dist.all_reduce(tensor, group=group)  # makes streams and memory, which takes time
        row = measure(tensor, group)
        if dist.get_rank() == 0:
            print(json.dumps({"backend": backend, "device": str(tensor.device), **row}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
