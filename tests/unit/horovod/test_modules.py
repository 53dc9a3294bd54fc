"""What scripts and tests written for Horovod import beside the framework's module."""

import os
import threading

import pytest

from slipstream.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.common.util import (
    _cache,
    env,
    extension_available,
    gloo_built,
    gpu_available,
    is_iterable,
    mpi_built,
    num_rank_is_power_2,
    split_list,
)
from slipstream.horovod.runner.util.threads import in_thread


def test_variables_are_changed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "before")
    with env(KEPT="within", NEW="1", LEFT=None):
        assert (os.environ["KEPT"], os.environ["NEW"]) == ("within", "1")
    assert os.environ["KEPT"] == "before"
    assert "NEW" not in os.environ
    assert "LEFT" not in os.environ


def test_a_function_that_is_cached_is_called_once_for_each_argument() -> None:
    calls: list[int] = []

    @_cache
    def doubled(number: int) -> int:
        calls.append(number)
        return 2 * number

    assert [doubled(each) for each in (1, 2, 1)] == [2, 4, 2]
    assert calls == [1, 2]


def test_lists_are_split_evenly() -> None:
    assert split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert split_list([1], 2) == [[1], []]


def test_small_questions() -> None:
    assert [each for each in range(9) if num_rank_is_power_2(each)] == [1, 2, 4, 8]
    assert is_iterable([])
    assert not is_iterable(3)
    assert extension_available("torch", verbose=True)
    assert not extension_available("mxnet")
    assert not gpu_available("torch")
    assert (gloo_built(), mpi_built(verbose=True)) == (True, False)


def test_threads() -> None:
    seen: list[int] = []
    in_thread(seen.append, (3,), name="one", daemon=False).join()
    assert seen == [3]

    def fail() -> None:
        raise RuntimeError("nobody hears of it")

    thread = in_thread(fail, silent=True)
    thread.join()
    assert isinstance(thread, threading.Thread)
    with pytest.raises(ValueError, match="for a single argument use"):
        in_thread(print, "no tuple")


def test_exceptions_and_process_sets_have_horovods_places() -> None:
    assert issubclass(HorovodInternalError, RuntimeError)
    assert HostsUpdatedInterrupt(skip_sync=True).skip_sync
    assert global_process_set.process_set_id == 0
    assert ProcessSet([2, 1]).ranks == [1, 2]
