"""FastGPU's task: one machine of a group, on which commands run."""

from __future__ import annotations

import glob
import secrets
import shlex
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.cluster.engines.journal_stream import JournalStream
from slipstream.cluster.engines.ssh_host import CommandFailedError, SshHost
from slipstream.cluster.groups import machine_files
from slipstream.cluster.groups.machine_group import MachineGroup
from slipstream.cluster.groups.machine_shell import ShellCommand
from slipstream.cluster.providers.protocol import ClusterMachine
from slipstream.errors import PeerError, PeerTimeoutError, UsageError

# Lines of a failed command's output that its error has.
NUM_LAST_LINES = 20
RSYNC_EXCLUDED = (".ssh/", ".cache/", "__pycache__/", ".eggs")
TAIL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class FastGpuInstance:
    """A machine as the provider knows it.

    Args:
        machine: Machine.
        instance_type: Provider's name of its type.
    """

    machine: ClusterMachine
    instance_type: str

    def instance_name(self) -> str:
        """Return the name of the machine, such as "task0.NAME"."""
        return self.machine.name

    def instance_id(self) -> str:
        """Return the provider's identifier of the machine."""
        return self.machine.external_id


class FastGpuTask:
    """One machine of a job.

    Its commands share a shell in tmux, so `cd`, `export` and `conda activate` hold for later ones.

    Args:
        group: Group of the machine.
        machine: Machine, which runs.
        run_name: Name of the run, which names the folder for logs.

    Attributes:
        name: Name of the machine, such as "task0.NAME".
        ip: Address at which the other machines reach it.
        public_ip: Address at which this computer reaches it.
        instance: Machine as the provider knows it.
        last_status: Exit code of the last command that was waited for; -1 before the first.
    """

    def __init__(self, group: MachineGroup, machine: ClusterMachine, run_name: str) -> None:
        self.name = machine.name
        self.ip = machine.inner_address
        self.public_ip = machine.address
        self.instance = FastGpuInstance(machine, group.record.request.instance_type)
        self.last_status = -1
        self.run_name = run_name
        self._group = group
        self._host: SshHost = group.host(machine.name)
        self._shell = group.shell(self._host)
        self._last: ShellCommand | None = None

    # ---- commands ----

    def run(
        self,
        cmd: str | Sequence[str],
        sudo: bool = False,
        non_blocking: bool = False,
        ignore_errors: bool = False,
        max_wait_sec: float | None = None,
        show_realtime: bool = False,
        stream_output: bool = False,
        return_output: bool = False,
    ) -> str | int:
        """Run a command in the shell of the machine.

        Args:
            cmd: Lines for bash, or a list of commands of which each needs the earlier ones.
            sudo: Whether it runs as root (default False).
            non_blocking: Whether to return when it has been handed over (default False).
            ignore_errors: Whether an exit code other than 0 is only remarked on (default False).
            max_wait_sec: Longest time to wait in seconds (default None: no limit).
            show_realtime: Whether its output is printed as it comes (default False).
            stream_output: ncluster's name for `show_realtime` (default False).
            return_output: Whether the output is returned in place of the exit code (default False).

        Returns:
            The exit code, 0 for a command that is not waited for, or the output.

        Raises:
            CommandFailedError: the command failed.
            PeerTimeoutError: the command goes on after `max_wait_sec`.
        """
        line = _as_line(cmd, sudo=sudo)
        if not line or line.startswith("#"):
            return ""
        self._say(line.splitlines()[0])
        self._last = self._shell.start(line)
        if non_blocking:
            return 0
        code = self._wait(max_wait_sec, shown=show_realtime or stream_output)
        self._judge(code, line, ignore_errors=ignore_errors)
        return self.output if return_output else code

    def run_with_output(
        self, cmd: str, non_blocking: bool = False, ignore_errors: bool = False
    ) -> tuple[str, str]:
        """Run a command, and return its standard output and its standard error.

        Args:
            cmd: Lines for bash.
            non_blocking: Must be False, because the output is waited for.
            ignore_errors: Whether an exit code other than 0 is only remarked on (default False).

        Raises:
            CommandFailedError: the command failed.
        """
        if non_blocking:
            raise UsageError("non_blocking is True, but the output needs the end; leave it out")
        base = f".slipstream/output-{secrets.token_hex(6)}"
        files = (f"~/{base}.stdout", f"~/{base}.stderr")
        code = self.run(f"{{ {cmd.strip()}\n}} > {files[0]} 2> {files[1]}", ignore_errors=True)
        out, error = (machine_files.read(self._host, file) for file in files)
        if code != 0 and not ignore_errors:
            raise CommandFailedError(f"{self.name}: {cmd!r} failed with exit code {code}: {error}")
        return out, error

    def join(self, ignore_errors: bool = False) -> int:
        """Wait for the last command, and return its exit code.

        Args:
            ignore_errors: Whether an exit code other than 0 is only remarked on (default False).

        Raises:
            UsageError: no command was run.
            CommandFailedError: the command failed.
        """
        code = self._wait(None, shown=False)
        self._judge(code, "the last command", ignore_errors=ignore_errors)
        return code

    def propagate_env(self, env_vars: Sequence[str]) -> None:
        """Set variables of this process in the shell of the machine; their values are not shown.

        Args:
            env_vars: Names of variables; those that are not set here are left out.
        """
        from slipstream.settings.fastgpu import values_of

        for name, value in values_of(env_vars).items():
            self._last = self._shell.start(f"export {name}={shlex.quote(value)}")

    @property
    def output(self) -> str:
        """Output of the last command so far."""
        return self._shell.output(self._last) if self._last else ""

    @property
    def _out_fn(self) -> str:
        """Path of the file with the output of the last command; scripts of FastGPU print it."""
        return self._last.output_path if self._last else ""

    # ---- files ----

    def upload(self, local_fn: str, remote_fn: str = "", dont_overwrite: bool = False) -> None:
        """Copy a file or a folder to the machine.

        Args:
            local_fn: Path on this computer; with a *, all paths that fit.
            remote_fn: Path on the machine (default "": the same name in the home).
            dont_overwrite: Whether a path that exists there is left alone (default False).
        """
        if "*" in local_fn:
            for path in sorted(glob.glob(local_fn)):
                self.upload(path, remote_fn, dont_overwrite)
            return
        target = remote_fn or Path(local_fn).name
        if not (dont_overwrite and self.exists(target)):
            machine_files.put(self._host, Path(local_fn), target)

    def rsync(self, local_fn: str, remote_fn: str = "", exclude_git: bool = False) -> None:
        """Copy a folder to the machine, without caches.

        Args:
            local_fn: Path on this computer.
            remote_fn: Path on the machine (default "": the same name in the home).
            exclude_git: Whether .git is left out (default False).
        """
        excluded = (*RSYNC_EXCLUDED, *([".git/"] if exclude_git else []))
        machine_files.put(self._host, Path(local_fn), remote_fn, excluded)

    def download(self, remote_fn: str, local_fn: str = "") -> None:
        """Copy a file or a folder from the machine.

        Args:
            remote_fn: Path on the machine.
            local_fn: Path on this computer (default "": the same name in this folder).
        """
        machine_files.get(self._host, remote_fn, Path(local_fn or Path(remote_fn).name))

    def exists(self, remote_fn: str) -> bool:
        """Return whether the machine has a file or folder."""
        return machine_files.exists(self._host, remote_fn)

    def read(self, remote_fn: str) -> str:
        """Return the text of a file of the machine."""
        return machine_files.read(self._host, remote_fn)

    def write(self, remote_fn: str, contents: str) -> None:
        """Write a file of the machine."""
        machine_files.write(self._host, remote_fn, contents)

    def wait_for_file(self, fn: str, max_wait_sec: float | None = None) -> bool:
        """Wait for a file of the machine; return whether it came in time.

        Args:
            fn: Path on the machine.
            max_wait_sec: Longest time to wait in seconds (default None: no limit).
        """
        try:
            machine_files.wait_for_file(self._host, fn, max_wait_sec)
        except PeerTimeoutError:
            return False
        return True

    def tail_file(self, fn: str, line_prefix: str = "") -> FileTail:
        """Print the lines of a file of the machine as they come, until `close` is called.

        Args:
            fn: Path on the machine.
            line_prefix: Text in front of each line (default "").
        """
        home = self._host.run("pwd", what="looking for the home").strip()
        return FileTail(self._host, str(Path(home, fn.removeprefix("~/"))), line_prefix)

    # ---- the machine ----

    @property
    def zone(self) -> str:
        """Zone that was asked for; "" if the provider chose it."""
        return self._group.record.request.zone

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of the machine."""
        return self._group.estimate().offer.num_gpus

    def stop(self) -> None:
        """Stop the machine; its disk stays.

        Raises:
            UsageError: the group has several machines, which are stopped together.
        """
        if len(self._group.machines()) > 1:
            raise UsageError(
                f"{self._group.name} has several machines, which are stopped together: call"
                " job.stop(); kill() ends one machine for good"
            )
        self._group.stop()

    def kill(self) -> None:
        """End the machine for good."""
        self._group.end_machine(self.name)

    def _wait(self, seconds: float | None, *, shown: bool) -> int:
        if self._last is None:
            raise UsageError(f"{self.name} has run no command, so there is none to wait for")
        show = self._show if shown else None
        self.last_status = self._shell.wait(self._last, show=show, seconds=seconds)
        return self.last_status

    def _judge(self, code: int, line: str, *, ignore_errors: bool) -> None:
        if code == 0:
            return
        last = "\n".join(self.output.splitlines()[-NUM_LAST_LINES:])
        text = f"{self.name}: {line!r} failed with exit code {code}:\n{last}"
        if not ignore_errors:
            raise CommandFailedError(text)
        print(text, file=sys.stderr, flush=True)

    def _show(self, text: str) -> None:
        print(text, end="", flush=True)

    def _say(self, line: str) -> None:
        sys.stderr.write(f"{self.name}> {line}\n")  # in one call, as others print too


class FileTail:
    """The printer of a file's lines, on a thread that `close` ends.

    Args:
        host: Machine with the file.
        path: Absolute path of the file, which need not exist yet.
        prefix: Text in front of each line.
    """

    def __init__(self, host: SshHost, path: str, prefix: str) -> None:
        self._stream = JournalStream(host, path, 0)
        self._prefix = prefix
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._print, name=f"tail of {path}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop printing."""
        self._closing.set()
        self._thread.join()

    def _print(self) -> None:
        try:
            while not self._closing.is_set():
                for line in self._stream.read(TAIL_SECONDS).splitlines():
                    print(f"{self._prefix}{line}", flush=True)
        except PeerError as error:
            print(f"{self._prefix}{error}", file=sys.stderr, flush=True)
            return
        self._stream.close()


def _as_line(cmd: str | Sequence[str], *, sudo: bool) -> str:
    line = cmd if isinstance(cmd, str) else " && ".join(f"{{ {part}\n}}" for part in cmd)
    line = line.strip()
    return f"sudo bash -c {shlex.quote(line)}" if sudo and line else line
