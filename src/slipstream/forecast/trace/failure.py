"""Messages for models that cannot be traced: the line that failed, and the remedy."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

_NEEDS_NUMBERS = (
    DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode,
)  # fmt: skip
# Folders of installed packages. They are recognised by name, because an environment may use the
# packages of another environment, whose path Python does not report.
_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = Path(sysconfig.get_path("stdlib"))
_OURS = Path(__file__).parents[1]


def failure(error: Exception, name: str, samples: int) -> str:
    """Return the message for a model that failed while it ran on tensors without memory.

    Args:
        error: Error that the model's code raised.
        name: Human-readable name of the model.
        samples: Number of samples in the batch on which the model ran.
    """
    where = _line(error)
    if isinstance(error, _NEEDS_NUMBERS):
        return (
            f"{name} cannot be traced{where}: the result of this line depends on the numbers in a"
            " tensor, and a forecast knows shapes only. Make the line independent of them, in a"
            " version of the model for the forecast: take one branch, a fixed number of rounds, or"
            " torch.where"
        )
    message = f"{name} fails on a batch of {samples}, tensors without memory{where}"
    return f"{message}: {type(error).__name__}: {error}"


def _line(error: Exception) -> str:
    """Return file, line number and code of the last traceback entry in the user's code, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        path = Path(frame.filename)
        parents = path.parents
        is_library = _STANDARD in parents or not _INSTALLED.isdisjoint(path.parts)
        if path.is_file() and _OURS not in parents and not is_library:
            return f" at {frame.filename}:{frame.lineno}, `{frame.line}`"
    return ""
