"""Ranks that negotiate, as the first argument says."""

import os
import random
import sys
import threading
from collections.abc import Callable

import numpy as np

from slipstream import _core, comm
from slipstream.comm.negotiator import Negotiator, NegotiatorConfig, Tensor
from slipstream.errors import AbortedError, MismatchError, PeerError, UsageError

LIMIT_SECONDS = 60.0


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def tensor(name: str, *shape: int) -> Tensor:
    """Return what ranks agree on for a float32 tensor."""
    return Tensor(name, _core.DType.FLOAT32, shape or (256,))


def orders() -> None:
    """Reduce tensors that each rank has in another order, in the one that all agree on."""
    group = comm.init()
    negotiator = Negotiator(group)
    agreed: list[int] = []
    for step in range(5):
        tokens = list(range(50))
        random.Random(f"{comm.rank()} {step}").shuffle(tokens)
        arrays = {token: np.full(256, token + comm.rank(), np.float32) for token in tokens}
        for token in tokens:
            negotiator.submit(tensor(f"gradient {token}"), token)
        ready: list[int] = []
        while len(ready) < len(tokens):
            outcome = negotiator.next(LIMIT_SECONDS)
            assert outcome is not None
            for each in outcome.ready:
                assert each.submitted
                assert each.tensor.name == f"gradient {each.token}"
                comm.allreduce(arrays[each.token])
                ready.append(each.token)
        assert sorted(ready) == sorted(tokens)
        others = comm.size() * (comm.size() - 1) // 2
        for token, array in arrays.items():
            assert (array == token * comm.size() + others).all()
        agreed += ready
    everywhere = comm.all_gather(np.array(agreed, np.int64))
    assert (everywhere == everywhere[0]).all()
    assert negotiator.stats().tensors == len(agreed)
    negotiator.close()
    say("agreed")


def mismatch() -> None:
    """Pass different shapes, and then the same."""
    negotiator = Negotiator(comm.init())
    negotiator.submit(tensor("weight", 3, 4 + comm.rank() // 2), token=7)
    outcome = negotiator.next(LIMIT_SECONDS)
    assert outcome is not None
    assert [(each.tensor.name, each.token) for each in outcome.failed] == [("weight", 7)]
    try:
        outcome.failed[0].check()
    except MismatchError as error:
        say(str(error))
    negotiator.submit(tensor("weight", 3, 4))
    outcome = negotiator.next(LIMIT_SECONDS)
    assert outcome is not None
    assert outcome.ready[0].tensor.shape == (3, 4)
    negotiator.close()


def joined() -> None:
    """Have more data on higher ranks; fuse two tensors in each step."""
    negotiator = Negotiator(comm.init())
    parts = [tensor("first"), tensor("second")]
    for step in range(3 + comm.rank()):
        negotiator.submit_fused(parts, [2 * step, 2 * step + 1])
        outcome = negotiator.next(LIMIT_SECONDS)
        assert outcome is not None
        assert [each.token for each in outcome.ready] == [2 * step, 2 * step + 1]
        assert len({each.fused for each in outcome.ready}) == 1
    negotiator.join()
    without_data = 0
    while True:
        outcome = negotiator.next(LIMIT_SECONDS)
        assert outcome is not None
        without_data += sum(not each.submitted for each in outcome.ready)
        if outcome.last_joined is not None:
            break
    assert without_data == 2 * (comm.size() - 1 - comm.rank())
    say(f"rank {outcome.last_joined} was the last to join")
    negotiator.close()


def left() -> None:
    """Have the last rank leave while the others wait for it."""
    negotiator = Negotiator(comm.init(), NegotiatorConfig(hold_seconds=0.05))
    if comm.rank() == comm.size() - 1:
        say("leaves")
        return
    negotiator.submit(tensor("waits"))
    outcome = negotiator.next(LIMIT_SECONDS)
    assert outcome is not None
    try:
        outcome.failed[0].check()
    except (AbortedError, PeerError) as error:
        say(str(error))
    try:
        negotiator.submit(tensor("more"))
    except (AbortedError, PeerError):
        say("and fails from then on")


def forked() -> None:
    """Fork while another thread waits; the child may not use the negotiator, and ends."""
    negotiator = Negotiator(comm.init())
    outcomes: list[object] = []
    waiting = threading.Thread(target=lambda: outcomes.append(negotiator.next(LIMIT_SECONDS)))
    waiting.start()
    child = os.fork()
    if child == 0:
        try:
            negotiator.submit(tensor("x"))
        except UsageError as error:
            say(str(error))
        del negotiator
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    negotiator.submit(tensor("x"))
    waiting.join(LIMIT_SECONDS)
    assert outcomes != [None]
    negotiator.close()


def wrong() -> None:
    """Call it as it must not be called."""
    negotiator = Negotiator(comm.init())
    negotiator.submit(tensor("x"))
    calls: list[Callable[[], object]] = [
        lambda: negotiator.submit_fused([tensor("a"), tensor("a")], [0, 1]),
        lambda: negotiator.submit(tensor("")),
        lambda: negotiator.submit_fused([tensor("y")], []),
        lambda: Tensor("z", _core.DType.FLOAT32, (1,), collective="allreduction"),
        lambda: Tensor("z", _core.DType.FLOAT32, (1,), codec="fp12"),
    ]
    for call in calls:
        try:
            call()
        except UsageError as error:
            say(str(error))
    negotiator.close()


if __name__ == "__main__":
    SCENARIOS: dict[str, Callable[[], None]] = {
        "orders": orders,
        "mismatch": mismatch,
        "joined": joined,
        "left": left,
        "forked": forked,
        "wrong": wrong,
    }
    SCENARIOS[sys.argv[1]]()
    comm.shutdown()
