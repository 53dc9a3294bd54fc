"""Arrays live until the engine is done with them, whatever becomes of the handle."""

import gc
import weakref

import numpy as np
import pytest

from slipstream import _core, comm
from slipstream.comm.handle import keep_until_done, release_done


@pytest.mark.slow("dropped operation")
def test_what_a_dropped_operation_writes_to_lives_until_it_is_done(
    pair: list[_core.Runtime],
) -> None:
    groups = [comm.Group(runtime.group("two", [0, 1])) for runtime in pair]
    out = np.zeros(4)
    alive = weakref.ref(out)
    handle = groups[1].recv(out, 0, async_op=True)
    del out, handle
    gc.collect()
    release_done()
    assert alive() is not None
    again = groups[1].recv(np.zeros(4), 0, async_op=True)
    groups[0].send(np.ones(4), 1)
    groups[0].send(np.ones(4), 1)
    again.wait(10.0)
    release_done()
    gc.collect()
    assert alive() is None


@pytest.mark.slow("dropped operation")
def test_what_is_kept_goes_only_when_its_own_operation_is_done(pair: list[_core.Runtime]) -> None:
    groups = [runtime.group("two", [0, 1]) for runtime in pair]
    arrays = [np.zeros(4), np.zeros(4)]
    handles = [
        groups[1].recv(each.ctypes.data, 4, _core.DType.FLOAT64, 0, tag)
        for tag, each in enumerate(arrays)
    ]
    alive = [weakref.ref(each) for each in arrays]
    for handle, each in zip(handles, arrays, strict=True):
        keep_until_done(handle, (each,))
    del arrays, each
    source = np.ones(4)
    for tag, left in ((1, [True, False]), (0, [False, False])):
        groups[0].send(source.ctypes.data, 4, _core.DType.FLOAT64, 1, tag).wait()
        handles[tag].wait(10.0)
        release_done()
        gc.collect()
        assert [each() is not None for each in alive] == left
