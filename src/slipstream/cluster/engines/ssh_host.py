"""One host behind ssh: commands, files, and errors that say what to do.

The system's ssh is used, with the user's configuration. All calls share one connection per host
(ControlMaster), which ends by itself a minute after the last call.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.cluster.head.storage.output_names import OutputNames
from slipstream.cluster.outside import outside
from slipstream.errors import ConfigError, PeerError, SlipstreamError

SSH_FAILED = 255
# Options of rsync for copying the files and folders whose names come with a NUL after each.
COPY_NAMED = ("--from0", "--files-from=-", "--recursive")
_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
    "ControlMaster=auto",
    "ControlPersist=60",
)
# Words of OpenSSH's messages, and what to do about each.
_REMEDIES = (
    ("Permission denied", "the host accepts no key of yours; check ssh.identity and the user name"),
    (
        "Host key verification failed",
        "its host key is not the known one; compare it, then call `ssh-keygen -R` and `ssh` once",
    ),
    ("Bad owner or permissions", "mend the rights of your ssh configuration"),
    ("no such identity", "the key file of ssh.identity does not exist"),
)


class CommandFailedError(SlipstreamError):
    """Read the message: a command on a host failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SshHost:
    """A host behind ssh.

    Args:
        name: Name of the host within the run.
        login: Destination for ssh.
        options: Options for ssh, each without its -o.
    """

    name: str
    login: str
    options: tuple[str, ...] = ()

    @property
    def argv(self) -> list[str]:
        """The command that runs a shell command on the host, up to that command."""
        control = f"ControlPath={_control_folder()}/%C"
        options = (*self.options, *_OPTIONS, control)
        return ["ssh", "-T", *(part for option in options for part in ("-o", option)), self.login]

    def run(self, script: str, *, what: str, text: str = "", seconds: float = 60.0) -> str:
        """Run a shell script on the host and return its output.

        Args:
            script: Script for sh; it contains no secret, because others can see it.
            what: Purpose of the script, for messages: "making the folder".
            text: Standard input, which may be secret (default "").
            seconds: Time limit in seconds (default 60).

        Raises:
            ConfigError: the host lets nobody in.
            PeerError: the host cannot be reached, or does not answer in time.
            CommandFailedError: the script failed.
        """
        with outside(f"ssh {what}"):
            try:
                done = subprocess.run(
                    [*self.argv, script],
                    input=text,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise PeerError(
                    f"{self.name}: {what} took longer than {seconds:g} s; is the host overloaded?"
                ) from error
        if done.returncode == SSH_FAILED:
            raise self._connection_error(done.stderr)
        if done.returncode != 0:
            said = _last_lines(done.stderr or done.stdout)
            raise CommandFailedError(
                f"{self.name}: {what} failed with exit code {done.returncode}: {said}"
            )
        return done.stdout

    def open_stream(self, script: str) -> subprocess.Popen[bytes]:
        """Start a script whose output is read as it comes, and whose input stays open."""
        return subprocess.Popen(
            [*self.argv, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the controller, which goes on reading
        )

    def upload(self, folder: Path, target: str, exclude: Sequence[str] = ()) -> None:
        """Make a folder of the host equal to a folder of this machine.

        Args:
            folder: Folder on this machine.
            target: Absolute path on the host.
            exclude: Patterns of files that are left out (default none).

        Raises:
            ConfigError, PeerError, CommandFailedError: as for `run`.
        """
        filters = [f"--exclude={pattern}" for pattern in exclude]
        self._rsync(
            ["--delete", *filters, f"{folder}/", f"{self.login}:{target}/"], f"copying {folder}"
        )

    def download(
        self, source: str, patterns: Sequence[str], target: Path, *, python: str
    ) -> list[str]:
        """Copy files of the host to this machine, with their folders.

        Args:
            source: Absolute path of a folder on the host.
            patterns: Paths or patterns relative to it.
            target: Folder on this machine.
            python: Path of a Python on the host that has Slipstream.

        Returns:
            The patterns that match nothing.

        Raises:
            ConfigError: as for `run`, or a path leads out of the folder; the others are there.
            PeerError, CommandFailedError: as for `run`.
        """
        words = [python, "-m", "slipstream.cluster.head.storage.output_names", source, *patterns]
        answer = self.run(shlex.join(words), what="listing the outputs")
        found = OutputNames(**json.loads(answer.splitlines()[-1]))
        if found.names:
            files = b"".join(os.fsencode(name) + b"\0" for name in found.names)
            self._rsync([*COPY_NAMED, f"{self.login}:{source}/", f"{target}/"], "fetching", files)
        found.refuse_outside()
        return found.unmatched

    def disconnect(self) -> None:
        """End the shared connection when its last command has ended, be it that of another run."""
        subprocess.run(
            [*self.argv[:-1], "-O", "stop", self.login], capture_output=True, check=False
        )

    def _rsync(self, arguments: Sequence[str], what: str, data: bytes = b"") -> None:
        shell = shlex.join(self.argv[:-1])
        command = ["rsync", "-az", "-e", shell, *arguments]
        with outside(f"rsync {what}"):
            done = subprocess.run(command, input=data, capture_output=True, check=False)
        complaint = done.stderr.decode(errors="replace")
        if done.returncode == SSH_FAILED:
            raise self._connection_error(complaint)
        if done.returncode != 0:
            said = _last_lines(complaint)
            raise CommandFailedError(f"{self.name}: {what} failed: {said}")

    def _connection_error(self, said: str) -> SlipstreamError:
        text = _last_lines(said) or "no message"
        for words, remedy in _REMEDIES:
            if words in said:
                return ConfigError(f"{self.name}: ssh failed: {text}; {remedy}")
        return PeerError(
            f"{self.name} cannot be reached: {text}; `ssh {self.login} true` must work without a"
            " password"
        )


def forget_host_key(path: Path, address: str) -> None:
    """Remove the keys of an address from a file of known hosts, if it has some."""
    if path.exists():
        command = ["ssh-keygen", "-R", address, "-f", str(path)]
        subprocess.run(command, capture_output=True, check=False)


def _last_lines(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines()[-3:])


def _control_folder() -> Path:
    """Return a folder with a short path, since a socket's path has at most 107 characters."""
    folder = Path(tempfile.gettempdir()) / f"slipstream-ssh-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise ConfigError(f"{folder} belongs to somebody else; remove it, or set TMPDIR")
    return folder
