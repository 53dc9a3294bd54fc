"""A rank that does what its arguments say, in their order, or what RANK:ACTION says for its rank.

A process that joins an elastic job has no rank: join:ACTION is for all of these.

print=TEXT  error=TEXT  progress=PERCENT  wait   exit=CODE
kill=SIGNAL (itself)  ignore=SIGNAL  last=SIGNAL (say goodbye, exit 0)
spawn (a child)  escape (a child in a session of its own)
leave=PATH (an empty file)  await=PATH (until it is there)  show=NAME (a variable)
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def say_last(number: int, _frame: object) -> None:
    """Say goodbye and leave with success."""
    print(f"goodbye after {signal.Signals(number).name}", flush=True)
    sys.exit(0)


def wait(_value: str) -> None:
    """Live on until a signal comes."""
    print("waiting", flush=True)
    time.sleep(600)


def draw(value: str) -> None:
    """Draw a progress bar as tqdm does."""
    for percent in range(int(value) + 1):
        print(f"\r{percent}%", end="", file=sys.stderr, flush=True)


def await_file(path: str) -> None:
    """Wait until another rank has left a file."""
    while not Path(path).exists():
        time.sleep(0.01)


ACTIONS: dict[str, Callable[[str], object]] = {
    "print": lambda value: print(value, flush=True),
    "error": lambda value: print(value, file=sys.stderr, flush=True),
    "exit": lambda value: sys.exit(int(value)),
    "kill": lambda value: os.kill(os.getpid(), signal.Signals[value]),
    "wait": wait,
    "ignore": lambda value: signal.signal(signal.Signals[value], signal.SIG_IGN),
    "last": lambda value: signal.signal(signal.Signals[value], say_last),
    "spawn": lambda _value: subprocess.Popen(SLEEPER),
    "escape": lambda _value: subprocess.Popen(SLEEPER, start_new_session=True),
    "progress": draw,
    "leave": lambda value: Path(value).touch(),
    "await": await_file,
    "show": lambda value: print(f"{value}={os.environ.get(value)}", flush=True),
}


def main() -> None:
    """Do what concerns this rank."""
    for argument in sys.argv[1:]:
        rank, mark, action = argument.partition(":")
        if not mark or rank == os.environ.get("RANK", "join"):
            name, _, value = (action or argument).partition("=")
            ACTIONS[name](value)


if __name__ == "__main__":
    main()
