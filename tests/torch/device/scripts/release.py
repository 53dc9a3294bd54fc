"""A group that ends while another one uses the device: Python's other threads go on meanwhile."""

import threading
import time

import ranks
import torch
import torch.distributed as dist


def main() -> None:
    """Rank 1 joins the operation that occupies rank 0's device when a thread of rank 0 says so."""
    rank, size = ranks.start()
    occupied, ended = dist.new_group(), dist.new_group()
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(100, device=ranks.DEVICE)
    dist.all_reduce(tensor, group=ended)
    assert tensor.cpu().eq(size).all()
    if rank == 1:
        store.wait(["go"])
    work = dist.all_reduce(tensor, group=occupied, async_op=True)

    def go() -> None:
        time.sleep(0.3)
        store.set("go", "1")

    thread = threading.Thread(target=go)
    if rank == 0:
        thread.start()
        # Unpinning its memory waits for the other group: for ever if `go` cannot run meanwhile.
        dist.destroy_process_group(ended)
        thread.join()
    else:
        dist.destroy_process_group(ended)
    work.wait()
    assert tensor.cpu().eq(size * size).all()
    ranks.finish()


if __name__ == "__main__":
    main()
