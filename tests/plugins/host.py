"""A host of a test: a root file system, processes, a name, shared memory and a network of its own.

Nothing of it has a name outside, so tests can run side by side. All of it ends with the process
that made it, also if that process is killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from host_boot import HOME, UID, USER, Disk, boot_script, service_line
from switch import WITH_US, Switch
from waiting import LIMIT_SECONDS, wait_until

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SSHD = "/usr/sbin/sshd -D -f /etc/ssh/test/config -E /var/log/sshd.log"
NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program on a host.

    Attributes:
        process: What entered the host for the program, with its pipes and exit code.
        pid: The program's process as the machine counts.
    """

    process: "subprocess.Popen[str]"
    pid: int

    def kill(self) -> None:
        """Send SIGKILL to the program alone, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(LIMIT_SECONDS)

    def close(self) -> None:
        """Close the pipe of a program that has ended with its host."""
        self.process.wait(LIMIT_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started; none if it has ended."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in listed.split()]


def only_child(pid: int) -> int:
    """Return the child of a process that starts one."""
    started = children(pid)
    assert len(started) == 1, f"process {pid} has {len(started)} children; 1 is expected"
    return started[0]


@dataclass(kw_only=True)
class Host:
    """A machine that can be used, cut off, switched off and booted again.

    Attributes:
        name: Host name; others know the address by it.
        address: Address in the network of all hosts.
        disk: Folders that the host keeps while it is off.
        switch: Network of all hosts.
        environ: Variables of all programs that start on the host.
        services: Command lines of what the host starts when it boots.
    """

    name: str
    address: str
    disk: Disk
    switch: Switch
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    services: list[str] = field(default_factory=list[str])
    power: "subprocess.Popen[bytes] | None" = None
    first: int = 0
    own: frozenset[int] = frozenset()
    programs: list[Program] = field(default_factory=list[Program])

    def path(self, path: str | Path) -> Path:
        """Return where the test finds a file of the host."""
        if self.disk.home_bytes is not None and Path(path).is_relative_to("/home") and self.first:
            return Path(f"/proc/{self.first}/root{path}")
        return self.disk.at(path)

    def write(self, path: str | Path, text: str, mode: int = 0o644) -> Path:
        """Write a file of the user, and return where the test finds it."""
        file = self.path(path)
        for folder in reversed(file.parents):
            if not folder.exists():
                folder.mkdir()
                os.chown(folder, UID, UID)
        file.write_text(text)
        file.chmod(mode)
        os.chown(file, UID, UID)
        return file

    def entered(
        self, argv: Sequence[str | Path], environ: Mapping[str, str], user: str = USER
    ) -> list[str]:
        """Return the command line that runs another one on the host, in the user's home."""
        assert self.power is not None, f"{self.name} is off"
        uid, home = (UID, HOME) if user == USER else (0, "/root")
        basic = {"HOME": home, "USER": user, "PATH": PATH, "LANG": "C.UTF-8", "TERM": "xterm"}
        variables = {**basic, "SHELL": "/bin/bash", **self.environ, **environ}
        namespaces = ("--net", "--mount", "--uts", "--ipc", "--pid", "--root")
        return [
            *(*WITH_US, "nsenter", "--target", str(self.first), *namespaces),
            *("--setuid", str(uid), "--setgid", str(uid)),
            *("env", "-i", "-C", home, *(f"{key}={value}" for key, value in variables.items())),
            *map(str, argv),
        ]

    def run(
        self,
        *argv: str | Path,
        environ: Mapping[str, str] | None = None,
        user: str = USER,
        text: str | None = None,
        seconds: float = LIMIT_SECONDS,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command as if at the console, with this standard input."""
        line = self.entered(argv, environ or {}, user)
        return subprocess.run(
            line, input=text or "", capture_output=True, text=True, check=False, timeout=seconds
        )

    def output(self, *argv: str | Path, user: str = USER) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*argv, user=user)
        assert done.returncode == 0, f"{self.name}: {argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(
        self,
        *argv: str | Path,
        environ: Mapping[str, str] | None = None,
        user: str = USER,
        log: Path | None = None,
    ) -> Program:
        """Start a command that does not end at once; its output goes to a file or into a pipe."""
        line = self.entered(argv, environ or {}, user)
        with contextlib.ExitStack() as stack:
            out = subprocess.PIPE if log is None else stack.enter_context(log.open("w"))
            process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, text=True
            )
        wait_until(lambda: children(process.pid) or process.poll() is not None)
        program = Program(process=process, pid=only_child(process.pid))
        self.programs.append(program)
        return program

    def processes(self) -> dict[int, str]:
        """Return the command lines on the host, but not those that belong to its boot."""
        if self.power is None:
            return {}
        space = os.readlink(f"/proc/{self.first}/ns/pid")
        found: dict[int, str] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            # It may have ended, or belong to whoever keeps this machine in a namespace.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if os.readlink(entry / "ns/pid") == space and int(entry.name) not in self.own:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = line.decode(errors="replace").strip()
        return {pid: line for pid, line in found.items() if line}  # one that has ended has none

    def cut(self) -> None:
        """Pull the cable: what others send is lost, and connections stay as they were."""
        self.switch.set(f"link set {self.name} down")

    def heal(self) -> None:
        """Plug the cable in again."""
        self.switch.set(f"link set {self.name} up")

    def kill(self) -> None:
        """Cut the power: nobody hears from the host any more, and its processes are gone."""
        if self.power is None:
            return
        if self.first:
            self.switch.unplug(self.name)
            os.kill(self.first, signal.SIGKILL)  # its end comes after that of all others
        else:
            self.power.kill()
        self.power.wait(LIMIT_SECONDS)
        self.power, self.first = None, 0
        while self.programs:
            self.programs.pop().close()

    def boot(self) -> None:
        """Switch the host on, and wait until its sshd listens."""
        self.switch_on()
        self.wait_for_boot()

    def switch_on(self) -> None:
        """Start process 1 of the host."""
        assert self.power is None, f"{self.name} is on"
        shutil.rmtree(self.path("/run"))
        self.path("/run").mkdir()
        script = self.disk.folder / "boot"
        script.write_text(boot_script(self.disk, self.name, self.services))
        with (self.disk.folder / "console").open("w") as console:
            line = ("unshare", *NAMESPACES, "--fork", "--kill-child", "bash", str(script))
            self.power = subprocess.Popen(
                [*WITH_US, *line], stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )

    def wait_for_boot(self) -> None:
        """Wait until the root file system is there and sshd listens, and plug the cable in."""
        power = self.power
        assert power is not None

        def is_up(name: str) -> bool:
            console = self.disk.folder / "console"
            assert power.poll() is None, f"{self.name}: {console.read_text()}"
            return self.path(name).exists()

        wait_until(lambda: is_up("/run/booted"))
        first = only_child(power.pid)
        self.switch.plug_in(self.name, first, self.address)
        self.first = first
        if SSHD in self.services:
            wait_until(lambda: is_up("/run/sshd.pid"))
        self.own = frozenset({self.first, *children(self.first)})

    def serve(self, service: str) -> None:
        """Start a service now and whenever the host boots."""
        self.services.append(service)
        self.output("sh", "-c", service_line(service), user="root")
        self.own = frozenset({self.first, *children(self.first)})

    def settle(self) -> None:
        """Take what runs now for a part of the host, as if its boot had started it."""
        self.own |= self.processes().keys()
