"""Share of the link that an allreduce of device memory reaches, beside one of host memory.

On a machine without a GPU the device is the test device of tests/torch/device, whose copies take
as long as those of a GPU. PCIe 3.0 x16 carries about 12 GB/s; an A100 on PCIe 4.0, with copies in
both directions at once, 24 GB/s to the host and 12 GB/s to the device:

    slipstream lab run --num-hosts 2 --rate 1gbit -- benchmarks/gpu/link_share.py --link 1e9

The ranks call the allreduce of each row in turn, so a disturbance meets all rows alike.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from slipstream.bench.limits import GOODPUT

NUM_BYTES = 100_000_000


def load_device(to_host_rate: float, to_device_rate: float) -> str:
    """Return the name of the device, which is a GPU if there is one."""
    if torch.cuda.is_available():
        return "cuda"
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests/torch/device"))
    import teststream

    import build

    teststream.load(build.build())
    teststream.configure(to_host_rate=to_host_rate, to_device_rate=to_device_rate)
    return teststream.NAME


def timed(call: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    """Return the seconds from the call until its result is in memory, on this rank."""
    synchronize()
    dist.barrier()
    begin = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - begin


def main() -> None:
    """Print a row for each kind of memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--link", type=float, required=True, help="Bit rate of a host's link.")
    parser.add_argument("--to-host", type=float, default=12e9, help="Bytes/s to the host.")
    parser.add_argument("--to-device", type=float, default=12e9, help="Bytes/s to the device.")
    parser.add_argument("--rounds", type=int, default=9, help="Number of timed rounds.")
    options = parser.parse_args()
    device = load_device(options.to_host, options.to_device)
    dist.init_process_group("slipstream")
    gloo = dist.new_group(backend="gloo")
    size = dist.get_world_size()
    on_device = torch.zeros(NUM_BYTES // 4, device=device)
    on_host = torch.zeros(NUM_BYTES // 4)
    rows = {
        "device, slipstream": lambda: dist.all_reduce(on_device),
        "host, slipstream": lambda: dist.all_reduce(on_host),
        "host, gloo": lambda: dist.all_reduce(on_host, group=gloo),
    }
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    synchronize = torch.get_device_module(device).synchronize
    for number in range(options.rounds + 1):
        for name, call in rows.items():
            elapsed = timed(call, synchronize)
            if number:  # the first round makes streams and memory
                seconds[name].append(elapsed)
    if dist.get_rank() == 0:
        bits = 8 * 2 * (size - 1) / size * NUM_BYTES
        for name, times in seconds.items():
            median = statistics.median(times)
            share = bits / median / options.link
            row = {
                "memory": name,
                "ms": round(median * 1e3, 1),
                "best_ms": round(min(times) * 1e3, 1),
            }
            row |= {"share": round(share, 3), "share_of_limit": round(share / GOODPUT, 3)}
            print(json.dumps(row))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
