"""A barrier that tells who is missing: each rank reports to rank 0, which answers all of them."""

from __future__ import annotations

import time

import torch

from slipstream import _core
from slipstream.comm.handle import keep_until_done
from slipstream.errors import PeerError, PeerTimeoutError
from slipstream.torch import collectives


class MonitoredBarrier:
    """Messages of a group of its own, so that a rank that is late disturbs no other operation.

    Args:
        group: Group of the engine; its maker closes it.
    """

    def __init__(self, group: _core.Group) -> None:
        self._group = group

    def meet(self, seconds: float, every_rank: bool) -> None:
        """Block until all ranks are here.

        Args:
            seconds: Longest wait in all.
            every_rank: Whether rank 0 names all missing ranks, and not the first one only.

        Raises:
            PeerTimeoutError: a rank did not come in time.
        """
        deadline = time.monotonic() + seconds
        if self._group.rank() == 0:
            self._collect(seconds, deadline, every_rank)
        else:
            self._report(seconds)

    def _collect(self, seconds: float, deadline: float, every_rank: bool) -> None:
        if seconds <= 0:
            raise PeerTimeoutError(
                f"Rank 0 timed out in monitoredBarrier: {seconds:g} s are no time to wait; allowed:"
                " more than 0"
            )
        peers = range(1, self._group.size())
        received = {peer: self._message(peer, seconds, receive=True) for peer in peers}
        missing: list[int] = []
        for peer, message in received.items():
            if not _arrived(message, max(0.001, deadline - time.monotonic())):
                missing.append(peer)
                if not every_rank:
                    break
        if missing:
            names = f"Rank{'s' if every_rank else ''} {', '.join(map(str, missing))}"
            raise PeerTimeoutError(
                f"{names} failed to pass monitoredBarrier in {seconds:g} s; see what they do"
            )
        for message in [self._message(peer, seconds, receive=False) for peer in peers]:
            message.handles[0].wait()

    def _report(self, seconds: float) -> None:
        try:
            self._message(0, seconds, receive=False).handles[0].wait()
            self._message(0, seconds, receive=True).handles[0].wait()
        except PeerError as error:
            raise PeerTimeoutError(
                f"Rank {self._group.rank()} successfully reached monitoredBarrier, but received"
                f" errors while waiting for send/recv from rank 0: {error}; rank 0's message names"
                " the rank that is missing"
            ) from error

    def _message(self, peer: int, seconds: float, *, receive: bool) -> collectives.Submission:
        move = collectives.receive if receive else collectives.send
        options: collectives.RunOptions = {"timeout": seconds, "waits_soon": False}
        message = move(self._group, torch.zeros(1, dtype=torch.uint8), peer, 0, options)
        # Whoever waits may give up before the engine does.
        keep_until_done(message.handles[0], (message,))
        return message


def _arrived(message: collectives.Submission, seconds: float) -> bool:
    try:
        message.handles[0].wait(seconds)
    except PeerError:
        return False
    return True
