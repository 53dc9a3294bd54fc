"""Messages between ranks: single ones, and batches in either order of sends and receives."""

import ranks
import teststream
import torch
import torch.distributed as dist

SIZES = (1, 1000, 1_300_001)


def numbers(count: int, rank: int) -> torch.Tensor:
    """Return what a rank sends."""
    return torch.arange(count, device=ranks.DEVICE) * (rank + 1)


def check_batches(rank: int, size: int) -> None:
    """Every rank sends to the next one and receives from the one before."""
    to, origin = (rank + 1) % size, (rank - 1) % size
    for count in SIZES:
        for receives_first in (False, True):
            ranks.keep_busy()
            received = torch.zeros(count, dtype=torch.int64, device=ranks.DEVICE)
            operations = [
                dist.P2POp(dist.isend, numbers(count, rank), to),
                dist.P2POp(dist.irecv, received, origin),
            ]
            works = dist.batch_isend_irecv(operations[:: -1 if receives_first else 1])
            del operations
            with teststream.Stream():
                for work in works:
                    work.wait()
                assert received.equal(numbers(count, origin)), (count, receives_first)
            teststream.synchronize()


def check_single(rank: int, size: int) -> None:
    """Rank 0 and the last rank exchange messages in turn."""
    last = size - 1
    tensor = torch.zeros(5000, dtype=torch.int64, device=ranks.DEVICE)
    if rank == 0:
        dist.send(numbers(5000, 0), last)
        dist.recv(tensor, last)
        assert tensor.equal(numbers(5000, 0) + 1)
    elif rank == last:
        dist.recv(tensor, 0)
        tensor += 1
        dist.send(tensor, 0)


def check_backend() -> None:
    """PyTorch 2.14 asks for the backend of a device before it sends a batch."""
    group = dist.group.WORLD
    if ranks.BACKEND == "slipstream":
        assert group._get_backend(torch.device(ranks.DEVICE)) is group
        assert not group.supports_coalescing


def main() -> None:
    """Run all checks."""
    rank, size = ranks.start()
    check_backend()
    check_batches(rank, size)
    check_single(rank, size)
    ranks.finish()


if __name__ == "__main__":
    main()
