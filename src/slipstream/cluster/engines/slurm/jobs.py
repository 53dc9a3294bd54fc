"""Jobs of Slurm: they are submitted, found and cancelled by the commands of Slurm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slipstream.cluster.outside import outside
from slipstream.errors import ConfigError, PeerError, QuotaError, SlipstreamError, UsageError

COMMAND_SECONDS = 60.0

Phase = Literal["waiting", "running", "ended", "taken"]

_PHASES: Mapping[str, Phase] = {
    "PENDING": "waiting",
    "REQUEUED": "waiting",
    "REQUEUE_FED": "waiting",
    "REQUEUE_HOLD": "waiting",
    "SPECIAL_EXIT": "waiting",
    "CONFIGURING": "waiting",
    "RUNNING": "running",
    "COMPLETING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "STOPPED": "running",
    "SUSPENDED": "running",
    "RESIZING": "running",
    "COMPLETED": "ended",
    "CANCELLED": "ended",
    "FAILED": "ended",
    "OUT_OF_MEMORY": "ended",
    "DEADLINE": "ended",
    "REVOKED": "ended",
    "BOOT_FAIL": "taken",
    "NODE_FAIL": "taken",
    "PREEMPTED": "taken",
    "TIMEOUT": "taken",
}

# Words of messages of sbatch, the error that they are, and what to do about each.
_REFUSALS: Sequence[tuple[str, type[SlipstreamError], str]] = (
    ("nvalid partition", UsageError, "choose another slurm.partition; `sinfo` lists them"),
    ("nvalid account", UsageError, "choose another slurm.account"),
    ("nvalid qos", UsageError, "choose another --qos in slurm.options"),
    ("nvalid feature", UsageError, "choose another --constraint in slurm.options"),
    ("nvalid generic resource", UsageError, "no node has these resources; ask for fewer"),
    (
        "node configuration is not available",
        UsageError,
        "no node has these resources; ask for less",
    ),
    ("Node count specification invalid", UsageError, "the partition has fewer nodes than hosts"),
    ("More processors requested", UsageError, "no node has so many; ask for fewer"),
    ("time limit is invalid", UsageError, "the partition allows less; set a shorter deadline"),
    ("policy", QuotaError, "your account has reached its limit; ask for less, or later"),
    ("nable to contact slurm controller", PeerError, "is slurmctld running?"),
    ("Unexpected message received", PeerError, "is slurmctld running?"),
    ("ocket timed out", PeerError, "slurmctld is overloaded; try later"),
    ("configuration source", ConfigError, "Slurm is not set up here; call this on a login node"),
)

# Reasons of waiting that do not pass by themselves; those of limits are in _is_for_ever.
_LASTING = (
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeldAdmin",
    "JobHeldUser",
    "PartitionConfig",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "PartitionDown",
    "launch failed requeued held",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJob:
    """A job that Slurm knows.

    Args:
        number: Number of the job.
        state: State in Slurm's words, such as "PENDING".
        reason: Reason why it waits, such as "Resources".
    """

    number: str
    state: str
    reason: str

    @property
    def phase(self) -> Phase:
        """Whether it waits, runs, has ended for good, or has lost its nodes to others."""
        return _PHASES.get(self.state, "running")

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs."""
        return self.phase in ("waiting", "running")

    def check_waiting(self) -> None:
        """Do nothing if the job will start some time.

        Raises:
            QuotaError: it asks for more than a limit that applies to each job.
            UsageError: it waits for what never comes.
        """
        if self.state != "PENDING":
            return
        text = f"Slurm's job {self.number} waits for ever, for the reason {self.reason}"
        if self.reason.endswith("PerJobLimit") or self.reason.endswith("PerJob"):
            raise QuotaError(f"{text}; ask for less, or use another account")
        if self.reason in _LASTING:
            raise UsageError(f"{text}; change the fields of slurm or resources")


def submit_job(script: Path, hidden: Sequence[str]) -> str:
    """Submit a batch script; return the number of the job.

    Args:
        script: Path of the script.
        hidden: Names of environment variables that Slurm does not get.

    Raises:
        UsageError, QuotaError: Slurm refuses the job.
        PeerError: Slurm does not answer.
    """
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    return _call(["sbatch", "--parsable", str(script)], environ).strip().partition(";")[0]


def find_job(name: str) -> SlurmJob | None:
    """Return the job of a name that waits or runs, or else the newest one that has ended.

    Slurm forgets a job some minutes after its end.

    Args:
        name: Name of the job.

    Raises:
        PeerError: Slurm does not answer.
    """
    options = [f"--user={os.getuid()}", f"--name={name}", "--states=all", "--noheader"]
    jobs: list[SlurmJob] = []
    for line in _call(["squeue", *options, "--format=%A|%T|%r"]).splitlines():
        number, state, reason = line.split("|", 2)
        jobs.append(SlurmJob(number=number, state=state, reason=reason))
    jobs.sort(key=lambda job: (job.is_active, int(job.number)))
    return jobs[-1] if jobs else None


def exit_code_of(job: SlurmJob) -> int:
    """Return the exit code of the batch script of a job that has ended, or 1 if it has none."""
    told = _call(["scontrol", "--oneliner", "show", "job", job.number])
    for word in told.split():
        if word.startswith("ExitCode="):
            return int(word.removeprefix("ExitCode=").partition(":")[0]) or 1
    return 1


def cancel_job(job: SlurmJob) -> None:
    """Cancel a job."""
    _call(["scancel", job.number])


def _call(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    with outside(f"slurm {argv[0]}"):
        try:
            done = subprocess.run(
                argv,
                env=environ,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            raise ConfigError(
                f"{argv[0]} is not installed here; call this on a login node of Slurm"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"{argv[0]} took longer than {COMMAND_SECONDS:g} s") from error
    if done.returncode == 0:
        return done.stdout
    said = "; ".join(done.stderr.strip().splitlines()[-2:])
    for words, kind, remedy in _REFUSALS:
        if words in done.stderr:
            raise kind(f"{argv[0]} failed: {said}; {remedy}")
    raise ConfigError(f"{argv[0]} failed with exit code {done.returncode}: {said}")
