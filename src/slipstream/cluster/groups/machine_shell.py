"""A shell on a machine that outlives its client: commands run one after the other in tmux.

The commands share the working directory and the variables, as if they were typed. Each leaves its
output and its exit code in files, so every client can follow it, also after another one has died.
Input is empty. The session can be attached and used by hand.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.cluster.engines.journal_stream import JournalStream
from slipstream.cluster.engines.ssh_host import CommandFailedError, SshHost
from slipstream.errors import PeerError, PeerTimeoutError

# Longest question for the end of a command, and silence after which it is asked while output is
# shown. A machine may be out of reach for this time while its command goes on. Chosen by hand.
ASK_SECONDS = 4.0
SHOW_SECONDS = 0.3
LOST_SECONDS = 120.0
INTERRUPTED_CODE = 130

# Bash calls the step before each prompt, also after Ctrl-C. It sources the commands that have come.
# The output goes into a file, which tail shows in the session. A command that ends the shell leaves
# its exit code by the trap; one that has begun and left none was interrupted.
_STEP = """\
while :; do
  _slipstream=$(cat {folder}/begun)
  if test ! -e {folder}/$_slipstream.status; then
    echo {interrupted} > {folder}/$_slipstream.status
    kill $(cat {folder}/tail)
  fi
  _slipstream=$((_slipstream + 1))
  test -e {folder}/$_slipstream.command || break
  echo $_slipstream > {folder}/begun
  (tail -n +1 -f --pid=$$ {folder}/$_slipstream.output & echo $! > {folder}/tail)
  trap "echo \\$? > {folder}/$_slipstream.status" EXIT
  . {folder}/$_slipstream.command > {folder}/$_slipstream.output 2>&1 < /dev/null
  echo $? > {folder}/new
  mv {folder}/new {folder}/$(cat {folder}/begun).status
  trap - EXIT
  sleep 0.2
  kill $(cat {folder}/tail)
done
"""

# A shell like that of a login, which calls the step.
_PROFILE = """\
test ! -r /etc/profile || . /etc/profile
for _slipstream in ~/.bash_profile ~/.bash_login ~/.profile; do
  test ! -r $_slipstream || {{ . $_slipstream; break; }}
done
PROMPT_COMMAND="${{PROMPT_COMMAND:+$PROMPT_COMMAND; }}. {folder}/step"
"""

# Starts a shell unless there is one, and wakes it; one that is just ending may not hear that.
_WAKE = """\
{tmux} has-session -t ={session} 2> /dev/null \\
  || (cd; exec {tmux} new-session -d -s {session} -x 200 -y 50 bash --rcfile {folder}/profile 9>&-)
{tmux} send-keys -t ={session}: Enter 2> /dev/null || true
"""

_START = """\
set -e
umask 077
mkdir -p {folder}; cd {folder}
exec 9> lock; flock 9
cat > new.command
test -e begun || {{ echo 0 > begun; touch 0.status; }}
if ! {tmux} has-session -t ={session} 2> /dev/null; then
  cat > step <<'END'
{step}
END
  cat > profile <<'END'
{profile}
END
fi
number=$(($(cat number 2> /dev/null || echo 0) + 1)); echo $number > number
touch $number.output
mv new.command $number.command
{wake}
echo $number $PWD
"""

# A command that has not begun when the shell is gone gets another shell.
_ASK = """\
cd {folder}
for turn in $(seq {turns}); do
  here=$({tmux} has-session -t ={session} 2> /dev/null && echo yes || true)
  test ! -e {number}.status || exec cat {number}.status
  if test -z "$here"; then
    test "$(cat begun)" -lt {number} || {{ echo gone; exit; }}
    {wake}
  fi
  sleep 0.1
done
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShellCommand:
    """A command that a machine's shell was given.

    Args:
        number: Number of the command in the shell, from 1 on.
        folder: Absolute path of the folder with its files.
    """

    number: int
    folder: str

    @property
    def output_path(self) -> str:
        """Path of the file with its output."""
        return f"{self.folder}/{self.number}.output"


class MachineShell:
    """The shell of a group on one machine.

    Args:
        host: Machine.
        group: Name of the group.
    """

    def __init__(self, host: SshHost, group: str) -> None:
        self._host = host
        self._session = f"slipstream-{group}"
        self._folder = f".slipstream/groups/{group}"

    @property
    def attach_command(self) -> str:
        """Shell command that shows the session, or a shell if the session does not exist."""
        return f"tmux -L slipstream attach -t ={self._session} || exec $SHELL -l"

    def start(self, command: str) -> ShellCommand:
        """Give the shell a command; it begins when the earlier ones have ended.

        Args:
            command: Lines for bash, which may be secret.
        """
        folder = f"~/{self._folder}"
        step = _STEP.format(folder=folder, interrupted=INTERRUPTED_CODE)
        profile = _PROFILE.format(folder=folder)
        script = self._script(_START, step=step, profile=profile, wake=self._script(_WAKE))
        answer = self._host.run(script, what="starting a command", text=f"{command}\n")
        number, _, folder = answer.strip().partition(" ")
        return ShellCommand(number=int(number), folder=folder)

    def wait(
        self,
        command: ShellCommand,
        *,
        show: Callable[[str], None] | None = None,
        seconds: float | None = None,
    ) -> int:
        """Wait for the end of a command and return its exit code.

        Args:
            command: Command of this shell.
            show: Function that gets the output as it comes, in whole lines (default None).
            seconds: Longest time to wait (default None: no limit). The command goes on after it.

        Raises:
            PeerTimeoutError: the command goes on after the longest time.
            PeerError: the machine has been out of reach for two minutes.
            CommandFailedError: the shell has ended without an exit code, as at a reboot.
        """
        last_word = time.monotonic()
        until = last_word + (math.inf if seconds is None else seconds)
        follower = _Follower(self._host, command, show)
        try:
            while True:
                try:
                    has_more = follower.read()
                    asking = SHOW_SECONDS if show else min(ASK_SECONDS, until - time.monotonic())
                    code = None if has_more else self._ask(command, asking)
                    last_word = time.monotonic()
                    if code is not None:
                        follower.read_rest()
                        return code
                except PeerError:
                    follower.close()
                    if time.monotonic() - last_word > LOST_SECONDS:
                        raise
                    time.sleep(SHOW_SECONDS)
                if time.monotonic() >= until:
                    raise PeerTimeoutError(
                        f"{self._host.name}: command {command.number} goes on after {seconds:g} s;"
                        " wait longer, or look at it in its tmux session"
                    )
        finally:
            follower.close()

    def output(self, command: ShellCommand) -> str:
        """Return the output of a command so far: standard output and errors together."""
        path = shlex.quote(command.output_path)
        return self._host.run(f"cat {path} 2> /dev/null || true", what="reading the output")

    def interrupt(self) -> None:
        """Send Ctrl-C to the command that runs."""
        script = self._script("{tmux} send-keys -t ={session}: C-c 2> /dev/null || true")
        self._host.run(script, what="interrupting a command")

    def _ask(self, command: ShellCommand, seconds: float) -> int | None:
        """Return the exit code of a command, or None if it goes on after some seconds."""
        turns = max(1, int(seconds / 0.1))
        script = self._script(
            _ASK, number=str(command.number), turns=str(turns), wake=self._script(_WAKE)
        )
        answer = self._host.run(script, what="waiting for a command").strip()
        if answer == "gone":
            raise CommandFailedError(
                f"{self._host.name}: the shell has ended before command {command.number}; was the"
                " machine stopped?"
            )
        return int(answer) if answer else None

    def _script(self, template: str, **parts: str) -> str:
        return template.format(
            folder=f"~/{self._folder}", tmux="tmux -L slipstream", session=self._session, **parts
        )


class _Follower:
    """The reader of a command's output for one that is shown; it reads nothing for nobody."""

    def __init__(
        self, host: SshHost, command: ShellCommand, show: Callable[[str], None] | None
    ) -> None:
        self._host = host
        self._path = command.output_path
        self._show = show
        self._stream: JournalStream | None = None
        self._offset = 0

    def read(self) -> bool:
        """Show new lines; return whether there were any."""
        if self._show is None:
            return False
        if self._stream is None:
            self._stream = JournalStream(self._host, self._path, self._offset)
        text = self._stream.read(SHOW_SECONDS)
        self._offset = self._stream.offset
        if text:
            self._show(text)
        return bool(text)

    def read_rest(self) -> None:
        """Show what the ended command has written since."""
        if self._show is None:
            return
        self.close()
        script = f"tail -c +{self._offset + 1} {shlex.quote(self._path)}"
        rest = self._host.run(script, what="reading the output")
        if rest:
            self._show(rest)

    def close(self) -> None:
        """End the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
