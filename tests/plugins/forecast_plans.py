"""The output of `slipstream forecast --json`, for tests of jobs with a plan."""

from __future__ import annotations

import json
from typing import Any


def plan_of(**changes: Any) -> dict[str, Any]:
    """Return the part of a plan for jobs: one host of this machine's user, one rank, 100 steps."""
    return {
        "model": "gpt2", "hardware": "1 x Xeon-8380", "hosts": 1, "processes": 1, "gpus": 0,
        "gpu": "", "cloud": "", "instance_type": "", "is_spot": False, "dollars_per_hour": None,
        "batch": 64, "steps": 100, "seconds_per_step": {"value": 0.2, "low": 0.17, "high": 0.25},
        "memory_bytes": {"value": 2e9, "low": 1.8e9, "high": 2.2e9}, "device_bytes": 1 << 35,
        "strategy": {"data": 1, "micro_batch": 64, "micro_batches": 1, "precision": "fp32"},
        "kind": {"num_parameters": 10, "device": "Xeon-8380", "input_rate": 0.0},
        "setup": {"hosts": 1, "batch": 64, "network": ""}, **changes,
    }  # fmt: skip


def rented_plan(**changes: Any) -> dict[str, Any]:
    """Return such a plan for two machines of AWS with eight GPUs each, an hour of training."""
    rented = {
        "hardware": "2 x aws p4d.24xlarge", "hosts": 2, "processes": 8, "gpus": 8, "gpu": "A100",
        "cloud": "aws", "instance_type": "p4d.24xlarge", "dollars_per_hour": 21.5, "steps": 18000,
        "strategy": {"data": 16, "micro_batch": 4, "codec": "fp16", "bucket_bytes": 4 << 20},
    }  # fmt: skip
    return plan_of(**{**rented, **changes})


def forecast_text(*plans: dict[str, Any], version: int = 1) -> str:
    """Return the JSON of a forecast with plans."""
    listed = [{"machine": "of no interest here", "job": plan} for plan in plans]
    return json.dumps({"version": version, "steps": 100, "plans": listed, "losses": []})
