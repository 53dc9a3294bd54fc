"""A name is in use until its rank has seen that the tensor is done, however fast that is."""

import gc

import pytest

from slipstream.horovod.names import NamesInUse
from slipstream.horovod.request import Request, TensorHandle


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.nanoseconds = 0

    def __call__(self) -> int:
        return self.nanoseconds


def take(names: NamesInUse, *wanted: str) -> list[TensorHandle]:
    return names.take([Request(kind="allreduce", name=each) for each in wanted])


def end(handle: TensorHandle) -> None:
    handle.begin(None, lambda: None)


def is_free(names: NamesInUse, name: str) -> bool:
    try:
        names.take([Request(kind="allreduce", name=name)])
    except ValueError:
        return False
    return True


def test_a_name_is_free_once_its_tensor_was_waited_for() -> None:
    names = NamesInUse(Clock())
    (handle,) = take(names, "a")
    assert not is_free(names, "a")
    end(handle)
    assert not is_free(names, "a")  # nobody has seen it
    assert handle.done()
    assert is_free(names, "a")


def test_where_a_handle_was_dropped_another_that_is_done_shows_it() -> None:
    names = NamesInUse(Clock())
    end(take(names, "dropped")[0])
    gc.collect()
    assert not is_free(names, "dropped")
    (barrier,) = take(names, "barrier")
    end(barrier)
    barrier.wait()
    assert is_free(names, "dropped")


def test_a_handle_that_is_kept_is_done_when_a_later_one_is() -> None:
    names = NamesInUse(Clock())
    kept, under_way, later = take(names, "kept", "under way", "later")
    end(kept)
    end(later)
    later.wait()
    assert is_free(names, "kept")
    assert not is_free(names, "under way")
    assert not under_way.is_over()


def test_who_waits_again_does_not_free_the_name_of_the_next() -> None:
    names = NamesInUse(Clock())
    (first,) = take(names, "a")
    end(first)
    first.wait()
    (second,) = take(names, "a")
    first.wait()
    assert not is_free(names, "a")
    assert not second.is_over()


def test_two_of_a_name_are_refused_and_take_nothing() -> None:
    names = NamesInUse(Clock())
    with pytest.raises(ValueError, match="'b'"):
        take(names, "a", "b", "b")
    assert is_free(names, "a")


def test_what_was_dropped_is_forgotten_in_time() -> None:
    names = NamesInUse(Clock())
    for number in range(10_000):
        dropped, seen = take(names, f"dropped {number}", "seen")
        end(dropped)
        end(seen)
        seen.wait()
        del dropped, seen
    assert len(names._uses) < 5000


def test_after_a_second_a_name_is_free_though_nobody_looked() -> None:
    clock = Clock()
    names = NamesInUse(clock)
    (kept,) = take(names, "kept")
    end(kept)
    clock.nanoseconds += 999_999_999
    assert not is_free(names, "kept")
    clock.nanoseconds += 1
    assert is_free(names, "kept")


def test_an_earlier_tensor_that_is_done_shows_nothing() -> None:
    names = NamesInUse(Clock())
    earlier, later = take(names, "earlier", "later")
    end(earlier)
    end(later)
    del later
    gc.collect()
    earlier.wait()
    assert not is_free(names, "later")
    names.see_all()
    assert is_free(names, "later")


def test_what_dropped_handles_leave_is_finished() -> None:
    names = NamesInUse(Clock())
    finished: list[str] = []
    (dropped,) = take(names, "dropped")
    dropped.begin(None, lambda: finished.append("dropped"))
    (waited,) = take(names, "waited")
    waited.begin(None, lambda: finished.append("waited"))
    waited.wait()
    del dropped, waited
    gc.collect()
    assert finished == ["waited"]
    names.finish_dropped()
    names.finish_dropped()
    assert finished == ["waited", "dropped"]
