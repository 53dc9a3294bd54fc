"""The environment variables of the cluster: where its records are, and a trap for tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from slipstream.errors import ConfigError
from slipstream.settings.variables import variables


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for the records of runs, clusters and the queue.

    Args:
        environ: Environment variables (default: this process's environment).

    Raises:
        ConfigError: SLIPSTREAM_HOME is no path.
    """
    variable = variables()["home"]
    text = environ.get(variable.name)
    return variable.kind.read(variable.name, text) if text else Path.home() / ".slipstream"


def observations_file(home: Path) -> Path:
    """Return the file of what runs really took, which corrects forecasts.

    Args:
        home: Folder of the records.
    """
    return home / "observations.jsonl"


def plan_environment(strategy: Mapping[str, object]) -> dict[str, str]:
    """Return the variables that tell the ranks the strategy of their plan.

    Args:
        strategy: Choices of the strategy. A size of buckets is told to scripts of Horovod as well.
    """
    variable = {variables()["plan"].name: json.dumps(strategy)}
    size = strategy.get("bucket_bytes")
    return variable if size is None else {**variable, "HOROVOD_FUSION_THRESHOLD": str(size)}


def checkpoint_environment(place: str) -> dict[str, str]:
    """Return the variable that tells ranks where their checkpoints belong; none for "".

    Args:
        place: Folder or URL.
    """
    return {variables()["checkpoint"].name: place} if place else {}


def steps_environment(*, is_asked: bool) -> dict[str, str]:
    """Return the variable that makes ranks report their steps; none if nobody asks for them.

    Args:
        is_asked: Whether somebody reads the reports.
    """
    return {variables()["reports_steps"].name: "1"} if is_asked else {}


def steps_are_reported(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process reports its steps.

    Args:
        environ: Environment variables (default: this process's environment).

    Raises:
        ConfigError: SLIPSTREAM_REPORT_STEPS is neither 0 nor 1.
    """
    variable = variables()["reports_steps"]
    text = environ.get(variable.name)
    return bool(text) and bool(variable.kind.read(variable.name, text))


def gpu_share_environment(
    fraction: float, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables that limit PyTorch (2.10 and newer) and JAX to a part of each GPU.

    TensorFlow has no variable for a limit; it takes memory as it needs it, not all at the start.

    Args:
        fraction: Largest fraction of a GPU's memory for one process, above 0 and at most 1.
        environ: Environment, whose other options for PyTorch's allocator are kept (default: this
            process's environment).
    """
    part = f"{fraction:.4f}"
    options = [environ.get("PYTORCH_ALLOC_CONF", ""), f"per_process_memory_fraction:{part}"]
    return {
        "PYTORCH_ALLOC_CONF": ",".join(filter(None, options)),
        "XLA_PYTHON_CLIENT_MEM_FRACTION": part,
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def share_hook_environment(
    folder: str, mebibytes: int, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables with which Python limits TensorFlow, by a module of a folder.

    Args:
        folder: Folder with the module `sitecustomize`.
        mebibytes: Memory of each GPU in MiB.
        environ: Environment, whose module path is kept (default: this process's environment).
    """
    path = [folder, environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        variables()["gpu_memory"].name: str(mebibytes),
    }


def secret_variables(
    names: Iterable[str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the values of variables that a job passes on without a record.

    Args:
        names: Names of the variables.
        environ: Environment variables (default: this process's environment).

    Raises:
        ConfigError: one of them is not set.
    """
    missing = [name for name in names if name not in environ]
    if missing:
        raise ConfigError(
            f"the job needs the secret variables {', '.join(missing)}, which are not set here; set"
            " them, or take them out of the field secrets"
        )
    return {name: environ[name] for name in names}


def stopping_call(environ: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Return the outside call at which this process kills itself; None for no such call.

    The first element is "before" or "after", the second is the number of the call, from 0 on.

    Args:
        environ: Environment variables (default: this process's environment).
    """
    text = environ.get(variables()["stop_at"].name)
    if not text:
        return None
    moment, _, number = text.partition(":")
    return moment, int(number)
