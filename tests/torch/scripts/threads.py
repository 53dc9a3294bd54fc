"""A thread that waits for a straggler keeps no other from running.

torchrun --nproc-per-node 2 threads.py
"""

import os
import threading

import torch
import torch.distributed as dist

STEPS = 1_000_000  # far more than a thread makes in one turn of the interpreter's


def check_wait_lets_others_run(size: int) -> None:
    """Rank 0 waits; the others come only when its second thread has done all its steps."""
    store = dist.distributed_c10d._get_default_store()
    name = f"steps {size}"
    if dist.get_rank() != 0:
        store.wait([name])
        dist.all_reduce(torch.ones(size))
        return
    work = dist.all_reduce(torch.ones(size), async_op=True)

    def count() -> None:
        steps = 0
        while steps < STEPS:
            steps += 1
        store.set(name, str(steps))

    thread = threading.Thread(target=count)
    thread.start()
    work.wait()  # for ever, if the other thread could not run
    thread.join()


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    for size in (1, 1_000_000):
        check_wait_lets_others_run(size)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
