"""Streams: order, errors, ends, and what is held meanwhile."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref

import numpy as np
import pytest

from slipstream.infer.run.inputs import copy_item
from slipstream.infer.run.stream import ItemError, Stages, run_preloaded, run_serially

SHAPES = [(1, 1, 1), (1, 1, 4), (2, 1, 3), (2, 2, 4), (4, 2, 5), (3, 3, 16)]


class Buffers:
    """Buffers of one number, and whether two items ever had one at a time."""

    def __init__(self):
        self.made = 0
        self.lock = threading.Lock()

    def make(self):
        with self.lock:
            self.made += 1
        return [None]

    def stages(self, run=lambda number: number * 10, prepare=None):
        def fill(item, buffer):
            buffer[0] = item
            return buffer if prepare is None else (prepare(item), buffer)[1]

        def execute(buffer):
            number = buffer[0]
            result = run(number)
            assert buffer[0] == number
            return result

        return Stages(buffer=self.make, keep=as_it_is, prepare=fill, run=execute)


def as_it_is(item):
    return item


def streams(stages, items, errors="raise"):
    """Yield the same stream in every form."""
    yield lambda: run_serially(stages, items(), errors)
    for threads, runs, depth in SHAPES:
        yield lambda t=threads, r=runs, d=depth: run_preloaded(
            stages, items(), errors, threads=t, runs=r, depth=d
        )


def no_threads():
    return not [each for each in threading.enumerate() if "slipstream-stream" in each.name]


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_results_come_in_the_order_of_items(count):
    for stream in streams(Buffers().stages(), lambda: range(count)):
        assert list(stream()) == [number * 10 for number in range(count)]
        assert no_threads()


def test_no_more_runs_are_under_way_than_may():
    running, most, lock = 0, 0, threading.Lock()
    meeting = threading.Barrier(2, timeout=60)  # both runs that may be there are

    def run(number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait()
        with lock:
            running -= 1
        return number

    stages = Buffers().stages(run)
    found = list(run_preloaded(stages, range(40), "raise", threads=5, runs=2, depth=8))
    assert found == list(range(40))
    assert most == 2


def test_the_next_item_is_prepared_while_one_runs():
    prepared = threading.Event()

    def run(number):
        assert number or prepared.wait(60)  # the first one waits for the second
        return number

    def prepare(number):
        if number == 1:
            prepared.set()

    stages = Buffers().stages(run, prepare)
    assert list(run_preloaded(stages, range(3), "raise", threads=2, runs=1, depth=2)) == [0, 1, 2]


def test_buffers_are_used_again():
    buffers = Buffers()
    assert sum(
        1 for _ in run_preloaded(buffers.stages(), range(3000), "raise", threads=3, runs=2, depth=6)
    )
    assert buffers.made <= 6


def test_no_more_items_are_taken_than_the_depth_says():
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield taken

    stream = run_preloaded(Buffers().stages(), endless(), "raise", threads=2, runs=2, depth=5)
    for number, _ in enumerate(itertools.islice(stream, 50)):
        assert taken <= number + 1 + 5
    stream.close()
    assert no_threads()


def fails_at(*numbers):
    def work(number):
        if number in numbers:
            raise ValueError(f"bad {number}")
        return number

    return work


@pytest.mark.parametrize("stage", ["run", "prepare"])
def test_errors_are_raised_in_order_with_the_items_number(stage):
    stages = Buffers().stages(**{stage: fails_at(7, 5)}, **({} if stage == "run" else {"run": int}))
    for stream in streams(stages, lambda: range(20)):
        found = []
        with pytest.raises(ItemError, match="item 5: bad 5") as caught:
            iter_into(stream(), found)
        assert found == [0, 1, 2, 3, 4]
        assert caught.value.index == 5
        assert isinstance(caught.value.__cause__, ValueError)
        assert no_threads()


def iter_into(stream, found):
    for item in stream:
        found.append(item)


def test_errors_may_take_the_place_of_results():
    stages = Buffers().stages(run=fails_at(2, 3))
    for stream in streams(stages, lambda: range(6), "yield"):
        found = list(stream())
        assert [item if isinstance(item, int) else item.index for item in found] == list(range(6))
        assert [type(found[number]) for number in (2, 3)] == [ItemError] * 2


def test_what_the_items_raise_comes_after_the_results_before_it():
    def items():
        yield from range(3)
        raise OSError("the disk is gone")

    for stream in streams(Buffers().stages(run=int), items):
        found = []
        with pytest.raises(OSError, match="the disk is gone"):
            iter_into(stream(), found)
        assert found == [0, 1, 2]
        assert no_threads()


@pytest.mark.parametrize("after", [0, 1, 17])
def test_whoever_has_enough_may_leave(after):
    for stream in streams(Buffers().stages(), itertools.count):
        open_stream = stream()
        assert list(itertools.islice(open_stream, after)) == [n * 10 for n in range(after)]
        open_stream.close()
        assert no_threads()


def test_streams_that_nobody_reads_begin_nothing():
    buffers = Buffers()
    stream = run_preloaded(buffers.stages(), range(5), "raise", threads=2, runs=1, depth=3)
    del stream
    assert (buffers.made, no_threads()) == (0, True)


def test_results_are_let_go():
    alive = []

    def run(number):
        array = np.full(4, number)
        alive.append(weakref.ref(array))
        return array

    for result in run_preloaded(
        Buffers().stages(run), range(200), "raise", threads=2, runs=2, depth=4
    ):
        del result
    gc.collect()
    assert not [each for each in alive if each() is not None]


def test_several_streams_at_a_time_do_not_disturb_each_other():
    found = {}

    def read(name):
        stream = run_preloaded(Buffers().stages(), range(300), "raise", threads=2, runs=2, depth=4)
        found[name] = list(stream)

    readers = [threading.Thread(target=read, args=(name,)) for name in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert all(numbers == [n * 10 for n in range(300)] for numbers in found.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_buffer_that_cannot_be_made_is_an_error_of_its_item(shape):
    """The error once ended a thread, and the caller waited for ever."""

    def make():
        raise MemoryError("no room")

    stages = Stages(
        buffer=make,
        keep=as_it_is,
        prepare=lambda item, buffer: item,
        run=lambda number: number,
    )
    threads, runs, depth = shape
    stream = run_preloaded(stages, range(3), "yield", threads=threads, runs=runs, depth=depth)
    found = list(stream)
    assert [(error.index, "no room" in str(error)) for error in found] == [
        (number, True) for number in range(3)
    ]


def test_a_stage_that_wants_to_leave_python_is_an_error_of_its_item():
    def leave(number):
        raise SystemExit(number)

    stages = Stages(buffer=list, keep=as_it_is, prepare=lambda item, buffer: item, run=leave)
    found = list(run_preloaded(stages, range(2), "yield", threads=2, runs=1, depth=3))
    assert [error.index for error in found] == [0, 1]


def test_what_of_an_item_is_kept_is_kept_before_the_next_is_asked_for():
    """Cameras reuse the memory of an image, so answers were once those of another image."""

    def items():
        image = [0]
        for number in range(6):
            image[0] = number
            yield image

    def prepare(item, buffer):
        time.sleep(0.01)  # the next item is asked for meanwhile
        return item[0]

    stages = Stages(buffer=list, keep=list, prepare=prepare, run=lambda number: number)
    found = run_preloaded(stages, items(), "raise", threads=3, runs=1, depth=4)
    assert list(found) == list(range(6))


def test_an_item_that_cannot_be_kept_is_an_error_of_its_own():
    def keep(item):
        return 1 // item

    stages = Stages(
        buffer=list, keep=keep, prepare=lambda item, buffer: item, run=lambda number: number
    )
    one, other, third = run_preloaded(stages, [1, 0, -1], "yield", threads=2, runs=1, depth=3)
    assert (one, other.index, third) == (1, 1, -1)


class Foreign:
    """An array of another framework."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_items_are_kept_with_memory_of_their_own():
    array, data = np.arange(6).reshape(2, 3), bytearray(b"jpeg")
    given = {"a": array, "b": [array.T[::2], data], "c": (Foreign(array), memoryview(data), b"png")}
    found = copy_item(given)
    array[:] = 9
    data[:] = b"gone"
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    view, jpeg = found["b"]
    assert (view.tolist(), jpeg) == ([[0, 3], [2, 5]], b"jpeg")
    foreign, *files = found["c"]
    assert (foreign.tolist(), files) == ([[0, 1, 2], [3, 4, 5]], [b"jpeg", b"png"])


@pytest.mark.parametrize("given", [None, "text", 5, object()])
def test_what_no_model_takes_is_kept_as_it_is(given):
    assert copy_item(given) is given
