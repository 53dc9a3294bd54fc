"""An epoch of an elastic job: a number, and the members that train together until one is lost."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, cast

from slipstream.comm.elastic.fields import check_fields


@dataclass(frozen=True, kw_only=True, slots=True)
class JobMember:
    """A process that belongs to an elastic job, or wants to.

    Args:
        uid: Random text that no other process has.
        host: Name of the process's host, for messages.
        address: Host and port at which the process listens for the others, as `host:port`.
        slot: Number of the process's slot in the job, which orders those that join together; -1
            (the default) if it has none.
    """

    uid: str
    host: str
    address: str
    slot: int = -1

    @property
    def place(self) -> tuple[str, int]:
        """Host and port at which the process listens."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch:
    """The members of an elastic job, from one change to the next.

    Args:
        number: Number of the epoch; every change makes it larger.
        nonce: Random text, which keeps apart two epochs with the same number that two groups of
            survivors might form.
        members: Members in the order of their ranks.
    """

    number: int
    nonce: str
    members: tuple[JobMember, ...]

    @classmethod
    def after(cls, number: int, members: Iterable[JobMember]) -> Epoch:
        """Return the epoch that follows the one with a number."""
        return cls(number=number + 1, nonce=secrets.token_hex(16), members=tuple(members))

    @property
    def leader(self) -> JobMember:
        """JobMember that decides about the next epoch as long as it lives: rank 0."""
        return self.members[0]

    @property
    def title(self) -> str:
        """Name of the epoch, which is different from the names of all others."""
        return f"epoch {self.number}-{self.nonce[:8]}"

    def is_left_behind_by(self, number: int, nonce: str, *, met: bool) -> bool:
        """Return whether another epoch shows that this one cannot go on.

        A leader that was stopped while it decided, and the others meanwhile, may form epochs with
        the same number. That of the others counts if they have met in it.

        Args:
            number: Number of the other epoch.
            nonce: Nonce of the other epoch.
            met: Whether all members of the other epoch have entered it.
        """
        return number > self.number or (number == self.number and nonce != self.nonce and met)

    def has(self, uid: str) -> bool:
        """Return whether a process is a member."""
        return any(member.uid == uid for member in self.members)

    def rank_of(self, uid: str) -> int:
        """Return the rank of a member."""
        return [member.uid for member in self.members].index(uid)


def encode(values: dict[str, Any]) -> bytes:
    """Return a message between members as bytes; members and epochs become objects of JSON."""
    return json.dumps(values, default=asdict).encode()


def decode(message: bytes) -> dict[str, Any]:
    """Return the values of a message, of which `member` and `epoch` are read if present.

    Raises:
        ValueError: the message is not one of a member.
    """
    try:
        received: Any = json.loads(message)
    except RecursionError:
        raise ValueError("it sent JSON that is nested too deeply") from None
    if not isinstance(received, dict):
        raise ValueError("it sent no object of JSON")
    values = cast("dict[str, Any]", received)
    check_fields(values)
    if "member" in values:
        values["member"] = JobMember(**values["member"])
    if "epoch" in values:
        members = tuple(JobMember(**each) for each in values["epoch"]["members"])
        values["epoch"] = Epoch(**(values["epoch"] | {"members": members}))
    return values
