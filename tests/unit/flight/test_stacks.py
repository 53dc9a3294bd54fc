"""Stacks of threads and exceptions."""

import sys
import threading

from slipstream.errors import PeerError
from slipstream.flight.facts import innermost
from slipstream.flight.stacks import error_in_words, stacks_of_threads


def test_every_thread_is_there_and_the_main_thread_is_first() -> None:
    ready, done = threading.Event(), threading.Event()

    def wait_in_thread() -> None:
        ready.set()
        done.wait()

    thread = threading.Thread(target=wait_in_thread, name="loader")
    thread.start()
    ready.wait()
    stacks = stacks_of_threads()
    done.set()
    thread.join()
    assert stacks[0].name == threading.main_thread().name
    (loader,) = (stack for stack in stacks if stack.name == "loader")
    place = innermost(loader.lines)
    assert place is not None
    assert (place.function, place.code) == ("wait_in_thread", "done.wait()")
    assert not place.is_library
    assert loader.lines[-1].is_library  # threading.py


def raised(error: BaseException) -> tuple[bool, str]:
    try:
        try:
            raise KeyError("inner")
        except KeyError as cause:
            raise error from cause
    except (ValueError, PeerError):
        kind, value, trace = sys.exc_info()
        assert kind is not None
        words = error_in_words(kind, value, trace)
        assert words.causes == ("KeyError: 'inner'",)
        assert words.lines[-1].function == "raised"
        return words.is_communication, words.type


def test_errors_of_communication_are_told_from_others() -> None:
    assert raised(ValueError("x")) == (False, "ValueError")
    assert raised(PeerError("rank 1 is gone")) == (True, "slipstream.errors.PeerError")


def test_an_exception_that_a_lost_rank_caused_counts_as_communication() -> None:
    try:
        try:
            raise PeerError("rank 1 is gone")
        except PeerError:
            raise ValueError("the handler fails too")  # noqa: B904
    except ValueError as error:
        words = error_in_words(type(error), error, error.__traceback__)
    assert words.is_communication
