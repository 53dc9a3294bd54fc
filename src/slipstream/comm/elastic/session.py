"""The part of this process in an elastic job: who the members are, and how they change."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from slipstream.comm import flight, worlds
from slipstream.comm.config import choose_listen_addresses
from slipstream.comm.elastic.epoch import Epoch, JobMember, decode, encode
from slipstream.comm.elastic.formation import (
    Conversation,
    Formed,
    LeftError,
    OutError,
    OverError,
    Patience,
    Standing,
    TooFewRanksError,
    UnreachableError,
    follow,
)
from slipstream.comm.elastic.leader import Leader
from slipstream.comm.elastic.listener import Arrival, MemberListener
from slipstream.comm.handle import Handle
from slipstream.comm.opening import Seat, job_key, open_engine
from slipstream.errors import (
    ConfigError,
    PeerError,
    PeerTimeoutError,
    SlipstreamError,
    UsageError,
)
from slipstream.flight.epochs import EpochView
from slipstream.settings import (
    Launch,
    Settings,
    announce_epoch,
    detect_launcher,
    follow_joiners,
)

FORM_SECONDS = 600.0  # time in which enough processes must come; Horovod's default is the same

_CONTACT_SECONDS = 5.0  # time limit for contact with a member that a joiner asks
_ENGINE_SECONDS = 10.0  # in which all members connect; one that dies meanwhile delays the others
_PAUSE_SECONDS = 0.2
_MOST_RANKS = 1 << 20
_LOOPBACK = ("127.0.0.1", "::1")

_log = logging.getLogger(__name__)


class MembershipChanged(Exception):  # noqa: N818  it is no error
    """Raised at the same commit on all ranks: somebody waits to join, or wants to leave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The allowed numbers of ranks of an elastic job.

    Args:
        least: Smallest number of ranks with which the job trains.
        most: Largest number of ranks.
    """

    least: int
    most: int


class ElasticSession:
    """Membership of this process in an elastic job.

    Args:
        settings: Settings of this process.
        launch: Rank of this process, as the launcher has set it.
    """

    def __init__(self, settings: Settings, launch: Launch) -> None:
        self._settings = settings
        self._key = job_key(settings, launch)
        self.limits = Limits(least=settings.min_ranks or 1, most=settings.max_ranks or _MOST_RANKS)
        towards = settings.members[0][0] if settings.joins else launch.master_addr
        self._towards, own = _reachable(settings, towards)
        self._listener = MemberListener(
            self._key, own if own in _LOOPBACK else "", settings.member_port or 0, self._answer
        )
        address = f"[{own}]:{self._listener.port}" if ":" in own else f"{own}:{self._listener.port}"
        self.me = JobMember(
            uid=secrets.token_hex(8),
            host=settings.host_name or socket.gethostname(),
            address=address,
            slot=-1 if settings.job_slot is None else settings.job_slot,
        )
        self.epoch = Epoch(number=0, nonce="", members=())
        self.num_changes = 0  # epochs that this process has entered
        self.is_new = True  # whether this process has not got the state yet
        self.is_training = False  # whether a function of elastic.run is being called
        self.is_resetting = False  # whether reset callbacks run, which must not check()
        self.is_untrained = False  # whether it is one of the first, and nobody has trained yet
        # Functions that are called, in any thread, when this rank learns of a reason to change.
        self.listeners: list[Callable[[], None]] = []
        self._have_met = False  # whether all members have entered the present epoch
        self._nonces: set[str] = set()  # of the epochs that the present engine has had
        self._following: JobMember | None = None
        self._leaving = threading.Event()
        self._leavers: set[str] = set()  # members that have said that they want to leave
        self._is_over = False
        self._flags: worlds.Group | None = None  # for the flags of commits
        self._flag: Handle | None = None  # of the last commit
        _follow_launcher(settings)

    # ---- the ways into the job ----

    def found(self, after: int = 0) -> None:
        """Tell all ranks of the world who this process is; every rank must call this method.

        Args:
            after: Number of the last epoch of an earlier training of these ranks; 0 (the default)
                if there was none.
        """
        group = worlds.world()
        mine = np.frombuffer(encode({"member": self.me}), np.uint8)
        sizes = group.all_gather(np.array([mine.size]), name="elastic members")[:, 0]
        gathered = group.all_gather_v(mine, sizes.tolist(), name="elastic members")
        parts = np.split(gathered, np.cumsum(sizes)[:-1])
        members = tuple(decode(part.tobytes())["member"] for part in parts)
        digest = hashlib.sha256(gathered.tobytes()).hexdigest()[:32]
        self.is_untrained = True
        epoch = Epoch(number=after + 1, nonce=digest, members=members)
        self._enter(epoch, worlds.current_world())
        self._have_met = True

    def join(self) -> None:
        """Become a member of a job that runs; block until the members admit this process.

        Raises:
            PeerTimeoutError: no member has admitted this process in time.
            LeftError: this process was asked to leave while it waited.
            OverError: the training has ended.
        """
        self._following = None
        deadline = time.monotonic() + FORM_SECONDS
        for place in self._places(deadline):
            try:
                self._leave_if_asked()
                with Conversation(place, self._key, _CONTACT_SECONDS) as conversation:
                    conversation.say({"ask": "join", "member": self.me})
                    decision = conversation.decision(self._leave_if_asked)
                    if isinstance(decision, JobMember):
                        self._following = decision
                    else:
                        self._move_to(decision)
                        return
            except (LeftError, OverError):
                raise
            except SlipstreamError as error:
                if self.epoch.has(self.me.uid):  # a member of the new epoch was lost at once
                    return self.reform(admits=False)
                _log.debug("this process cannot join yet at %s:%d: %s", *place, error)
                time.sleep(_PAUSE_SECONDS)

    def _leave_if_asked(self) -> None:
        if self._leaving.is_set():
            raise LeftError("this process has left while it waited to join the job again")

    def _places(self, deadline: float) -> Iterator[tuple[str, int]]:
        """Yield where members may be found, over and over; first the one that another named."""
        while time.monotonic() < deadline:
            known = [member.place for member in self.epoch.members]
            for place in [*known, *self._settings.members]:
                while (named := self._following) is not None:
                    self._following = None
                    yield named.place
                if place != self.me.place:
                    yield place
            time.sleep(_PAUSE_SECONDS / 4)
        raise PeerTimeoutError(
            f"no member of the job has admitted this process within {FORM_SECONDS:g} s; it looked"
            f" at {', '.join(f'{host}:{port}' for host, port in self._settings.members)}"
        )

    # ---- changes ----

    def reform(self, *, admits: bool) -> None:
        """Form the next epoch with all members that can be reached; block until it has formed.

        Args:
            admits: Whether processes that wait become members, and members that want to leave go.
                After a fault, this waits for the next commit, so that the survivors go on at once.

        Raises:
            LeftError: this process has left the job, as it wanted to.
            TooFewRanksError: too few members are left.
        """
        unreachable: set[str] = set()
        patience = Patience(FORM_SECONDS)
        self._flag = None
        while True:
            standing = self._standing(patience, admits=admits)
            try:
                self._follow_or_lead(standing, unreachable)
            except (LeftError, TooFewRanksError):
                raise
            except OutError as error:
                _log.warning("this process joins the job again: %s", error)
                self._forget_world()
                return self.join()
            except UnreachableError as error:
                _log.debug("a new epoch was not formed yet: %s", error)
                why = f"no member leads ({error})"
                patience.report(lambda why=why: why)
            except PeerError as error:
                _log.warning("another rank was lost while an epoch was formed: %s", error)
            else:
                return

    def _standing(self, patience: Patience, *, admits: bool) -> Standing:
        return Standing(
            me=self.me,
            epoch=self.epoch,
            lost=self._lost,
            leaves=admits and self._leaving.is_set(),
            admits=admits,
            min_ranks=self.limits.least,
            max_ranks=self.limits.most,
            expected=lambda: _expected,
            whole_hosts=self._settings.whole_hosts,
            patience=patience,
        )

    def _follow_or_lead(self, standing: Standing, unreachable: set[str]) -> None:
        candidates = [each for each in self.epoch.members if each.uid not in unreachable]
        if candidates[0].uid == self.me.uid:
            self._lead(self.me)
            try:
                return self._move_to(Leader(standing, self._listener, self._key).form())
            except UnreachableError:
                unreachable.clear()
                raise
        first = candidates[0]
        self._lead(None)
        try:
            conversation, decision = follow(
                standing, first, self._key, met=lambda: self._lead(first)
            )
        except UnreachableError:
            self._lead(None)
            unreachable.add(first.uid)
            raise
        with conversation:
            if isinstance(decision, JobMember):
                if decision.uid in unreachable:
                    unreachable.add(first.uid)  # it follows one that cannot lead this rank
                else:  # all before it are unknown to that member, too
                    rank = self.epoch.rank_of(decision.uid)
                    unreachable.update(each.uid for each in self.epoch.members[:rank])
                raise UnreachableError(f"{decision.address} leads")
            self._move_to(decision)

    def _lead(self, leader: JobMember | None) -> None:
        """Send whoever comes here to the leader from now on; None lets them wait.

        They must not be sent to a member that may be dead: they would find out first, count this
        process as one that cannot lead, and lead themselves.
        """
        self._following = leader
        self._listener.answer_again()

    def _move_to(self, formed: Formed) -> None:
        """Make the next epoch's engine and group, and check that all members have them.

        Raises:
            PeerError: another member was lost meanwhile.
            UnreachableError: the members keep connections of an epoch that this rank never entered.
        """
        epoch = formed.epoch
        if formed.keeps:
            if not all(self.epoch.has(member.uid) for member in epoch.members):
                raise UnreachableError("the others keep connections that this rank does not have")
            old = worlds.current_world()
            numbers = [old.members[self.epoch.rank_of(each.uid)] for each in epoch.members]
            self._enter(epoch, worlds.made_world(old.engine, numbers, epoch.title))
        else:
            seat = Seat(
                rank=epoch.rank_of(self.me.uid),
                size=len(epoch.members),
                epoch=epoch.number,
                key=hmac.digest(self._key, f"slipstream {epoch.title}".encode(), "sha256"),
            )
            engine = open_engine(seat, self._hasty_settings(), self._towards, formed.exchange)
            before = worlds.current_world() if worlds.is_initialized() else None
            world = worlds.made_world(engine, range(seat.size), epoch.title)
            self._enter(epoch, world)
            if before is not None:
                before.engine.close()
        worlds.world().barrier(name="new epoch")
        self._have_met = True

    def _hasty_settings(self) -> Settings:
        """Return the settings for a new engine, whose members have all just been heard of."""
        seconds = min(self._settings.connect_timeout_seconds, _ENGINE_SECONDS)
        return replace(self._settings, connect_timeout_seconds=seconds)

    def _enter(self, epoch: Epoch, world: worlds.CommWorld) -> None:
        if self._flags is not None:  # the groups of the last epoch
            self._flags.close()
            worlds.world().close()
        keeps = worlds.is_initialized() and worlds.current_world().engine is world.engine
        is_first = self.num_changes == 0
        worlds.adopt(world)
        self._nonces = {*(self._nonces if keeps else ()), epoch.nonce}
        self._have_met = False
        self.epoch = epoch
        view = EpochView(
            number=epoch.number,
            title=epoch.title,
            rank=world.group.rank,
            numbers=world.members,
            slots=tuple(member.slot for member in epoch.members),
            began=time.monotonic() if keeps and not is_first else 0.0,
        )
        flight.entered(world.engine.runtime, view)
        self.num_changes += 1
        announce_epoch(self._settings, epoch.number)
        self._leavers &= {member.uid for member in epoch.members}
        self._following = None
        runtime = world.engine.runtime
        self._flags = worlds.Group(runtime.group(f"{epoch.title} commits", list(world.members)))
        self._flag = None
        self._listener.answer_again()
        _log.info("rank %d of %d in %s", world.group.rank, world.group.size, epoch.title)

    def _forget_world(self) -> None:
        self.is_new = True
        self._have_met = False
        self._flags = None
        others = (each for each in self.epoch.members if each.uid != self.me.uid)
        self.epoch = Epoch(number=self.epoch.number, nonce="", members=tuple(others))
        self._listener.answer_again()  # those that follow this process find another leader
        worlds.shutdown()
        announce_epoch(self._settings, 0)

    def _lost(self) -> set[str]:
        here = worlds.current_world()
        lost = {rank for rank, _ in here.engine.runtime.lost_ranks()}
        return {
            member.uid
            for member, number in zip(self.epoch.members, here.members, strict=True)
            if number in lost
        }

    @property
    def is_broken(self) -> bool:
        """Whether the present epoch has failed, because a member is lost or has aborted it."""
        if self._lost():
            return True
        try:
            worlds.world().check()
        except PeerError:
            return True
        return False

    # ---- commits ----

    @property
    def awaits_joiners(self) -> bool:
        """Whether processes wait here to join, or are announced by the launcher."""
        announced = _expected - {member.slot for member in self.epoch.members}
        return bool(announced) or bool(self._listener.arrivals("join"))

    def heed_joiners(self) -> None:
        """Take note that the launcher has announced other processes that will join."""
        if self.awaits_joiners:
            self._tell_listeners()

    def wants_change(self) -> bool:
        """Return whether this rank knows of a reason to form another epoch at the next commit."""
        if self._leaving.is_set() or self._leavers:
            return True
        if self.epoch.leader.uid != self.me.uid:
            return False
        return self.awaits_joiners and len(self.epoch.members) < self.limits.most

    def check(self) -> None:
        """Find out with all ranks whether the members should change; call it at each commit.

        The ranks exchange a flag in the background, which takes until the next commit. So the call
        hardly blocks.

        Raises:
            MembershipChanged: the members should change; raised on all ranks at the same commit.
            PeerError: another rank is lost.
            UsageError: a reset callback calls it, which other ranks may not do at the same time.
        """
        if self.is_resetting:
            raise UsageError(
                "a reset callback has called commit() or check(); allowed: both in the function"
                " that elastic.run calls"
            )
        wants = self.wants_change()
        if worlds.size() == 1:
            if wants:
                raise MembershipChanged
            return
        if self._flag is not None and self._flag.wait()[0]:
            self._flag = None
            raise MembershipChanged
        flags = np.array([wants], np.int32)
        assert self._flags is not None, "a session has an epoch"
        self._flag = self._flags.allreduce(flags, "max", async_op=True, name="change of members")

    def await_last_commit(self) -> None:
        """Wait until all ranks have made the last commit, which one that ends early would break."""
        if self._flag is not None:
            with contextlib.suppress(PeerError):  # a rank is lost that is not needed any more
                self._flag.wait()

    def _tell_listeners(self) -> None:
        for listener in list(self.listeners):
            listener()

    def leave(self) -> None:
        """Make this process leave at the next commit; does not block and may run in a signal."""
        self._leaving.set()
        threading.Thread(target=self._announce_leave, daemon=True).start()

    def _announce_leave(self) -> None:
        self._tell_listeners()
        leader = self.epoch.leader
        if leader.uid == self.me.uid:
            return
        try:
            with Conversation(leader.place, self._key, _CONTACT_SECONDS) as conversation:
                conversation.say({"ask": "leave", "member": self.me})
                conversation.hear(lambda: None, lambda: None)
        except SlipstreamError as error:  # the flag of the next commit says the same
            _log.debug("the leader was not told that this process leaves: %s", error)

    def close(self, *, is_over: bool) -> None:
        """End the membership.

        Args:
            is_over: Whether the training has ended, so that those who wait here can go.
        """
        self._is_over = is_over
        self._listener.answer_again()
        self._listener.close()

    def _answer(self, arrival: Arrival) -> dict[str, object] | None:
        """Choose what a process that has come here is told at once; see `MemberListener`."""
        match arrival.kind:
            case "who":
                of_epoch = {"number": self.epoch.number, "nonce": self.epoch.nonce}
                return {"say": "me", "member": self.me, **of_epoch, "met": self._have_met}
            case "leave":
                self._leavers.add(arrival.member.uid)
                self._tell_listeners()
                return {"say": "noted"}
            case "survive" if not self.epoch.has(self.me.uid):
                return {"say": "elsewhere"}
            case "survive":
                return self._answer_survivor(arrival)
            case "join" if self._is_over:
                return {"say": "over"}
            case "join" if not self.epoch.has(self.me.uid):
                return {"say": "out", "why": "this process is no member itself"}
            case "join":
                direction = self._direction(self.epoch.leader)
                if direction is None:
                    self._tell_listeners()
                return direction
            case _:
                return {"say": "out", "why": f"{arrival.kind!r} is no wish of a member"}

    def _answer_survivor(self, arrival: Arrival) -> dict[str, object] | None:
        theirs, mine = arrival.wish["epoch"], self.epoch
        if theirs.is_left_behind_by(mine.number, mine.nonce, met=self._have_met):
            if not mine.has(arrival.member.uid):
                return {"say": "out", "why": "the others have gone on without this rank"}
            if theirs.nonce in self._nonces:  # it has not heard the decision, and is awaited
                return {"say": "form", "epoch": mine, "keeps": True}
        return self._direction()

    def _direction(self, leader: JobMember | None = None) -> dict[str, object] | None:
        leader = self._following or leader
        if leader is None or leader.uid == self.me.uid:
            return None
        return {"say": "go", "member": leader}


def _reachable(settings: Settings, towards: str) -> tuple[str, str]:
    """Return a host whose route decides where this process listens, "" for none, and the address.

    Args:
        settings: Settings of this process.
        towards: Name of a host of the job. A loopback address does not decide if processes on other
            hosts may join.
    """
    own = choose_listen_addresses(settings, towards)[0].address
    if own in _LOOPBACK and settings.hosts_may_join:
        towards, own = "", choose_listen_addresses(settings, "")[0].address
    return towards, own


_session: ElasticSession | None = None
_expected: frozenset[int] = frozenset()  # slots of processes that will join
_is_following = False  # whether a thread follows the launcher's news, for all sessions
_last_number = 0  # of the last epoch of the training before


def _follow_launcher(settings: Settings) -> None:
    """Follow the launcher's news in one thread, however many sessions this process has."""
    global _is_following
    if not _is_following:
        _is_following = True
        follow_joiners(settings, _expect)


def _expect(slots: frozenset[int]) -> None:
    global _expected
    _expected = slots
    if _session is not None:
        _session.heed_joiners()


def session() -> ElasticSession:
    """Return this process's membership in an elastic job; the first call begins it.

    All ranks of the world must make the first call together. It joins the job by comm.init() if
    that has not been called.

    Raises:
        ConfigError: this process is to join a job, but no address of a member is set.
        PeerError: the job cannot be joined.
    """
    global _session
    if _session is None:
        settings = Settings.from_environment()
        if settings.joins and not worlds.is_initialized():
            return join_job(settings)
        worlds.init(settings)
        begun = ElasticSession(settings, detect_launcher())
        begun.found(after=_last_number)
        _session = begun
    return _session


def begun_session() -> ElasticSession | None:
    """Return this process's membership in an elastic job, or None if there is none."""
    return _session


def join_job(settings: Settings) -> ElasticSession:
    """Join an elastic job that runs; block until its members admit this process.

    The process exits with code 0 if the training ends meanwhile.

    Raises:
        ConfigError: no address of a member is set.
        PeerTimeoutError: no member has admitted this process in time.
    """
    global _session
    if not settings.members:
        raise ConfigError(
            "SLIPSTREAM_JOINS is 1, but SLIPSTREAM_MEMBERS names no member of the job; set it to"
            " the addresses of some members, as host:port"
        )
    joined = ElasticSession(settings, detect_launcher())
    try:
        joined.join()
    except OverError as over:
        _log.info("this process is not needed any more: %s", over)
        sys.exit(0)
    _session = joined
    return joined


def end_session(*, is_over: bool) -> None:
    """End this process's membership, if there is one; see `ElasticSession.close`."""
    global _session, _last_number
    if _session is not None:
        _last_number = _session.epoch.number
        _session.close(is_over=is_over)
        _session = None
