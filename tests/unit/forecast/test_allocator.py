"""Requests are rounded, cut out of segments and joined again as PyTorch's allocator does it."""

import random
from itertools import pairwise

import pytest

from slipstream.forecast.memory.allocator import (
    MIB,
    Allocator,
    SegmentPiece,
    rounded,
    segment_bytes,
)


@pytest.mark.parametrize(
    ("request_bytes", "size"), [(1, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)]
)
def test_requests_are_rounded_to_512_bytes(request_bytes: int, size: int):
    assert rounded(request_bytes) == size
    assert Allocator().allocate(request_bytes).size == size


def test_nothing_takes_nothing():
    allocator = Allocator()
    piece = allocator.allocate(0)
    allocator.free(piece)
    assert (piece.size, allocator.peak_reserved) == (0, 0)


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_segments_have_the_size_of_their_pool_or_their_own(size: int, segment: int):
    assert segment_bytes(size) == segment
    allocator = Allocator()
    allocator.allocate(size)
    assert allocator.reserved == segment


def test_small_and_large_requests_do_not_share_segments():
    allocator = Allocator()
    allocator.allocate(2 * MIB)
    allocator.allocate(512)
    assert allocator.reserved == 22 * MIB
    allocator.allocate(512)
    allocator.allocate(18 * MIB)
    assert allocator.reserved == 22 * MIB
    allocator.allocate(MIB)
    allocator.allocate(MIB)  # from the small pool, if less than that remains
    assert allocator.reserved == 24 * MIB


def test_a_segment_serves_requests_until_it_is_full():
    allocator = Allocator()
    pieces = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved == 20 * MIB
    assert [piece.address for piece in pieces] == [0, 5 * MIB, 10 * MIB, 15 * MIB]
    allocator.allocate(5 * MIB)
    assert allocator.reserved == 40 * MIB


def test_large_pieces_keep_what_would_be_too_little_to_cut_off():
    allocator = Allocator()
    allocator.free(allocator.allocate(20 * MIB))
    kept = allocator.allocate(19 * MIB)
    assert kept.size == 20 * MIB  # exactly 1 MiB remains
    allocator.free(kept)
    assert allocator.allocate(19 * MIB - 512).size == 19 * MIB - 512


def test_small_pieces_are_cut_to_their_request():
    allocator = Allocator()
    allocator.free(allocator.allocate(MIB))
    assert allocator.allocate(512).size == 512


def test_the_smallest_piece_that_is_large_enough_is_taken_then_the_lowest():
    allocator = Allocator()
    sizes = [40 * MIB, 30 * MIB, 60 * MIB, 30 * MIB]
    pieces = [allocator.allocate(size) for size in sizes]
    for piece in reversed(pieces):
        allocator.free(piece)
    assert allocator.allocate(30 * MIB).address == pieces[1].address
    assert allocator.allocate(30 * MIB).address == pieces[3].address
    assert allocator.allocate(30 * MIB).address == pieces[0].address
    assert allocator.reserved == sum(sizes)


def test_free_neighbours_join():
    allocator = Allocator()
    pieces = [allocator.allocate(5 * MIB) for _ in range(4)]
    for index in (0, 2, 1):  # freed last, the middle piece joins both others
        allocator.free(pieces[index])
    assert allocator.allocate(15 * MIB).address == 0
    assert allocator.reserved == 20 * MIB


def test_segments_do_not_join():
    allocator = Allocator()
    for piece in [allocator.allocate(10 * MIB) for _ in range(2)]:
        allocator.free(piece)
    allocator.allocate(20 * MIB)
    assert allocator.reserved == 40 * MIB


def test_what_is_freed_stays_reserved():
    allocator = Allocator()
    allocator.free(allocator.allocate(64 * MIB))
    assert (allocator.allocated, allocator.reserved) == (0, 64 * MIB)
    allocator.release()
    assert (allocator.reserved, allocator.peak_reserved) == (0, 64 * MIB)


def test_at_the_limit_only_segments_that_nobody_uses_are_given_back():
    allocator = Allocator(limit_bytes=100 * MIB)
    whole = allocator.allocate(40 * MIB)
    half = allocator.allocate(40 * MIB)
    allocator.free(half)
    kept = allocator.allocate(10 * MIB)  # in the second segment
    allocator.free(whole)
    allocator.allocate(60 * MIB)
    assert allocator.peak_reserved == 100 * MIB
    assert not kept.free


def test_beyond_the_limit_the_peak_says_what_would_be_needed():
    allocator = Allocator(limit_bytes=100 * MIB)
    allocator.allocate(60 * MIB)
    allocator.allocate(60 * MIB)
    assert allocator.peak_reserved == 120 * MIB


def test_peaks_are_of_different_moments():
    allocator = Allocator()
    for size in (20 * MIB, 40 * MIB, 60 * MIB):
        allocator.free(allocator.allocate(size))
    assert allocator.peak_allocated == 60 * MIB
    assert allocator.peak_reserved == 120 * MIB


@pytest.mark.parametrize("seed", range(4))
def test_pieces_never_overlap_and_all_that_was_reserved_is_somewhere(seed: int):
    choose = random.Random(seed)
    allocator = Allocator()
    held: list[SegmentPiece] = []
    for _ in range(2000):
        if held and choose.random() < 0.5:
            allocator.free(held.pop(choose.randrange(len(held))))
        else:
            held.append(allocator.allocate(int(2 ** choose.uniform(0, 26))))
        assert allocator.allocated == sum(piece.size for piece in held)
        assert allocator.allocated <= allocator.reserved
    held.sort(key=lambda piece: piece.address)
    for left, right in pairwise(held):
        assert left.address + left.size <= right.address
    for piece in held:
        allocator.free(piece)
    assert allocator.allocated == 0
    allocator.release()
    assert allocator.reserved == 0


def test_what_one_stream_freed_no_other_one_gets():
    allocator = Allocator()
    allocator.free(allocator.allocate(30 * MIB))
    allocator.allocate(30 * MIB, stream=1)
    assert allocator.reserved == 60 * MIB
    allocator.allocate(30 * MIB)
    assert allocator.reserved == 60 * MIB


def test_a_segment_that_grows_takes_what_is_free_at_its_end():
    fixed, grows = Allocator(), Allocator(expandable=True)
    for allocator in (fixed, grows):
        kept = allocator.allocate(40 * MIB)
        allocator.free(allocator.allocate(60 * MIB))
        allocator.allocate(80 * MIB)
        allocator.free(kept)
        allocator.allocate(41 * MIB)
    assert fixed.reserved == (40 + 60 + 80) * MIB
    # The hole in front is too small, and the segment grows by pages of 20 MiB.
    assert grows.reserved == (40 + 80 + 60) * MIB
    grows.allocate(20 * MIB)
    assert grows.reserved == (40 + 80 + 60) * MIB
