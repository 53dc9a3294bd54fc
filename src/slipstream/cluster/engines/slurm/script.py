"""The batch script that brings a run to the nodes of Slurm."""

from __future__ import annotations

import math
import shlex
import time
from pathlib import Path

from slipstream.cluster.control.plan import RunPlan

# Slurm ends the job so long after the deadline, at which the head ends the ranks; and before a time
# limit, the head gets a signal so early that the ranks can save.
MARGIN_SECONDS = 120.0
WARNING_SECONDS = 60


def home_of(plan: RunPlan) -> Path:
    """Return the folder for runs and environments, which all nodes see."""
    return Path(plan.spec.slurm.folder or "~/slipstream").expanduser()


def batch_script(plan: RunPlan, folder: str, python: str) -> str:
    """Return the batch script of a run.

    Args:
        plan: Run.
        folder: Folder of the run, which all nodes see.
        python: Path of Python on every node.
    """
    lines = [f"#SBATCH {option}" for option in (*_options(plan, folder), *plan.spec.slurm.options)]
    head = shlex.join([python, "-m", "slipstream.cluster.head.in_slurm", folder])
    nodes = '$(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    start = f'exec {head} "$SLURM_JOB_ID" "$SLURMD_NODENAME" {nodes}'
    return "\n".join(["#!/bin/sh", *lines, start, ""])


def _options(plan: RunPlan, folder: str) -> list[str]:
    spec = plan.spec
    hosts, resources = spec.hosts, spec.resources
    ranks = spec.processes if isinstance(spec.processes, int) else 0
    cpus = resources.cpus or ranks
    devices = {"gpu": resources.gpus, **resources.accelerators}
    generic = ",".join(f"{name}:{count}" for name, count in devices.items() if count)
    chosen = {
        "--job-name": plan.run,
        "--dependency": "singleton",  # of two jobs of this name, the second waits, and then ends
        # With --ntasks-per-node, Slurm would give the least number of nodes only.
        "--nodes": str(hosts.max) if hosts.min == hosts.max else f"{hosts.min}-{hosts.max}",
        "--cpus-per-task": str(cpus) if cpus else "",
        "--gres": generic,
        "--mem": f"{math.ceil(resources.memory * 1024)}M" if resources.memory else "",
        "--tmp": f"{math.ceil(resources.disk)}G" if resources.disk else "",
        "--time": _minutes(plan),
        "--signal": f"B:TERM@{WARNING_SECONDS}",
        "--partition": spec.slurm.partition,
        "--account": spec.slurm.account,
        "--output": f"{folder}/slurm.log",
        "--open-mode": "append",
        "--chdir": folder,
    }
    # A job that can shrink keeps the nodes that are left when one fails; another one starts again.
    flags = ["--requeue", *(["--no-kill"] if hosts.min < hosts.max else [])]
    return [*(f"{name}={value}" for name, value in chosen.items() if value), *flags]


def _minutes(plan: RunPlan) -> str:
    """Return the time limit of the job in minutes, or "" for that of the partition."""
    if plan.record.deadline_at is None:
        return ""
    return str(math.ceil((plan.record.deadline_at - time.time() + MARGIN_SECONDS) / 60))
