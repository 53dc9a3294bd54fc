"""A reduction of more than 2^32 elements and bytes, in place."""

import numpy as np

from slipstream import comm

COUNT = 2**32 + 300_000_007  # odd, and no multiple of a segment
PIECE = 2**28


def main() -> None:
    """Rank r has the bytes of a pattern plus r; the largest of each is known piece by piece."""
    comm.init()
    array = np.empty(COUNT, dtype=np.uint8)
    pattern = (np.arange(PIECE, dtype=np.uint32) * np.uint32(2654435761) >> 24) & 127
    low = pattern.astype(np.uint8)
    for number, begin in enumerate(range(0, COUNT, PIECE)):
        part = array[begin : begin + PIECE]
        np.add(low[: len(part)], np.uint8(number + comm.rank()), out=part)
    comm.allreduce(array, "max", timeout=600)
    for number, begin in enumerate(range(0, COUNT, PIECE)):
        part = array[begin : begin + PIECE]
        part -= np.uint8(number + comm.size() - 1)
        assert np.array_equal(part, low[: len(part)]), begin
    print("all bytes are right")
    comm.barrier()
    comm.shutdown()


if __name__ == "__main__":
    main()
