"""The way from one epoch to the next, as the leader decides it and the others follow it.

The first member of the epoch that still lives leads. All others come to it, each with the members
whose connections it has lost. When every member has come or is dead, the leader forms the next
epoch of those that can reach each other. Two halves of a parted network cannot both go on: without
more than half of the members, a leader goes on only if the others are dead for certain, because
nobody listens at their addresses any more.

If nobody joins, the survivors keep their engine with its connections. If somebody joins, all make
new engines, and each tells the leader its engine's address. So do members that have lost each other
but not the leader, if some seconds have shown that none of their groups may go on alone: links that
failed one after the other have parted them, and are whole again.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from slipstream.comm.auth import Claim
from slipstream.comm.channel import Channel, open_channel
from slipstream.comm.elastic.epoch import Epoch, JobMember, decode, encode
from slipstream.comm.elastic.listener import (
    MESSAGE_LIMIT_BYTES,
    SILENT_SECONDS,
)
from slipstream.errors import AuthError, ConfigError, PeerError, PeerTimeoutError

NOBODY = Claim(rank=0, world_size=0, epoch=0)  # members say who they are in their first message

# Time limits for contact with a member that may be dead, and with one that lives.
_SUSPECT_SECONDS = 0.5
CONTACT_SECONDS = 1.0
_SIGNS_OF_A_SUSPECT = 2  # signs of life of a member that lets this process wait: 1 to 2 s
_REPORT_SECONDS = 10.0  # time between two log lines of a rank that waits

_log = logging.getLogger(__name__)


class TooFewRanksError(PeerTimeoutError):
    """Start more processes: no new epoch was formed within the time limit."""


class Patience:
    """The time that forming an epoch may take, over all its attempts.

    Args:
        seconds: Time limit in seconds.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._report_at = time.monotonic() + _REPORT_SECONDS

    @property
    def spent_seconds(self) -> float:
        """Time in seconds since the first attempt began."""
        return time.monotonic() - self._began

    def report(self, state: Callable[[], str]) -> None:
        """Log the state now and then.

        Args:
            state: Function that returns what is waited for, in words.

        Raises:
            TooFewRanksError: the time limit has passed.
        """
        now = time.monotonic()
        if now >= self._deadline:
            raise TooFewRanksError(
                f"no new epoch was formed within {self.seconds:g} s: {state()}; start more"
                " processes, or lower SLIPSTREAM_MIN_RANKS. Without more than half of the last"
                " epoch's ranks, the rest goes on only if the missing ones are known to be dead"
            )
        if now >= self._report_at:
            self._report_at = now + _REPORT_SECONDS
            _log.warning("this rank waits to form a new epoch: %s", state())


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What a member knows when it needs another epoch.

    Args:
        me: This process.
        epoch: Epoch of this process.
        lost: Function that returns the members with which its engine has no connection.
        leaves: Whether this process wants to leave.
        admits: Whether processes that wait to join become members.
        min_ranks: Smallest number of members of the next epoch.
        max_ranks: Largest number of members.
        expected: Function that returns the slots of processes that will join and are waited for.
        whole_hosts: Whether all members on the host of a lost member leave.
        patience: Time limit, and the reports until then.
    """

    me: JobMember
    epoch: Epoch
    lost: Callable[[], Collection[str]]
    leaves: bool
    admits: bool
    min_ranks: int
    max_ranks: int
    expected: Callable[[], Collection[int]]
    whole_hosts: bool
    patience: Patience


@dataclass(frozen=True, kw_only=True, slots=True)
class Formed:
    """The next epoch, as its leader has decided.

    Args:
        epoch: Next epoch.
        keeps: Whether the members keep their engine; if not, they make new ones.
        exchange: Function that exchanges the addresses of new engines.
    """

    epoch: Epoch
    keeps: bool
    exchange: Callable[[bytes], list[bytes]]


class OutError(PeerError):
    """The others have gone on without this process, which may join them again."""


class LeftError(PeerError):
    """This process has left the job, as it wanted to."""


class OverError(PeerError):
    """The job is over: its training has ended."""


class UnreachableError(PeerError):
    """A member cannot be reached, or no longer answers."""


class Conversation:
    """A connection to a member at which this process waits.

    Args:
        member: Host and port of the member.
        key: Key of the job.
        seconds: Time limit in seconds for the contact.

    Raises:
        UnreachableError: the member does not answer.
        AuthError: the member has another job key.
    """

    def __init__(self, member: tuple[str, int], key: bytes, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        try:
            self._channel: Channel = open_channel(*member, key=key, claim=NOBODY, deadline=deadline)
        except OSError as error:
            raise UnreachableError(f"nobody answers at {member[0]}:{member[1]}: {error}") from error

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def say(self, values: dict[str, Any]) -> None:
        """Send a message."""
        try:
            self._channel.send(encode(values))
        except OSError as error:
            raise UnreachableError(f"the leader is gone: {error}") from error

    def hear(self, look: Callable[[], None], lives: Callable[[], None]) -> dict[str, Any]:
        """Return the next answer that is more than a sign of life.

        Args:
            look: Function that is called now and then, and may end the wait by an error.
            lives: Function that is called at each sign of life.
        """
        while True:
            try:
                deadline = time.monotonic() + SILENT_SECONDS
                values = decode(self._channel.receive(deadline, MESSAGE_LIMIT_BYTES, look))
            except (OSError, ValueError, AuthError) as error:
                raise UnreachableError(f"the leader is gone: {error}") from error
            if values.get("say") != "wait":
                return values
            lives()

    def decision(
        self, look: Callable[[], None], lives: Callable[[], None] = lambda: None
    ) -> Formed | JobMember:
        """Wait for the leader's decision; return it, or the member that leads instead.

        Args:
            look: Function that is called now and then, and may end the wait by an error.
            lives: Function that is called at each sign of life (default: does nothing).

        Raises:
            OutError, LeftError, OverError: the leader forms no epoch with this process.
            UnreachableError: the leader is gone.
        """
        values = self.hear(look, lives)
        match values.get("say"):
            case "form":
                return Formed(epoch=values["epoch"], keeps=values["keeps"], exchange=self._exchange)
            case "go":
                return values["member"]
            case "left":
                raise LeftError("this process has left the job")
            case "over":
                raise OverError("the training has ended")
            case "elsewhere":
                raise UnreachableError("the leader has lost the connection to this rank")
            case _:
                raise OutError(values.get("why", "the others went on without this process"))

    def _exchange(self, address: bytes) -> list[bytes]:
        self.say({"engine": address.hex()})
        values = self.hear(lambda: None, lambda: None)
        if values.get("say") != "addresses":
            raise UnreachableError("the leader tries once more")
        return [bytes.fromhex(each) for each in values["addresses"]]


def is_dead(member: JobMember, key: bytes, epoch: Epoch) -> bool:
    """Return whether a member's process is gone for certain: its port is closed or another's.

    Args:
        member: JobMember with which there is no connection.
        key: Key of the job.
        epoch: Epoch of this process.

    Raises:
        OutError: the member is in another epoch, which goes on without this process.
    """
    try:
        deadline = time.monotonic() + _SUSPECT_SECONDS
        with open_channel(*member.place, key=key, claim=NOBODY, deadline=deadline) as channel:
            channel.send(encode({"ask": "who"}))
            answer = decode(channel.receive(deadline, MESSAGE_LIMIT_BYTES))
            is_same = answer["member"].uid == member.uid
            theirs = int(answer["number"]), str(answer["nonce"])
            is_behind = epoch.is_left_behind_by(*theirs, met=bool(answer["met"]))
    except ConnectionRefusedError:
        return True
    except (AuthError, ConfigError):  # the port belongs to another program now
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if is_behind:
        raise OutError("the others have gone on while this rank did not answer")
    return not is_same


def follow(
    standing: Standing, leader: JobMember, key: bytes, *, met: Callable[[], None]
) -> tuple[Conversation, Formed | JobMember]:
    """Go to the member that may lead, and wait for its decision.

    Args:
        standing: Knowledge and wishes of this process.
        leader: Member that may lead.
        key: Key of the job.
        met: Function that is called once the member lets this process wait. A member whose
            connections are lost often sends it away instead, so its second sign of life counts.

    Raises:
        UnreachableError: the member is gone, or does not answer.
        OutError, LeftError, OverError: the leader forms no epoch with this process.
    """
    suspect = leader.uid in standing.lost()
    seconds = _SUSPECT_SECONDS if suspect else CONTACT_SECONDS
    conversation = Conversation(leader.place, key, seconds)
    num_signs = itertools.count(1)

    def lives() -> None:
        if suspect and next(num_signs) == _SIGNS_OF_A_SUSPECT:
            met()

    try:
        if not suspect:
            met()
        conversation.say(
            {
                "ask": "survive",
                "member": standing.me,
                "epoch": standing.epoch,
                "lost": sorted(standing.lost()),
                "leaves": standing.leaves,
            }
        )
        return conversation, conversation.decision(lambda: None, lives)
    except BaseException:
        conversation.__exit__()
        raise
