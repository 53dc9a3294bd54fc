"""A rank is killed in the middle of an allreduce: other ranks' GPUs must not wait for that rank.

torchrun --nproc-per-node 2 killed.py
"""

import json
import os
import signal
import time

import torch
import torch.distributed as dist

import slipstream.torch  # noqa: F401  registers the backend where it is not installed


def main() -> None:
    """Print how long the GPU of rank 0 waited, and the error of rank 0's next call."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("slipstream")
    tensor = torch.ones(25_000_000, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if dist.get_rank() == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.perf_counter()
    dist.all_reduce(tensor, async_op=True).wait()
    torch.cuda.synchronize()
    row = {"free_after_seconds": round(time.perf_counter() - begin, 2)}
    row["result_has_nan"] = bool(tensor.isnan().any())
    try:
        dist.all_reduce(tensor)
        row["error"] = None
    except RuntimeError as error:
        row["error"] = f"{type(error).__name__}: {error}"
    if dist.get_rank() == 0:
        print(json.dumps(row), flush=True)
    os._exit(0)  # without PyTorch's end of a job that has lost a rank


if __name__ == "__main__":
    main()
