"""Barrier that names missing ranks: each rank reports to rank 0, which answers all ranks."""

from __future__ import annotations

import time

import torch

from slipstream import _core
from slipstream.comm.handle import keep_until_done
from slipstream.errors import PeerError, PeerTimeoutError
from slipstream.torch import collectives


class MonitoredBarrier:
    """Barrier whose messages have a group of their own, so a late rank delays no other messages.

    Args:
        group: The engine's own object for the group; the caller closes it.
    """

    def __init__(self, group: _core.Group) -> None:
        self._group = group

    def meet(self, seconds: float, every_rank: bool) -> None:
        """Block until all ranks have called meet().

        Args:
            seconds: Longest time in seconds to wait for all ranks together.
            every_rank: Whether rank 0 names all missing ranks; otherwise rank 0 names only the
                first missing rank.

        Raises:
            PeerTimeoutError: A rank did not come in time.
        """
        deadline = time.monotonic() + seconds
        if self._group.rank() == 0:
            self._collect(seconds, deadline, every_rank)
        else:
            self._report(seconds)

    def _collect(self, seconds: float, deadline: float, every_rank: bool) -> None:
        if seconds <= 0:
            raise PeerTimeoutError(
                f"Rank 0 timed out in monitoredBarrier: the timeout is {seconds:g} s; allowed: more"
                " than 0"
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
                f"{names} failed to pass monitoredBarrier in {seconds:g} s; check these processes"
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
                f" errors while waiting for send/recv from rank 0: {error}; the error of rank 0"
                " names the missing rank"
            ) from error

    def _message(self, peer: int, seconds: float, *, receive: bool) -> collectives.Submission:
        move = collectives.receive if receive else collectives.send
        options: collectives.RunOptions = {"timeout": seconds, "waits_soon": False}
        message = move(self._group, torch.zeros(1, dtype=torch.uint8), peer, 0, options)
        # The buffer must live until the engine is done, even if the caller stops waiting earlier.
        keep_until_done(message.handles[0], (message,))
        return message


def _arrived(message: collectives.Submission, seconds: float) -> bool:
    try:
        message.handles[0].wait(seconds)
    except PeerError:
        return False
    return True
