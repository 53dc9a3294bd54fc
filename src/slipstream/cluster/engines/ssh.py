"""The engine of hosts that ssh reaches: the host daemon runs in a tmux session on each of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.journal_stream import JournalStream
from slipstream.cluster.engines.layout import RunLayout, read_layout, write_layout
from slipstream.cluster.engines.preparation import prepare_host
from slipstream.cluster.engines.probe import HostFacts, missing_software, probe, shortcomings
from slipstream.cluster.engines.protocol import HeadState, JournalPart, RunProgress
from slipstream.cluster.engines.ssh_host import CommandFailedError, SshHost
from slipstream.cluster.head.placement import ENDED, FILE_NAME, HEAD_SEEN, JOURNAL
from slipstream.cluster.head.storage.mounts import mounted_argv
from slipstream.cluster.spec import JobSpec
from slipstream.cluster.spec.storage import storage_mounts
from slipstream.errors import ConfigError, PeerError, UsageError

NUM_THREADS = 16
STATE_SECONDS = 8.0
CLEAN_SECONDS = 15.0
# A host daemon hears the head every 3 s; hosts that are asked for one that the client cannot reach.
SEEN_SECONDS = 10.0
MOST_ASKED = 4

T = TypeVar("T")


class SshEngine:
    """The engine of ssh hosts.

    Args:
        hosts: Function that returns the hosts of a run, spare ones included.
    """

    name = "ssh"

    def __init__(self, hosts: Callable[[RunPlan], Sequence[SshHost]] | None = None) -> None:
        self._hosts = hosts or hosts_of_spec
        self._streams: dict[str, JournalStream] = {}

    def check(self, plan: RunPlan) -> None:
        """Refuse a job that names fewer hosts than it needs."""
        listed = plan.spec.ssh.hosts
        if self._hosts is hosts_of_spec and len(listed) < plan.spec.hosts.min:
            raise UsageError(
                f"ssh.hosts names {len(listed)} hosts, and the job needs {plan.spec.hosts.min};"
                " name them in the job file, or with --set ssh.hosts=[a,b]"
            )

    # ---- preparation ----

    def estimate(self, spec: JobSpec) -> None:
        """Return None: these hosts cost nothing."""
        del spec

    def prepare(self, plan: RunPlan, progress: RunProgress) -> None:
        """Check the hosts, and bring code, environment and data to each."""
        layout = read_layout(plan)
        if layout.hosts:
            return
        with progress.stage("look"):
            facts = self._probe_all(plan, progress)
        ready = self._prepare_hosts(plan, facts, progress)
        names = list(ready)
        layout.home = facts[names[0]].home
        layout.python = _common(ready)
        layout.hosts = names[: plan.spec.hosts.max]
        layout.spares = names[plan.spec.hosts.max :]
        self._place_head(plan, layout, layout.hosts[0])
        write_layout(plan, layout)

    def _probe_all(self, plan: RunPlan, progress: RunProgress) -> dict[str, HostFacts]:
        """Return what each usable host has; remark on hosts that cannot be used."""
        facts: dict[str, HostFacts] = {}
        problems: list[Exception] = []

        def look(host: SshHost) -> HostFacts | Exception:
            try:
                found = probe(host, plan.spec, plan.spec.ssh.home)
            except (ConfigError, PeerError) as error:
                return error
            lacks = shortcomings(found, plan.spec) + missing_software(found, plan.spec)
            return ConfigError(f"{host.name} lacks: {'; '.join(lacks)}") if lacks else found

        hosts = self._hosts(plan)
        for host, found in zip(hosts, _in_parallel(look, hosts), strict=True):
            if isinstance(found, HostFacts):
                facts[host.name] = found
            else:
                problems.append(found)
                progress.note(str(found))
        if len(facts) < plan.spec.hosts.min:
            raise problems[0]
        homes = {found.home for found in facts.values()}
        if len(homes) > 1:
            raise ConfigError(
                f"the hosts have different folders for runs ({', '.join(sorted(homes))}); set"
                " ssh.home to one absolute path"
            )
        return facts

    def _prepare_hosts(
        self, plan: RunPlan, facts: dict[str, HostFacts], progress: RunProgress
    ) -> dict[str, str]:
        """Prepare all hosts at the same time; return the path of Python on each."""

        def prepare(host: SshHost) -> str:
            return prepare_host(plan, host, facts[host.name], progress)

        hosts = [host for host in self._hosts(plan) if host.name in facts]
        paths = _in_parallel(prepare, hosts)
        return {host.name: path for host, path in zip(hosts, paths, strict=True)}

    # ---- head and host daemons ----

    def _place_head(self, plan: RunPlan, layout: RunLayout, name: str) -> None:
        """Choose the host of the head, its addresses and a free port there."""
        host = self._host(plan, name)
        script = (
            f"hostname -I; {shlex.quote(layout.python)} -c 'from slipstream.cluster.launch.ports"
            " import find_free_port_pair as find; print(find())'"
        )
        addresses, port = host.run(script, what="choosing the head's port").splitlines()[-2:]
        layout.head = name
        layout.head_addresses = list(plan.spec.ssh.addresses) or addresses.split()
        layout.head_port = int(port)

    def submit(self, plan: RunPlan) -> None:
        """Start the head and the host daemons in tmux, on the hosts where they do not run."""
        layout = read_layout(plan)
        self._start_on(plan, layout, layout.hosts, with_head=True)

    def _start_on(
        self, plan: RunPlan, layout: RunLayout, names: Sequence[str], *, with_head: bool
    ) -> list[str]:
        """Start daemons on some hosts; return the names of the hosts that cannot be reached."""
        text = plan.placement(
            cwd=f"{layout.home}/runs/{plan.run}/code",
            hosts=tuple(layout.hosts),
            python=layout.python,
            heads=tuple(layout.head_addresses),
            head_port=layout.head_port,
        ).as_text()

        def start(name: str) -> str:
            is_head = with_head and name == layout.head
            try:
                self._start(plan, layout, self._host(plan, name), text, is_head=is_head)
            except PeerError:
                if name == layout.head:
                    raise
                return name
            return ""

        return [name for name in _in_parallel(start, names) if name]

    def _start(
        self, plan: RunPlan, layout: RunLayout, host: SshHost, placement: str, *, is_head: bool
    ) -> None:
        folder = f"{layout.home}/runs/{plan.run}"
        session = f"slipstream-{plan.run}"
        visible = _visible_gpus(plan.spec.ssh.gpus.get(host.name))
        daemon = [*visible, layout.python, "-m", "slipstream.cluster.head.daemon", folder]
        mounts = storage_mounts(plan.spec.storage, f"{folder}/code")
        head = [layout.python, "-m", "slipstream.cluster.head", folder]
        quoted = shlex.quote(folder)
        lines = [
            "set -e",
            f"umask 077; mkdir -p {quoted}; cd {quoted}",
            f"cat > {FILE_NAME}.new; mv {FILE_NAME}.new {FILE_NAME}",
            # The server of tmux outlives this call; without setsid, systemd may end it.
            _in_tmux(
                f"{session}-host",
                mounted_argv(layout.python, mounts, [*daemon, host.name]),
                f"{folder}/daemon.log",
            ),
        ]
        if is_head:
            started = _in_tmux(f"{session}-head", head, f"{folder}/head.log")
            lines.append(f"test -e {ENDED} || {{ {started}; }}")
        host.run("\n".join(lines), what="starting the host daemon", text=placement)

    # ---- while it runs ----

    def read_journal(self, plan: RunPlan, position: str, seconds: float) -> JournalPart:
        """Return new lines of the journal on the head's host."""
        layout = read_layout(plan)
        name, _, offset = position.rpartition("@")
        if name != layout.head:
            offset = "0"
        stream = self._streams.get(layout.head)
        if stream is None or not stream.is_open or stream.offset != int(offset):
            self._close_streams()
            path = f"{layout.home}/runs/{plan.run}/{JOURNAL}"
            stream = JournalStream(self._host(plan, layout.head), path, int(offset))
            self._streams[layout.head] = stream
        text = stream.read(seconds)
        return JournalPart(text=text, position=f"{layout.head}@{stream.offset}")

    def head_state(self, plan: RunPlan) -> HeadState:
        """Return whether the head runs, by its lock."""
        layout = read_layout(plan)
        folder = shlex.quote(f"{layout.home}/runs/{plan.run}")
        script = (
            f"cd {folder} 2>/dev/null || {{ echo absent; exit; }};"
            " if test -e head.lock && ! flock -n head.lock true; then echo running;"
            f" elif test -e {ENDED}; then echo ended; else echo absent; fi"
        )
        try:
            host = self._host(plan, layout.head)
            answer = host.run(script, what="asking for the head", seconds=STATE_SECONDS)
        except PeerError:
            return "running" if self._is_seen_by_others(plan, layout) else "unreachable"
        states: dict[str, HeadState] = {"running": "running", "ended": "ended"}
        return states.get(answer.strip(), "absent")

    def _is_seen_by_others(self, plan: RunPlan, layout: RunLayout) -> bool:
        """Return whether another host hears the head, so that only the way from here is cut."""
        folder = shlex.quote(f"{layout.home}/runs/{plan.run}")
        since = f"{SEEN_SECONDS:g} seconds ago"
        script = f"find {folder}/{HEAD_SEEN} -newermt {shlex.quote(since)} 2>/dev/null || true"

        def hears(name: str) -> bool:
            try:
                host = self._host(plan, name)
                return bool(host.run(script, what="asking for the head", seconds=STATE_SECONDS))
            except (PeerError, CommandFailedError):
                return False

        others = [name for name in layout.hosts if name != layout.head]
        return any(_in_parallel(hears, others[:MOST_ASKED]))

    def restart_head(
        self, plan: RunPlan, progress: RunProgress, *, host_is_lost: bool
    ) -> Sequence[str]:
        """Start the head again; if its host is lost, another host takes the place of that one."""
        del progress
        layout = read_layout(plan)
        self._close_streams()
        if layout.head in layout.hosts and not host_is_lost:
            self._start_on(plan, layout, layout.hosts, with_head=True)
            return ()
        there = [host.name for host in self._hosts(plan)]
        lost = [name for name in layout.hosts if name not in there or name == layout.head]
        others = [name for name in layout.hosts if name not in lost]
        spares = [name for name in layout.spares if name in there]
        problems: list[PeerError] = []
        for name in dict.fromkeys((*others, *spares, *there)):
            added = spares[:1] if name in others else [name]
            try:
                silent = self._move_head(plan, layout, name, [*others, *added])
            except PeerError as error:
                problems.append(error)
                continue
            return [*silent, *lost[len(added) :]]
        raise problems[0] if problems else PeerError(f"the run {plan.run} has no host any more")

    def place_head_anew(self, plan: RunPlan, progress: RunProgress) -> Sequence[str]:
        """Start the head on any host, as its host was lost and may have a successor by that name.

        Returns:
            The names of the hosts that the run lacks now.
        """
        write_layout(plan, replace(read_layout(plan), head=""))
        return self.restart_head(plan, progress, host_is_lost=True)

    def _move_head(
        self, plan: RunPlan, layout: RunLayout, name: str, hosts: list[str]
    ) -> list[str]:
        """Give some hosts a head on one of them; return the names of the others that are silent."""
        known = dict.fromkeys((*layout.spares, *layout.hosts))
        moved = replace(layout, hosts=hosts, spares=[each for each in known if each not in hosts])
        self._place_head(plan, moved, name)
        write_layout(plan, moved)
        return self._start_on(plan, moved, hosts, with_head=True)

    def cancel(self, plan: RunPlan) -> None:
        """Send SIGTERM to the head."""
        layout = read_layout(plan)
        if not layout.head:
            return
        folder = shlex.quote(f"{layout.home}/runs/{plan.run}")
        script = (
            f"cd {folder} && test -e head.lock && ! flock -n head.lock true"
            " && kill $(cat head.lock) || true"
        )
        self._host(plan, layout.head).run(script, what="ending the head")

    def fetch(self, plan: RunPlan, patterns: Sequence[str], folder: Path) -> Sequence[str]:
        """Copy the outputs of the head's host into the folder of the code."""
        layout = read_layout(plan)
        source = f"{layout.home}/runs/{plan.run}/code"
        host = self._host(plan, layout.head)
        return host.download(source, patterns, folder, python=layout.python)

    def replace_hosts(
        self, plan: RunPlan, lost: Sequence[str], progress: RunProgress
    ) -> Sequence[str]:
        """Take spare hosts into the run, or lost ones that are there again."""
        spares = [name for name in read_layout(plan).spares if name not in lost]
        return self.take_in(plan, lost, [*spares, *lost], progress)

    def prepare_new(self, plan: RunPlan, new: Sequence[str], progress: RunProgress) -> None:
        """Bring code, environment and data to new hosts."""
        hosts = [host for host in self._hosts(plan) if host.name in new]
        facts = {host.name: probe(host, plan.spec, plan.spec.ssh.home) for host in hosts}
        self._prepare_hosts(plan, facts, progress)

    def take_in(
        self, plan: RunPlan, lost: Sequence[str], candidates: Sequence[str], progress: RunProgress
    ) -> list[str]:
        """Start host daemons on the first candidates that can be used, one for each lost host.

        Args:
            plan: Run.
            lost: Names of the lost hosts.
            candidates: Names of prepared hosts.
            progress: Listener that is told of each new host.

        Returns:
            The names of the hosts that were brought in.
        """
        added: list[str] = []
        for name in candidates:
            layout = read_layout(plan)
            if len(added) == len(lost):
                break
            try:
                if self._start_on(plan, layout, [name], with_head=False):
                    continue
            except CommandFailedError:  # it is new, and has no files of the run
                continue
            gone = lost[len(added)]
            progress.note(f"{name} takes the place of a lost host")
            added.append(name)
            layout.hosts = [kept for kept in layout.hosts if kept not in (gone, name)] + [name]
            spares = [kept for kept in layout.spares if kept not in (gone, name)]
            layout.spares = spares + ([gone] if gone != name else [])
            write_layout(plan, layout)
        return added

    def release(self, plan: RunPlan) -> None:
        """End the tmux sessions of the run, and delete its secrets on the hosts."""
        layout = read_layout(plan)
        self._close_streams()

        def clean(name: str) -> None:
            host = self._host(plan, name)
            folder = shlex.quote(f"{layout.home}/runs/{plan.run}")
            session = f"slipstream-{plan.run}"
            lines = [
                *(
                    f"tmux -L slipstream kill-session -t ={session}-{part} 2>/dev/null"
                    for part in ("head", "host")
                ),
                f"cd {folder} 2>/dev/null && rm -f {FILE_NAME}",
                "true",
            ]
            try:
                host.run("\n".join(lines), what="cleaning up", seconds=CLEAN_SECONDS)
            except (PeerError, CommandFailedError):
                return  # its host daemon ends at the deadline, or when no head answers
            finally:
                host.disconnect()

        _in_parallel(clean, [*layout.hosts, *layout.spares])

    def shell(self, plan: RunPlan, host: str) -> list[str]:
        """Return the ssh command of a host."""
        name = host or read_layout(plan).head
        if name not in [known.name for known in self._hosts(plan)]:
            raise UsageError(f"the run {plan.run} has no host {name!r}")
        return self._host(plan, name).argv

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        """Return the absolute path on the hosts."""
        return f"{read_layout(plan).home}/runs/{plan.run}/code/{path}"

    # ---- the layout ----

    def _host(self, plan: RunPlan, name: str) -> SshHost:
        for host in self._hosts(plan):
            if host.name == name:
                return host
        raise PeerError(f"the host {name} of the run {plan.run} is not there any more")

    def _close_streams(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()


def _common(pythons: Mapping[str, str]) -> str:
    """Return the path of Python, which must be the same on all hosts."""
    if len(set(pythons.values())) > 1:
        listed = ", ".join(f"{path} on {host}" for host, path in pythons.items())
        raise ConfigError(
            f"the hosts have different environments: {listed}; give all of them the same version of"
            " Python, or name one in software.python"
        )
    return next(iter(pythons.values()))


def hosts_of_spec(plan: RunPlan) -> list[SshHost]:
    """Return the hosts that a job names."""
    ssh = plan.spec.ssh
    identity = (f"IdentityFile={ssh.identity}",) if ssh.identity else ()
    options = (*ssh.options, *identity)
    names = [login.rpartition("@")[2] for login in ssh.hosts]
    return [
        SshHost(name=name, login=login, options=(*ssh.host_options.get(name, ()), *options))
        for name, login in zip(names, ssh.hosts, strict=True)
    ]


def _visible_gpus(numbers: Sequence[int] | None) -> list[str]:
    """Return the words before a command that let it see some GPUs only; None for all."""
    if numbers is None:
        return []
    return ["env", f"CUDA_VISIBLE_DEVICES={','.join(map(str, numbers))}"]


def _in_tmux(session: str, command: Sequence[str], log: str) -> str:
    """Return the shell command that starts a session unless there is one of that name."""
    inner = f"exec {shlex.join(command)} >> {shlex.quote(log)} 2>&1"
    tmux = "tmux -L slipstream"
    start = shlex.join(["tmux", "-L", "slipstream", "new-session", "-d", "-s", session, inner])
    return f"{tmux} has-session -t ={session} 2>/dev/null || {start}"


def _in_parallel(call: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(call, items))
