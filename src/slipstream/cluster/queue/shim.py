"""The small process that starts one job, outlives the daemon, and writes the exit code down.

It is run as a script, imports nothing of Slipstream, and reads its orders as JSON from stdin. The
folder of the token decides who starts the job: a folder that has the name of its process is made
beside it and renamed, which fails if the token has a folder already. So a token is started once,
and its folder always tells by whom. The files in the folder:

    shim    process id, start time and boot of this process
    stop    seconds that the job has after SIGTERM; written by the runner
    exit    exit code, negative for a signal, or "none" for a start that was withdrawn
    output  output of the job
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from _thread import get_native_id

# It imports little, because each start of a job waits for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    AnyPath = str | os.PathLike[str]

WAKE = (signal.SIGCHLD, signal.SIGUSR1)
BLOCKED = (*WAKE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Exit codes of shells for a program that cannot be run, and for one that is not there.
CANNOT_RUN, NOT_FOUND = 126, 127
PROC = "/proc"
# Looks at a process that seems to have no environment, and the pause between them.
EXEC_LOOKS = 5
EXEC_SECONDS = 0.001


def write_durably(path: AnyPath, text: str) -> None:
    """Write a file that is either whole or not there, even after a crash of the machine."""
    part = hidden_name(path)
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: AnyPath) -> str | None:
    """Return the content of a file, or None if there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None


def hidden_name(path: AnyPath) -> str:
    """Return a name beside a path that no other process or thread uses."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.getpid()}.{get_native_id()}")


def claim(folder: AnyPath, files: dict[str, str]) -> bool:
    """Make the folder of a token with some files; return False if the token has one already.

    Args:
        folder: Folder of the token.
        files: Contents of its first files by name; at least one.
    """
    own = hidden_name(folder)
    os.mkdir(own, 0o700)
    for name, text in files.items():
        write_durably(os.path.join(own, name), text)
    try:
        os.rename(own, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise
        for name in files:
            os.unlink(os.path.join(own, name))
        os.rmdir(own)
        return False
    return True


def process_mark(process: int) -> str:
    """Return a text that names a living process uniquely; "" if it is dead.

    Args:
        process: Process id.
    """
    text = read(f"{PROC}/{process}/stat")
    if text is None:
        return ""
    fields = text.rpartition(")")[2].split()
    boot = (read(f"{PROC}/sys/kernel/random/boot_id") or "").strip()
    return "" if fields[0] in "ZX" else f"{process} {fields[19]} {boot}"


def processes_with(variable: str) -> list[int]:
    """Return the living processes whose environment has a variable, such as "NAME=value"."""
    wanted, found = variable.encode(), list[int]()
    for name in os.listdir(PROC):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            environ = _environ(name)
        except OSError:
            continue  # it has ended, or belongs to somebody else
        if wanted in environ.split(b"\0"):
            found.append(int(name))
    return found


def _environ(process: str) -> bytes:
    """Return the environment of a process; it seems empty while the process starts a program."""
    environ = b""
    for _ in range(EXEC_LOOKS):
        with open(f"{PROC}/{process}/environ", "rb") as file:
            environ = file.read()
        if environ:
            break
        os.readlink(f"{PROC}/{process}/exe")  # threads of the kernel have none
        time.sleep(EXEC_SECONDS)
    return environ


def kill(process: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass  # it has ended


def poke(path: str) -> None:
    """Wake the daemon through its FIFO; without a daemon nothing happens."""
    try:
        fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # no daemon: the next one looks at all tokens
    try:
        os.write(fifo, b"x")
    except BlockingIOError:
        pass  # it is full, so the daemon wakes up anyway
    finally:
        os.close(fifo)


def find_program(name: str, environ: dict[str, str]) -> str:
    """Return the path of a program that the PATH of a job has, or the name if there is none."""
    paths = [os.path.join(folder, name) for folder in os.get_exec_path(environ)]
    here = [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]
    return here[0] if here and "/" not in name else name


def spawn(orders: dict[str, Any], output: int) -> int:
    """Start the job in a process group; return its process id, -1 if it is not there, else -2."""
    command: list[str] = orders["command"]
    files = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    try:
        os.chdir(orders["cwd"])
        return os.posix_spawn(
            find_program(command[0], orders["environ"]),
            command,
            orders["environ"],
            file_actions=files,
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE,),
        )
    except OSError as error:
        os.write(output, f"slipstream: {error.filename}: {error.strerror}\n".encode())
        return -1 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else -2


def follow(process: int, folder: str, variable: str) -> int:
    """Wait for the end of the job, and end it when the runner asks for it.

    Args:
        process: Process id of the job.
        folder: Folder of the token.
        variable: Variable in the environment of all processes of the job.

    Returns:
        Exit code, negative for a signal.
    """
    deadline, told = float("inf"), float("inf")
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        grace = read_grace(folder)
        if grace < told:
            if told == float("inf"):
                os.killpg(process, signal.SIGTERM)
            deadline, told = min(deadline, time.monotonic() + grace), grace
        rest = deadline - time.monotonic()
        if rest <= 0:
            for other in [process, *processes_with(variable)]:
                kill(other, signal.SIGKILL)
            deadline = float("inf")
        signal.sigtimedwait(WAKE, min(max(rest, 0.0), 3600.0))


def read_grace(folder: AnyPath) -> float:
    """Return the seconds that the job has after SIGTERM; infinity if it may go on."""
    return float(read(os.path.join(folder, "stop")) or "inf")


def run(orders: dict[str, Any], ready: int) -> None:
    """Claim the token and run its job to the end."""
    root, token = str(orders["root"]), str(orders["token"])
    folder = os.path.join(root, token)
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    claimed = claim(folder, {"shim": process_mark(os.getpid())})
    os.write(ready, b"1")
    os.close(ready)
    if not claimed:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    output = os.open(f"{folder}/output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    process = spawn(orders, output)
    code = follow(process, folder, orders["variable"]) if process > 0 else CANNOT_RUN
    while others := processes_with(orders["variable"]):
        for other in others:
            kill(other, signal.SIGKILL)
        signal.sigtimedwait(WAKE, 0.01)
    write_durably(f"{folder}/exit", str(NOT_FOUND if process == -1 else code))
    poke(orders["poke"])


def main() -> int:
    """Read the orders, and go on as a process without a parent; return 1 if it has no token."""
    orders = json.load(sys.stdin)
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return 0 if os.read(reading, 1) else 1
    os.close(reading)
    os.setsid()
    run(orders, writing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
