"""Ranks that meet and then get into the trouble that the first argument names."""

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import psutil

from slipstream import _core, comm
from slipstream.comm.config import engine_config
from slipstream.errors import SlipstreamError
from slipstream.settings import Settings

LONG_SECONDS = 600.0


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def fails(call: Callable[[], object]) -> None:
    """Print the error that the call must raise, and how long it took."""
    began = time.monotonic()
    try:
        call()
    except SlipstreamError as error:
        say(f"{type(error).__name__} after {time.monotonic() - began:.1f} s: {error}")
    else:
        raise AssertionError("it did not fail")


def reduce_until_failure() -> None:
    """Call allreduce until it fails."""
    array = np.ones(1000, dtype=np.float32)
    while True:
        comm.allreduce(array, "max", name="gradient")


def killed() -> None:
    """Reduce while the test kills the last rank."""
    comm.init()
    killed_or_reducing()


def killed_or_reducing() -> None:
    """Wait to be killed or stopped on the last rank; reduce until it is on the others."""
    say("ready")
    if comm.rank() == comm.size() - 1:
        while True:
            signal.pause()
    fails(reduce_until_failure)


def survived() -> None:
    """Make a new group without the last rank, which the test kills, and go on."""
    comm.init()
    killed_or_reducing()
    rest = comm.group(list(range(comm.size() - 1)))
    came = np.ones(4, dtype=np.int64)
    rest.allreduce(came)
    say(f"{came[0]} of {comm.size()} go on")
    fails(lambda: comm.allreduce(came))


def cut() -> None:
    """Reduce, while the last rank cuts all its connections ten times."""
    comm.init()
    expected = np.full(2_000_000, sum(range(comm.size())), dtype=np.float32)
    for step in range(30):
        array = np.full_like(expected, comm.rank())
        handle = comm.allreduce(array, async_op=True)
        if step % 3 == 1 and comm.rank() == comm.size() - 1:
            time.sleep(0.005)  # the connections carry data by now
            cut_connections()
        handle.wait()
        assert np.array_equal(array, expected), step
    say(f"reopened {comm.stats().streams_reopened} of {comm.stats().streams_lost}")
    comm.barrier()
    comm.shutdown()


def cut_connections() -> None:
    """Shut down this process's connections to other ranks, as a firewall may do."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_ESTABLISHED and connection.fd >= 0:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as each:
                each.shutdown(socket.SHUT_RDWR)


def killed_with_children() -> None:
    """Reduce while the test kills the last rank, whose forked children live on."""
    comm.init()
    if comm.rank() == comm.size() - 1:
        for _ in range(2):
            child = os.fork()
            if child == 0:
                while True:
                    signal.pause()
    killed_or_reducing()


def forked() -> None:
    """Check that a child cannot use the engine and that its parent is not disturbed."""
    comm.init()
    array = np.ones(4)
    comm.allreduce(array)
    child = os.fork()
    if child == 0:
        for call in (
            lambda: comm.allreduce(np.ones(4)),
            comm.barrier,
            lambda: comm.group([comm.rank()]),
            lambda: comm.send(np.ones(4), 1 - comm.rank()),
        ):
            fails(call)
        comm.stats()
        sys.exit(0)  # runs what is registered for the exit
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    for _ in range(10):
        comm.allreduce(array, "max")
    say(f"parent has {array[0]:.0f}")


def aborted() -> None:
    """Rank 0 ends what all ranks wait for, from another thread."""
    comm.init()
    if comm.rank() == 0:
        comm.barrier()
        timer = threading.Timer(0.3, lambda: comm.world().abort("the user pressed stop"))
        timer.start()
        fails(lambda: comm.recv(np.empty(4), 1))
        timer.join()
    else:
        comm.barrier()
        fails(lambda: comm.recv(np.empty(4), 0))
    fails(comm.barrier)
    comm.shutdown()
    comm.init()
    say(f"{comm.allreduce(np.ones(1))[0]:.0f} ranks again")


def timed_out() -> None:
    """Give up after the timeout, because the last rank never submits."""
    comm.init()
    if comm.rank() == comm.size() - 1:
        say("waits for the others to fail")
        fails(lambda: comm.recv(np.empty(1), 0, name="never", timeout=LONG_SECONDS))
        return
    fails(lambda: comm.allreduce(np.ones(8), name="late", timeout=1.0))


def waited() -> None:
    """wait() gives up, the operation goes on."""
    comm.init()
    if comm.rank() == 0:
        array = np.ones(8)
        handle = comm.allreduce(array, name="patient", async_op=True)
        fails(lambda: handle.wait(0.2))
        assert not handle.done()
        comm.send(np.ones(1), 1, tag=1)
        say(f"{handle.wait()[0]:.0f} came of it")
    else:
        comm.recv(np.empty(1), 0, tag=1)
        comm.allreduce(np.ones(8), name="patient")


def straggling() -> None:
    """Let the last rank submit only when the others have reported it."""
    comm.init()
    if comm.rank() == comm.size() - 1:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        say("ready")
        signal.pause()
    comm.allreduce(np.ones(8), name="late gradient")
    say(f"done, {comm.stats().stalls_reported} stalls reported")


def idle() -> None:
    """Waiting for a rank that is late costs no processor time, whoever drives."""
    comm.init()
    comm.barrier()
    if comm.rank() == comm.size() - 1:
        time.sleep(2.0)
    used, began_at = time.process_time(), time.monotonic()
    comm.allreduce(np.ones(8))
    share = (time.process_time() - used) / (time.monotonic() - began_at)
    say(f"used {share:.2f} of a core")
    comm.barrier()


def mismatched(what: str) -> None:
    """Pass something different on each rank."""
    comm.init()
    rank = comm.rank()
    if what == "size":
        fails(lambda: comm.allreduce(np.ones(8 + rank, dtype=np.float32), name="weights"))
    elif what == "dtype":
        dtype = np.float32 if rank == 0 else np.int32
        fails(lambda: comm.allreduce(np.ones(8, dtype), name="weights"))
    elif what == "operation":
        fails(lambda: comm.allreduce(np.ones(8), "sum" if rank == 0 else "max", name="weights"))
    elif what == "collective":
        fails(lambda: comm.barrier() if rank == 0 else comm.allreduce(np.ones(8), name="weights"))
    elif what == "root":
        # Either root is done as soon as it has sent: the next operation has to tell.
        fails(lambda: (comm.broadcast(np.ones(8), rank, name="weights"), comm.barrier()))
    else:
        raise AssertionError(what)


def wrong() -> None:
    """Check that calls that are wrong on this rank only do no harm to the group."""
    comm.init()
    read_only = np.ones(4)
    read_only.flags.writeable = False
    for call in (
        lambda: comm.allreduce([1.0, 2.0]),
        lambda: comm.allreduce(np.ones((4, 4))[:, 1]),
        lambda: comm.allreduce(read_only),
        lambda: comm.allreduce(np.ones(4), "mean"),
        lambda: comm.allreduce(np.ones(4), out=np.ones(5)),
        lambda: comm.allreduce(np.ones(4), out=np.ones(4, dtype=np.float32)),
        lambda: comm.allreduce(np.ones(4, dtype=complex), "max"),
        lambda: comm.allreduce(np.array(["a"])),
        lambda: comm.broadcast(np.ones(4), src=1),
        lambda: comm.broadcast(np.ones(4), comm.size()),
        lambda: comm.send(np.ones(4), comm.rank()),
        lambda: comm.send(np.ones(4), -2),
        lambda: comm.reduce_scatter(np.ones(comm.size() + 1)),
        lambda: comm.all_to_all(np.ones(())),
        lambda: comm.all_gather_v(np.ones(4), [4]),
        lambda: comm.all_to_all_v(np.ones(4), [4] * comm.size(), [-1] * comm.size()),
        lambda: comm.scatter(None, np.ones(4), comm.rank()),
        lambda: comm.group([0, 0]),
        lambda: comm.group([comm.size()]),
    ):
        fails(call)
    say(f"{comm.allreduce(np.ones(1))[0]:.0f} ranks still")


def meeting() -> None:
    """Only meet; say what became of it."""
    try:
        comm.init()
    except SlipstreamError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        say(f"met: {comm.allreduce(np.ones(1))[0]:.0f} ranks")
        comm.shutdown()


def meeting_late() -> None:
    """Meet when the others have knocked in vain for a while."""
    if os.environ["RANK"] == "0":
        time.sleep(2)
    meeting()


def reborn() -> None:
    """After leaving, a forked child may join, although its parent has an engine open still."""
    comm.init()
    comm.shutdown()
    config = engine_config(Settings.from_environment(), None)
    left = _core.Runtime(rank=0, world_size=1, epoch=1, key=bytes(32), config=config)
    child = os.fork()
    if child == 0:
        comm.init()
        print(f"{comm.allreduce(np.ones(1))[0]:.0f} children met", flush=True)
        comm.shutdown()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    left.close()


def ages() -> None:
    """Leave and join again 100 times, with work in between; then reduce often: nothing grows."""
    process = psutil.Process()

    def used() -> tuple[int, int, float]:
        gc.collect()
        return process.num_fds(), process.num_threads(), process.memory_info().rss / 2**20

    def settled(before: tuple[int, int, float]) -> tuple[int, int, float]:
        """Return the resources in use, once threads and files that are about to end have gone."""
        end = time.monotonic() + 5
        while (now := used()) and (now[0] > before[0] or now[1] > before[1]):
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        return now

    array = np.ones(20_000, dtype=np.float32)
    after: list[tuple[int, int, float]] = []
    for _ in range(100):
        comm.init()
        comm.allreduce(array, "max")
        comm.barrier()
        comm.shutdown()
        after.append(settled(after[-1]) if after else used())
    comm.init()
    small = np.ones(1000, dtype=np.float32)
    for index in range(10_000):
        comm.allreduce(small, "max")
        if index == 1000:
            early = used()
    late = settled(early)
    comm.barrier()
    say(f"cycles {after[9]} {after[99]} reductions {early} {late}")
    for before, now in ((after[9], after[99]), (early, late)):
        assert now[0] <= before[0], (before, now)
        assert now[1] <= before[1], (before, now)
        assert now[2] - before[2] < 10, (before, now)


def leaving() -> None:
    """Leave as soon as the last operation is done here."""
    comm.init()
    for _ in range(5):
        comm.allreduce(np.ones(3_000_000, dtype=np.float32), "max")
    say("done")


def lingering() -> None:
    """Stay in the job while the test knocks at the engine's door."""
    comm.init()
    say("ready")
    signal.signal(signal.SIGUSR1, lambda *_: None)
    if comm.rank() == 0:
        signal.pause()
    say(f"{comm.allreduce(np.ones(1))[0]:.0f} ranks still")


def two_threads() -> None:
    """Use two groups in two threads at once, in opposite orders on different ranks."""
    comm.init()
    groups = [comm.group(range(comm.size()), f"group {index}") for index in range(2)]
    if comm.rank() % 2:
        groups.reverse()
    wrong: list[str] = []

    def reduce_often(group: comm.Group) -> None:
        for count in (1, 1000, 100_000) * 20:
            array = np.ones(count, dtype=np.float32)
            group.allreduce(array)
            if (array != comm.size()).any():
                wrong.append(f"{group.name}, {count}: {array}")

    threads = [threading.Thread(target=reduce_often, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    say("both are right")


def dropped() -> None:
    """Check that the engine keeps the memory of handles and arrays that are dropped."""
    comm.init()
    for index in range(200):
        comm.allreduce(np.full(50_000, index, dtype=np.float32), "max", async_op=True)
    array = comm.allreduce(np.full(1000, comm.rank()))
    assert (array == comm.size() * (comm.size() - 1) // 2).all()
    say("the last one is right")


SCENARIOS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        aborted,
        ages,
        cut,
        dropped,
        forked,
        idle,
        killed,
        killed_with_children,
        leaving,
        lingering,
        meeting,
        meeting_late,
        mismatched,
        reborn,
        straggling,
        survived,
        timed_out,
        two_threads,
        waited,
        wrong,
    )
}


def main() -> None:
    """Do what the arguments say, with the engine's log on the standard error."""
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.INFO)
    SCENARIOS[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
