"""The hosts of an elastic job: agents that are connected, lost and connected again."""

import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from slipstream.cluster.elastic.options import HostRules
from slipstream.cluster.elastic.slots import Backoff, Slot
from slipstream.cluster.launch.hosts import Host
from slipstream.cluster.launch.job import Job
from slipstream.cluster.launch.link import AgentLink
from slipstream.cluster.launch.messages import PROTOCOL, End, Hello, Message, Reserve, Reserved


class ElasticHost:
    """A host that is or was a host of the job, and the connection to its agent, if there is one.

    Args:
        host: Name, login and number of slots of the host.

    Attributes:
        is_listed: Whether the host belongs to the job; false once it was withdrawn.
        is_ending: Whether the agent was ordered to end.
        answer_by: Time until which the agent must have answered.
        retry_at: Earliest time of the next connection.
        problem: Reason why the last connection failed, or "".
        out_until: Time until which no process may run here, because one has failed.
        num_failures: Number of times that the host was taken out.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.link: AgentLink | None = None
        self.slots: list[Slot] = []
        self.is_listed = True
        self.is_ending = False
        self.connected_at = 0.0
        self.answer_by = 0.0
        self.retry_at = 0.0
        self.problem = ""
        self.backoff = Backoff()
        self.num_asked = 0
        self.out_until = 0.0
        self.num_failures = 0

    @property
    def is_connecting(self) -> bool:
        """Whether a new agent has not yet reported its ports."""
        is_open = self.link is not None and not self.is_ending
        return is_open and not any(slot.port for slot in self.slots)

    @property
    def usable_slots(self) -> list[Slot]:
        """Slots in which processes may run."""
        if self.link is None or self.is_ending or not self.is_listed:
            return []
        if time.monotonic() < self.out_until:
            return []
        first = self.slots[: self.host.slots]
        return [slot for slot in first if slot.port and not slot.is_spent]

    def take_out(self, rules: HostRules) -> float:
        """Let no process run here for a time; return this time in seconds, which may be inf."""
        now = time.monotonic()
        if now >= self.out_until:
            self.num_failures += 1
            self.out_until = now + rules.seconds_out(self.num_failures)
        return self.out_until - now

    @property
    def running_slots(self) -> list[Slot]:
        """Slots with a running process."""
        return [slot for slot in self.slots if slot.is_running]


class HostPool:
    """All hosts of a job, with the connections to their agents.

    Args:
        job: Job of the hosts.
        selector: Selector in which connections are registered.
        receive: Function that is called for every message of an agent, except for its first ones.
        lost: Function that is called with the reason if a connection could not be made, or was
            lost.
        answer_seconds: Longest time in seconds until an agent must have answered.
    """

    def __init__(
        self,
        job: Job,
        selector: selectors.BaseSelector,
        receive: Callable[[ElasticHost, Message], None],
        lost: Callable[[ElasticHost, str], None],
        answer_seconds: float,
    ) -> None:
        self._job = job
        self._selector = selector
        self._receive = receive
        self._lost = lost
        self._answer_seconds = answer_seconds
        self._hosts: dict[str, ElasticHost] = {}
        self._num_slots = 0

    def __iter__(self) -> Iterator[ElasticHost]:
        """Iterate over all hosts in the order of the newest list; withdrawn hosts come last."""
        return iter(tuple(self._hosts.values()))

    @property
    def slots(self) -> list[Slot]:
        """All slots of all hosts."""
        return [slot for host in self for slot in host.slots]

    @property
    def is_open(self) -> bool:
        """Whether an agent is connected."""
        return any(host.link is not None for host in self)

    def host_of(self, slot: Slot) -> ElasticHost:
        """Return the host of a slot."""
        return self._hosts[slot.host]

    def update(self, listed: Sequence[Host]) -> None:
        """Take over a new list of hosts; hosts that it does not name are withdrawn."""
        earlier = self._hosts
        self._hosts = {}
        for host in listed:
            known = earlier.pop(host.name, None) or ElasticHost(host)
            known.host = host
            known.is_listed = True
            self._hosts[host.name] = known
            self._add_slots(known)
        for name, known in earlier.items():
            known.is_listed = False
            self._hosts[name] = known

    def _add_slots(self, host: ElasticHost) -> None:
        for local_rank in range(len(host.slots), host.host.slots):
            slot = Slot(number=self._num_slots, host=host.host.name, local_rank=local_rank)
            self._num_slots += 1
            host.slots.append(slot)

    # ---- connections ----

    def connect(self, max_slots: int) -> None:
        """Start agents on the first hosts that have no agent, until they have enough slots."""
        now = time.monotonic()
        open_slots = sum(
            host.host.slots
            for host in self
            if host.is_listed and host.link is not None and not host.is_ending
        )
        for host in self:
            may_open = host.is_listed and host.link is None and now >= host.retry_at
            if may_open and open_slots < max_slots:
                self._open(host, now)
                open_slots += host.host.slots

    def seconds_to_deadline(self, now: float) -> float | None:
        """Return the time in seconds until `connect` or `give_up_mute` has to be called."""
        times = [host.answer_by for host in self if host.is_connecting]
        times += [host.out_until for host in self if now < host.out_until < float("inf")]
        times += [host.retry_at for host in self if host.is_listed and host.link is None]
        return min(times) - now if times else None

    def give_up_mute(self) -> None:
        """Disconnect the agents that have not answered in time."""
        for host in self:
            if host.is_connecting and time.monotonic() >= host.answer_by:
                assert host.link is not None
                host.link.kill()
                self._close(host, f"its agent did not answer within {self._answer_seconds:g} s")

    @property
    def end_deadlines(self) -> list[float]:
        """Times at which `give_up_stuck` must be called."""
        asked = [host for host in self if host.link is not None]
        return [slot.end_by for host in asked for slot in host.running_slots if slot.is_ending]

    def give_up_stuck(self) -> None:
        """Disconnect the agents that have not ended a process in time, although it was ordered."""
        for host in self:
            late = [slot for slot in host.running_slots if time.monotonic() >= slot.end_by]
            if late and host.link is not None:
                host.link.kill()
                self._close(host, f"its agent has not ended the process of {late[0].who}")

    def order(self, message: Message) -> None:
        """Send an order to all agents that have answered."""
        for host in self:
            if host.link is not None and host.link.hello is not None:
                host.link.send(message)

    def end_all(self) -> None:
        """Order all agents to end their processes and themselves."""
        for host in self:
            if host.link is not None:
                self._order_end(host, host.link)

    def end_idle(self, *, also_listed: bool) -> None:
        """End the agents of hosts on which no process runs.

        Args:
            also_listed: Whether the agents of hosts that were not withdrawn end as well.
        """
        for host in self:
            is_idle = not host.running_slots and (also_listed or not host.is_listed)
            if host.link is not None and not host.is_ending and is_idle:
                self._order_end(host, host.link)

    def abandon(self, note: Callable[[str], None]) -> None:
        """Give up the agents that still run although they were ordered to end."""
        for host in self:
            if host.link is not None:
                note(f"{host.host.name} does not answer: its processes may still be running")
                host.link.kill()

    def _order_end(self, host: ElasticHost, link: AgentLink) -> None:
        host.is_ending = True
        if link.hello is None:
            link.kill()  # no process runs there; an agent that starts later ends by itself
        else:
            link.send(End())

    def close(self) -> None:
        """Close all connections; the agents then end their processes."""
        for host in self:
            if host.link is not None:
                host.link.close()
                host.link = None

    def reserve(self, host: ElasticHost) -> None:
        """Ask the agent for a port for each slot that has none."""
        num_missing = sum(1 for slot in host.slots if not slot.port) - host.num_asked
        if host.link is not None and not host.is_ending and host.link.hello and num_missing > 0:
            host.num_asked += num_missing
            host.link.send(Reserve(num_ports=num_missing))

    def _open(self, host: ElasticHost, now: float) -> None:
        host.connected_at = now
        host.answer_by = now + self._answer_seconds
        host.num_asked = 0
        # An agent that was lost ends soon; close() must not wait for the grace of the processes.
        host.link = link = AgentLink(
            replace(self._job, hosts=(host.host,), grace_seconds=0.0), index=0
        )
        for descriptor, read in ((link.reports, self._read), (link.errors, self._read_errors)):
            self._selector.register(
                descriptor, selectors.EVENT_READ, lambda read=read: read(host, link)
            )

    def _read_errors(self, _host: ElasticHost, link: AgentLink) -> None:
        if not link.read_errors():
            self._selector.unregister(link.errors)

    def _read(self, host: ElasticHost, link: AgentLink) -> None:
        messages = link.read()
        if messages is None:
            self._close(host, "")
            return
        for message in messages:
            if isinstance(message, Hello):
                self._take_hello(host, link, message)
            elif isinstance(message, Reserved):
                self._take_ports(host, message.ports)
            else:
                self._receive(host, message)

    def _take_hello(self, host: ElasticHost, link: AgentLink, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            link.kill()
            self._close(
                host,
                f"its Slipstream uses launch protocol {hello.protocol}, and this host's uses"
                f" {PROTOCOL}; install the same version on both",
            )
            return
        link.hello = hello
        self.reserve(host)

    def _take_ports(self, host: ElasticHost, ports: Sequence[int]) -> None:
        host.num_asked -= len(ports)
        host.problem = ""
        without_port = [slot for slot in host.slots if not slot.port]
        for slot, port in zip(without_port, ports, strict=False):
            slot.port = port

    def _close(self, host: ElasticHost, reason: str) -> None:
        assert host.link is not None
        link = host.link
        for descriptor in (link.reports, link.errors):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        explanation = link.close()
        host.link = None
        for slot in host.slots:
            slot.port = 0
        was_ending, host.is_ending = host.is_ending, False
        if not was_ending:
            now = time.monotonic()
            host.retry_at = now + host.backoff.count_end(now - host.connected_at, is_failure=True)
            self._lost(host, reason or explanation)
