"""The first living member of an epoch, which forms the next one."""

from __future__ import annotations

import time
from collections.abc import Collection

from slipstream.comm.elastic.epoch import Epoch, JobMember
from slipstream.comm.elastic.formation import (
    CONTACT_SECONDS,
    Formed,
    LeftError,
    OutError,
    Standing,
    UnreachableError,
    is_dead,
)
from slipstream.comm.elastic.listener import Arrival, MemberListener

_ADDRESS_SECONDS = 30.0  # time that members and joiners have to make an engine
_PROBE_SECONDS = 1.0  # time between two questions to a member that is lost
_PAUSE_SECONDS = 0.05
# Time without a new epoch after which members that have lost each other meet by new engines; the
# longest after which ranks notice that they have lost each other. Chosen by hand.
_REUNION_SECONDS = 5.0


class Leader:
    """The first living member of an epoch, while it forms the next one.

    Args:
        standing: Knowledge and wishes of this process.
        listener: MemberListener at which the others arrive.
        key: Key of the job.
    """

    def __init__(self, standing: Standing, listener: MemberListener, key: bytes) -> None:
        self._standing = standing
        self._listener = listener
        self._key = key
        self._may_follow_from = time.monotonic() + CONTACT_SECONDS
        self._dead: set[str] = set()
        self._probe_at: dict[str, float] = {}

    def form(self) -> Formed:
        """Wait for the others and decide.

        Raises:
            TooFewRanksError: too few members were left, and too few came in time.
            LeftError: this process itself leaves.
            OutError: the others have gone on without this process.
            UnreachableError: this process should look once more for a member that leads.
        """
        while True:
            if self._base().number > self._standing.epoch.number:
                raise OutError("the others have gone on while this rank did not answer")
            if not (self._may_go_on() or self._may_reunite):
                self._send_lost_away()
            has_everybody = self._has_everybody()
            if has_everybody and self._may_go_on():
                survivors = self._survivors()
                joiners = self._joiners(survivors)
                few = len(survivors) + len(joiners) < self._standing.min_ranks
                if self._leaves or not (few or self._expects(survivors, joiners)):
                    return self._decide(survivors, joiners)
            else:
                self._look_for_dead()
                if has_everybody and not self._may_reunite:
                    self._send_away()
                # Two that lead at once must not wait for each other: the later one looks again.
                if time.monotonic() > self._may_follow_from and self._may_follow():
                    raise UnreachableError("another member may lead")
            self._standing.patience.report(self._state)
            self._listener.wait(_PAUSE_SECONDS)

    def _may_follow(self) -> bool:
        """Return whether a member before this one is not known to be dead."""
        gone = self._gone()
        first = next(each for each in self._base().members if each.uid not in gone)
        return first.uid != self._standing.me.uid

    def _base(self) -> Epoch:
        """Return the newest epoch that anybody knows."""
        epochs = [each.wish["epoch"] for each in self._listener.arrivals("survive")]
        return max([self._standing.epoch, *epochs], key=lambda epoch: epoch.number)

    @property
    def _may_reunite(self) -> bool:
        """Whether members that have lost each other may be in one epoch, with new engines."""
        return self._standing.patience.spent_seconds >= _REUNION_SECONDS

    def _present(self) -> dict[str, Arrival]:
        """Return the members that have come and may be in one epoch."""
        connected, arrived = self._connected(), self._arrived()
        if self._is_enough(connected) or not self._may_reunite or not self._is_enough(arrived):
            return connected
        return arrived

    def _arrived(self) -> dict[str, Arrival]:
        """Return all members that have come, in the order of their ranks."""
        base = self._base()
        arrivals = [
            each for each in self._listener.arrivals("survive") if base.has(each.member.uid)
        ]
        arrivals.sort(key=lambda each: base.rank_of(each.member.uid))
        return {each.member.uid: each for each in arrivals}

    def _connected(self) -> dict[str, Arrival]:
        """Return the members that have come, without those that another member has lost."""
        lost = set(self._standing.lost())
        connected: dict[str, Arrival] = {}
        for uid, arrival in self._arrived().items():
            cut_off = {self._standing.me.uid, *connected} & set(arrival.wish["lost"])
            if uid not in lost and not cut_off:
                connected[uid] = arrival
                lost |= set(arrival.wish["lost"])
        return connected

    def _missing(self) -> list[JobMember]:
        here = {self._standing.me.uid, *self._present()}
        here |= {each.member.uid for each in self._listener.arrivals("survive")}
        return [member for member in self._base().members if member.uid not in here]

    def _send_lost_away(self) -> None:
        """Let members that cannot be in this process's epoch look for another leader."""
        lost = self._standing.lost()
        for arrival in self._listener.arrivals("survive"):
            if arrival.member.uid in lost:
                self._listener.tell(arrival, {"say": "elsewhere"}, last=True)

    def _send_away(self) -> None:
        """Let members that this one has lost look for another leader."""
        present = self._present()
        for arrival in self._listener.arrivals("survive"):
            if arrival.member.uid not in present:
                self._listener.tell(arrival, {"say": "elsewhere"}, last=True)

    def _look_for_dead(self) -> None:
        lost = self._standing.lost()
        for member in self._missing():
            if member.uid not in lost or member.uid in self._dead:
                continue
            if time.monotonic() < self._probe_at.get(member.uid, 0.0):
                continue
            if is_dead(member, self._key, self._standing.epoch):
                self._dead.add(member.uid)
            self._probe_at[member.uid] = time.monotonic() + _PROBE_SECONDS

    def _gone(self) -> set[str]:
        """Return the members that are in no group of survivors, and can never be in one again.

        A member that waits here to join has forgotten its epoch: it has heard that a later one
        exists, which perhaps the others have never heard of.
        """
        return self._dead | {each.member.uid for each in self._listener.arrivals("join")}

    def _has_everybody(self) -> bool:
        """Return whether every member has come or is lost; those that live are waited for."""
        lost = {*self._gone(), *self._standing.lost()}
        return all(member.uid in lost for member in self._missing())

    def _may_go_on(self) -> bool:
        """Return whether no other group of survivors can go on as well."""
        return self._is_enough(self._present())

    def _is_enough(self, present: Collection[str]) -> bool:
        """Return whether this member and those present may go on, whatever the others do."""
        base = self._base()
        here, gone = {self._standing.me.uid, *present}, self._gone()
        if all(member.uid in here or member.uid in gone for member in base.members):
            return True
        majority = 2 * len(here) > len(base.members)
        return majority or (2 * len(here) == len(base.members) and base.leader.uid in here)

    @property
    def _leaves(self) -> bool:
        """Whether this process does not belong to the next epoch."""
        return self._standing.leaves or self._standing.me.host in self._broken_hosts()

    def _broken_hosts(self) -> set[str]:
        """Return the hosts whose members all leave, because one of them is lost."""
        if not self._standing.whole_hosts:
            return set()
        return {member.host for member in self._missing()}

    def _expects(self, survivors: list[JobMember], joiners: list[JobMember]) -> bool:
        """Return whether processes that have started are waited for, and there is room for them."""
        if not self._standing.admits or len(survivors) + len(joiners) >= self._standing.max_ranks:
            return False
        here = {member.slot for member in (*self._base().members, *joiners)}
        return bool(set(self._standing.expected()) - here)

    def _survivors(self) -> list[JobMember]:
        standing, present = self._standing, self._present()
        broken = self._broken_hosts()
        staying = {
            uid
            for uid, arrival in present.items()
            if not arrival.wish["leaves"] and arrival.member.host not in broken
        }
        if not self._leaves:
            staying.add(standing.me.uid)
        return [member for member in self._base().members if member.uid in staying]

    def _joiners(self, survivors: list[JobMember]) -> list[JobMember]:
        room = self._standing.max_ranks - len(survivors)
        if self._leaves:  # the next leader admits them
            return []
        if not self._standing.admits and len(survivors) >= self._standing.min_ranks:
            return []
        arrived = {each.member.uid: each.member for each in self._listener.arrivals("join")}
        in_order = sorted(arrived.values(), key=lambda member: member.slot)
        return in_order[: max(0, room)]

    def _state(self) -> str:
        names = ", ".join(
            f"rank {self._base().rank_of(member.uid)} on host {member.host}"
            for member in self._missing()
        )
        here = len(self._survivors())
        least = self._standing.min_ranks
        return (
            f"{here} {'rank is' if here == 1 else 'ranks are'} here, {least} or more are needed;"
            f" missing: {names or 'nobody of the last epoch'}"
        )

    def _decide(self, survivors: list[JobMember], joiners: list[JobMember]) -> Formed:
        base = self._base()
        present = self._present()
        epoch = Epoch.after(base.number, [*survivors, *joiners])
        keeps = not joiners and present.keys() <= self._connected().keys()
        told: dict[str, Arrival] = {}
        for arrival in [*self._listener.arrivals("survive"), *self._listener.arrivals("join")]:
            uid = arrival.member.uid
            if epoch.has(uid):
                arrival.engine_address = b""
                told[uid] = arrival
                form = {"say": "form", "epoch": epoch, "keeps": keeps}
                self._listener.tell(arrival, form, last=keeps)
            elif uid in present:
                self._listener.tell(arrival, {"say": "left"}, last=True)
            elif arrival.kind == "survive":
                why = "the connection to another rank was lost, and the others went on"
                self._listener.tell(arrival, {"say": "out", "why": why}, last=True)
        if self._leaves:
            raise LeftError("this process has left the job")
        return Formed(
            epoch=epoch,
            keeps=keeps,
            exchange=lambda address: self._gather(epoch, told, address),
        )

    def _gather(self, epoch: Epoch, told: dict[str, Arrival], address: bytes) -> list[bytes]:
        """Collect the addresses of all new engines, and send them to all members."""
        deadline = time.monotonic() + _ADDRESS_SECONDS
        others = [member for member in epoch.members if member.uid != self._standing.me.uid]
        while late := [each for each in others if not told[each.uid].engine_address]:
            here = {*self._listener.arrivals("survive"), *self._listener.arrivals("join")}
            gone = [each for each in late if told[each.uid] not in here]
            if gone or time.monotonic() > deadline:
                for each in late:  # the next attempt must not wait for it again
                    self._listener.tell(told[each.uid], {"say": "elsewhere"}, last=True)
                names = ", ".join(f"a process on host {each.host}" for each in gone or late)
                raise UnreachableError(f"{names} did not make an engine")
            self._listener.wait(_PAUSE_SECONDS)
        addresses = [
            address if member.uid == self._standing.me.uid else told[member.uid].engine_address
            for member in epoch.members
        ]
        values = {"say": "addresses", "addresses": [each.hex() for each in addresses]}
        for arrival in told.values():
            self._listener.tell(arrival, values, last=True)
        return addresses
