"""Train on 4 hosts with 2 ranks each while connections, links and processes fail and come back.

    sudo python tests/soak/chaos.py --events 200 --seed 1

The hosts are network namespaces. An event cuts a connection, takes a host's link down for a while,
stops a process for a while, or kills a process, which is started again; rank 0 is hit as often as
the others. The training must end, with every sample of every epoch used once, with the weights of a
training without faults up to rounding, with memory and open files flat, and with nothing left
behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipstream.lab import Lab, LabSpec

RANK = Path(__file__).with_name("chaos_rank.py")
HOSTS, RANKS_PER_HOST = 4, 2
FIRST_PORT = 41000
SAMPLES, BATCH = 4096, 64
LIMIT_SECONDS = 120.0  # for one recovery, on a machine that does other things too
END_SECONDS = 240.0  # from the last event to the end of the training
GROWTH_BYTES = 48 << 20


class ChaosError(Exception):
    """The training did not survive as it should."""


class Slot:
    """A place for a process, on a host of the lab."""

    def __init__(self, number: int, lab: Lab, folder: Path) -> None:
        self.number = number
        self.host = number // RANKS_PER_HOST
        self.port = FIRST_PORT + number
        self.place = f"{lab.addresses[self.host]}:{self.port}"
        self._namespace = lab.namespaces[self.host]
        self._folder = folder
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: list[str], environ: dict[str, str]) -> None:
        self._starts += 1
        self.log = self._folder / f"slot{self.number}-{self._starts}.log"
        command = ["ip", "netns", "exec", self._namespace, sys.executable, str(RANK), *arguments]
        own = {"SLIPSTREAM_MEMBER_PORT": str(self.port), "OMP_NUM_THREADS": "1"}
        own["TMPDIR"] = str(temporary(self._folder))
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                command, env={**os.environ, **own, **environ}, stdout=file, stderr=file
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def reports(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


class Chaos:
    """The job and the events that hit it."""

    def __init__(self, lab: Lab, folder: Path, options: argparse.Namespace) -> None:
        self._lab = lab
        self._random = random.Random(options.seed)
        self._end = folder / "end"
        self._arguments = arguments(options.seed, options.epochs, self._end)
        self.slots = [Slot(each, lab, folder) for each in range(HOSTS * RANKS_PER_HOST)]
        self._environ = {
            "SLIPSTREAM_JOB_KEY": secrets.token_hex(16),
            "SLIPSTREAM_MEMBERS": ",".join(slot.place for slot in self.slots),
            "SLIPSTREAM_MIN_RANKS": "2",
        }
        self.counts: dict[str, int] = {}
        self.recoveries: list[float] = []

    def begin(self) -> None:
        master = {"MASTER_ADDR": self._lab.addresses[0], "MASTER_PORT": str(FIRST_PORT - 10)}
        for slot in self.slots:
            ranks = {"RANK": str(slot.number), "WORLD_SIZE": str(len(self.slots))}
            slot.start(self._arguments, self._environ | master | ranks)
        self._await(lambda: all(slot.reports for slot in self.slots), "the job to begin")

    def hit(self) -> None:
        """Let one thing fail and come back, and wait until all ranks train together again."""
        kind = self._random.choice(["cut", "link", "stop", "kill"])
        slot = self.slots[0] if self._random.random() < 0.2 else self._random.choice(self.slots)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        began = time.monotonic()
        {"cut": self._cut, "link": self._link, "stop": self._stop, "kill": self._kill}[kind](slot)
        self._await(self._is_whole, f"all ranks after '{kind}' of slot {slot.number}")
        self.recoveries.append(time.monotonic() - began)
        time.sleep(self._random.uniform(0.0, 0.3))

    def _cut(self, slot: Slot) -> None:
        slot.signal(signal.SIGUSR2)

    def _link(self, slot: Slot) -> None:
        self._lab.cut(slot.host)
        time.sleep(self._random.uniform(0.2, 4.0))
        self._lab.mend(slot.host)

    def _stop(self, slot: Slot) -> None:
        slot.signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(0.2, 4.0))
        slot.signal(signal.SIGCONT)

    def _kill(self, slot: Slot) -> None:
        slot.signal(signal.SIGKILL)
        assert slot.process is not None
        slot.process.wait()
        time.sleep(self._random.uniform(0.0, 0.5))
        slot.start(self._arguments, self._environ | {"SLIPSTREAM_JOINS": "1"})

    def _is_whole(self) -> bool:
        """Whether all processes are in the same epoch of the job, with all ranks."""
        last = [slot.reports[-1] for slot in self.slots if slot.reports]
        epochs = {report.get("epoch") for report in last}
        sizes = {report["size"] for report in last}
        return len(last) == len(self.slots) == max(sizes) and len(epochs) == len(sizes) == 1

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            for slot in self.slots:
                code = slot.process.poll() if slot.process else 0
                if code:
                    raise ChaosError(f"slot {slot.number} ended with {code}: {tail(slot)}")
            if self.has_ended():
                raise ChaosError("the training ended before the events")
            if time.monotonic() > deadline:
                raise ChaosError(f"waited {LIMIT_SECONDS:g} s for {what}:\n{self._states()}")
            time.sleep(0.02)

    def _states(self) -> str:
        return "\n".join(f"slot {slot.number}: {tail(slot)}" for slot in self.slots)

    def has_ended(self) -> bool:
        return any(slot.process is not None and slot.process.poll() == 0 for slot in self.slots)

    def finish(self) -> list[dict[str, Any]]:
        self._end.touch()
        for slot in self.slots:
            assert slot.process is not None
            try:
                code = slot.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                raise ChaosError(
                    f"not at its end {END_SECONDS:g} s later:\n{self._states()}"
                ) from None
            if code:
                raise ChaosError(f"slot {slot.number} ended with {code}: {tail(slot)}")
        return [slot.reports[-1] for slot in self.slots]

    def check_memory(self) -> None:
        for slot in self.slots:
            reports = [report for report in slot.reports if "epoch" in report]
            grown = reports[-1]["memory"] - reports[min(2, len(reports) - 1)]["memory"]
            files = reports[-1]["files"] - reports[min(2, len(reports) - 1)]["files"]
            if grown > GROWTH_BYTES or files > 64:
                raise ChaosError(f"slot {slot.number} has grown by {grown} bytes, {files} files")

    def end(self) -> None:
        for slot in self.slots:
            if slot.process is not None and slot.process.poll() is None:
                slot.process.kill()
                slot.process.wait()


def tail(slot: Slot) -> str:
    return "\n  ".join(slot.log.read_text().splitlines()[-6:])


def arguments(seed: int, epochs: int, end: Path) -> list[str]:
    """Return the arguments of a rank, which ends after some epochs once a file exists."""
    return [*(str(each) for each in (seed, epochs, SAMPLES, BATCH)), str(end)]


def undisturbed(seed: int, epochs: int) -> dict[str, Any]:
    """Return what one process reports that trains alone."""
    command = [sys.executable, str(RANK), *arguments(seed, epochs, RANK)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def temporary(folder: Path) -> Path:
    """Return the folder for temporary files of the ranks."""
    return folder / "tmp"


def leftovers(folder: Path) -> list[str]:
    """Return what the job has left; other jobs may use the shared memory of this machine."""
    here = {str(path) for path in Path("/dev/shm").iterdir() if "slipstream" in path.name}
    return sorted({*here, *(str(path) for path in temporary(folder).iterdir())})


def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, Lab(LabSpec(hosts=HOSTS)) as lab:
        temporary(Path(folder)).mkdir()
        before = leftovers(Path(folder))
        chaos = Chaos(lab, Path(folder), options)
        try:
            chaos.begin()
            for number in range(options.events):
                chaos.hit()
                print(f"\r{number + 1} of {options.events} events", end="", file=sys.stderr)
            print(file=sys.stderr)
            chaos.check_memory()
            last = chaos.finish()
        finally:
            chaos.end()
        if left := sorted(set(leftovers(Path(folder))) - set(before)):
            raise ChaosError(f"the job left {left}")
    reference = undisturbed(options.seed, last[0]["passes"])
    digests = {report["digest"] for report in last}
    if len(digests) != 1 or abs(digests.pop() - reference["digest"]) > 1e-6 * reference["digest"]:
        raise ChaosError(f"the weights differ from those without faults: {last}, {reference}")
    recoveries = sorted(chaos.recoveries)
    return {
        "seed": options.seed,
        "events": chaos.counts,
        "epochs": last[0]["passes"],
        "accuracy": last[0]["accuracy"],
        "accuracy_without_faults": reference["accuracy"],
        "seconds_until_all_are_back": {
            "median": round(recoveries[len(recoveries) // 2], 2),
            "longest": round(recoveries[-1], 2),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200, help="number of events (200)")
    parser.add_argument("--epochs", type=int, default=40, help="least passes over the data (40)")
    parser.add_argument("--seed", type=int, default=1, help="seed of events and data (1)")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    try:
        print(json.dumps(run(options), indent=2))
    except ChaosError as error:
        sys.exit(f"chaos.py with seed {options.seed}: {error}")


if __name__ == "__main__":
    main()
