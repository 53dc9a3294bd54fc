"""Every collective x dtype x operation x size against NumPy; equal bits on all ranks.

Each rank draws the inputs of all ranks from the same seeds, and so knows what must come out. The
values are small whole numbers, so that every order of adding gives the same sum; the random
fractions that follow are compared between the ranks only.
"""

import os
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream import comm

Array = NDArray[Any]

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*INTEGERS, *FLOATS, *COMPLEX, "bool")
SIZES = (0, 1, 37, 4099)
LARGE = 300_001

OPS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def supported(op: str, dtype: str) -> bool:
    """Return whether the engine can do it: complex numbers have no order, only integers bits."""
    if op in ("band", "bor", "bxor"):
        return dtype in INTEGERS or dtype == "bool"
    if op in ("min", "max"):
        return dtype not in COMPLEX
    return op != "average" or dtype != "bool"


def drawn(rank: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Return the input of one rank; a product of four stays within float16."""
    random = np.random.default_rng([rank, *shape, DTYPES.index(dtype)])
    values = random.integers(0, 4, shape)
    if dtype in COMPLEX:
        return (values + 1j * random.integers(0, 4, shape)).astype(dtype)
    return values.astype(dtype)


def reduced(op: str, inputs: list[Array]) -> Array:
    """Return the inputs of all ranks as NumPy reduces them."""
    dtype = inputs[0].dtype
    if op == "average":
        total = reduce(np.add, inputs)
        if dtype.kind in "iu":
            return (total // len(inputs)).astype(dtype)
        if dtype.kind == "c":  # NumPy's own division of complex numbers rounds twice
            parts = total.view(total.real.dtype) / len(inputs)
            return parts.astype(total.real.dtype).view(dtype)
        return (total / len(inputs)).astype(dtype)
    return reduce(OPS[op], inputs).astype(dtype)


class Alternating:
    """The collectives of `slipstream.comm`, of which every second call is asynchronous."""

    def __init__(self) -> None:
        self._num_calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        collective = getattr(comm, name)

        def call(*args: Any, **options: Any) -> Any:
            self._num_calls += 1
            if self._num_calls % 2:
                return collective(*args, **options)
            return collective(*args, **options, async_op=True).wait()

        return call


alternating = Alternating()


class Sweep:
    """The cases, one after another, on one rank."""

    def __init__(self) -> None:
        self.rank, self.size = comm.rank(), comm.size()
        self.num_cases = 0

    def inputs(self, shape: tuple[int, ...], dtype: str) -> list[Array]:
        return [drawn(rank, shape, dtype) for rank in range(self.size)]

    def equal(self, got: Any, expected: Array, *case: object) -> None:
        self.num_cases += 1
        assert got.dtype == expected.dtype, (case, got.dtype, expected.dtype)
        assert got.shape == expected.shape, (case, got.shape, expected.shape)
        assert np.array_equal(got, expected), (self.rank, case, got, expected)

    def reductions(self, count: int, dtype: str, op: str) -> None:
        """allreduce (in place and not), reduce to each root, reduce_scatter."""
        inputs = self.inputs((count,), dtype)
        mine, expected = inputs[self.rank], reduced(op, inputs)
        out = np.empty_like(mine)
        assert alternating.allreduce(mine, op, out=out) is out
        self.equal(out, expected, "allreduce out=", count, dtype, op)
        in_place = mine.copy()
        assert alternating.allreduce(in_place, op, name="tensor") is in_place
        self.equal(in_place, expected, "allreduce", count, dtype, op)
        root = (count + len(op)) % self.size
        array = mine.copy()
        alternating.reduce(array, op, root)
        wanted = expected if self.rank == root else mine
        self.equal(array, wanted, "reduce", count, dtype, op, root)
        blocks = self.inputs((self.size * count, 2), dtype)
        part = alternating.reduce_scatter(blocks[self.rank], op)
        begin = self.rank * count
        wanted = reduced(op, blocks)[begin : begin + count]
        self.equal(part, wanted, "reduce_scatter", count, dtype, op)

    def movements(self, count: int, dtype: str) -> None:
        """Everything that moves equal parts."""
        inputs = self.inputs((count,), dtype)
        mine, stacked = inputs[self.rank], np.stack(inputs)
        self.equal(alternating.all_gather(mine), stacked, "all_gather", count, dtype)
        root = count % self.size
        array = mine.copy()
        alternating.broadcast(array, root)
        self.equal(array, inputs[root], "broadcast", count, dtype)
        gathered = alternating.gather(mine, root)
        if self.rank == root:
            self.equal(gathered, stacked, "gather", count, dtype)
        else:
            assert gathered is None
        out = np.empty_like(mine)
        alternating.scatter(stacked if self.rank == root else None, out, root)
        self.equal(out, mine, "scatter", count, dtype)
        blocks = [np.roll(stacked, rank, axis=0) for rank in range(self.size)]
        turned = alternating.all_to_all(blocks[self.rank])
        wanted = np.stack([blocks[rank][self.rank] for rank in range(self.size)])
        self.equal(turned, wanted, "all_to_all", count, dtype)

    def uneven(self, count: int, dtype: str) -> None:
        """Check parts of different lengths, some of which are empty."""
        counts = [count * (rank % 3) for rank in range(self.size)]
        parts = [drawn(rank, (counts[rank],), dtype) for rank in range(self.size)]
        got = alternating.all_gather_v(parts[self.rank], counts)
        self.equal(got, np.concatenate(parts), "all_gather_v", count, dtype)

        def cut(source: int, target: int) -> Array:
            return drawn(source * self.size + target, ((source + 2 * target) % 3 * count,), dtype)

        sent = [cut(self.rank, rank) for rank in range(self.size)]
        due = [cut(rank, self.rank) for rank in range(self.size)]
        got = alternating.all_to_all_v(
            np.concatenate(sent), [len(each) for each in sent], [len(each) for each in due]
        )
        self.equal(got, np.concatenate(due), "all_to_all_v", count, dtype)

    def messages(self, count: int, dtype: str) -> None:
        """Pass a message around a ring, sent and received at once, then all to rank 0."""
        if self.size == 1:  # nobody to send to
            return
        to, source = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        inputs = self.inputs((count,), dtype)
        out = np.empty_like(inputs[0])
        receiving = comm.recv(out, source, tag=3, async_op=True)
        alternating.send(inputs[self.rank], to, tag=3)
        self.equal(receiving.wait(), inputs[source], "send", count, dtype)
        if self.rank != 0:
            alternating.send(inputs[self.rank], 0, tag=4)
            return
        for _ in range(1, self.size):
            handle = comm.recv(out, comm.ANY_RANK, tag=4, async_op=True)
            handle.wait()
            self.equal(out, inputs[handle.source()], "recv any", count, dtype)

    def fractions(self, count: int, dtype: str) -> None:
        """Check that all ranks have the same bits even if the order of the additions matters."""
        random = np.random.default_rng([self.rank, count])
        mine = random.standard_normal(count).astype(dtype)
        total = alternating.allreduce(mine.copy(), "sum")
        average = alternating.allreduce(mine.copy(), "average")
        for result in (total, average):
            everyones = alternating.all_gather(result.view(np.uint8))
            self.num_cases += 1
            assert all(np.array_equal(each, everyones[0]) for each in everyones), (count, dtype)

    def groups(self) -> None:
        """Check subgroups, whose ranks are numbered anew and in another order."""
        everybody = comm.group(range(self.size)[::-1], "reversed")
        assert everybody.rank == self.size - 1 - self.rank
        array = np.array([self.rank])
        everybody.broadcast(array, 0)
        self.equal(array, np.array([self.size - 1]), "reversed")
        half = [rank for rank in range(self.size) if rank % 2 == self.rank % 2]
        members = comm.group(half)
        got = members.all_gather(np.array([self.rank]))
        self.equal(got, np.array(half)[:, None], "half")
        members.close()
        everybody.close()


def run(sweep: Sweep) -> None:
    """Do all cases."""
    for dtype in DTYPES:
        for count in SIZES:
            sweep.movements(count, dtype)
            sweep.uneven(count, dtype)
            sweep.messages(count, dtype)
            for op in ("average", *OPS):
                if supported(op, dtype):
                    sweep.reductions(count, dtype, op)
    for dtype in ("float32", "int64", "uint8"):
        sweep.movements(LARGE, dtype)
        sweep.uneven(LARGE, dtype)
        sweep.messages(LARGE, dtype)
        sweep.reductions(LARGE, dtype, "sum")
    for dtype in FLOATS:
        for count in (*SIZES, LARGE):
            sweep.fractions(count, dtype)
    sweep.groups()


def main() -> None:
    """Sweep; as a rank of a job, or of one."""
    comm.init()
    sweep = Sweep()
    run(sweep)
    alternating.barrier()
    uses_network = comm.local_size() < comm.size()
    assert uses_network == ("SLIPSTREAM_HOST_ID" in os.environ)
    assert uses_network == (comm.stats().network_bytes_sent > 0)
    comm.shutdown()
    print(f"{sweep.num_cases} cases are right")
    assert "torch" not in sys.modules


if __name__ == "__main__":
    main()
