"""The state of the code that a run is started with: its commit, and what differs from it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

MAX_DIFF_BYTES = 1 << 20
GIT_SECONDS = 20.0


def code_state(folder: Path) -> dict[str, Any]:
    """Return the version of Slipstream, and the commit and the changes of a folder.

    Args:
        folder: Folder of the code; outside of a git repository, there is no commit.
    """
    state: dict[str, Any] = {"slipstream": version("slipstream"), "folder": str(folder)}
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return state
    diff = _git(folder, "diff", "HEAD") or ""
    return {
        **state,
        "commit": commit.strip(),
        "diff": diff[:MAX_DIFF_BYTES],
        "is_diff_whole": len(diff) <= MAX_DIFF_BYTES,
        "untracked": (_git(folder, "ls-files", "--others", "--exclude-standard") or "").split("\n")[
            :1000
        ],
    }


def changes_since(state: Mapping[str, Any]) -> list[str]:
    """Return in words how the code of a folder differs now from a state that was recorded.

    Args:
        state: State that `code_state` has returned.
    """
    if "folder" not in state:
        return []
    now = code_state(Path(str(state["folder"])))
    changes = [
        (now["slipstream"] != state["slipstream"], "Slipstream's version is another one"),
        (now.get("commit") != state.get("commit"), f"the commit was {state.get('commit')}"),
        (now.get("diff") != state.get("diff"), "the uncommitted changes are others"),
    ]
    return [f"the code is not as it was: {text}" for differs, text in changes if differs]


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git, or None if git is missing or fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
