"""Call the user's code. Messages about errors in this code show only the user's own lines."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import slipstream
from slipstream.errors import SlipstreamError, UsageError

Result = TypeVar("Result")
OURS = str(Path(slipstream.__file__).parent)


def called(what: str, code: Callable[[], Result]) -> Result:
    """Call the user's code and return its result.

    Errors of Slipstream are raised unchanged.

    Raises:
        UsageError: If the code raises an error that is not Slipstream's. The message names the
            error and lists the lines of the traceback that belong neither to Slipstream nor to an
            installed package.
    """
    try:
        return code()
    except SlipstreamError:
        raise
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)]
        lines = "".join(traceback.format_list(frames)).rstrip()
        raise UsageError(f"{what} raised {type(error).__name__}: {error}\n{lines}") from error


def _is_users(frame: traceback.FrameSummary) -> bool:
    is_installed = "site-packages" in frame.filename or "dist-packages" in frame.filename
    return not (frame.filename.startswith((OURS, "<")) or is_installed)
