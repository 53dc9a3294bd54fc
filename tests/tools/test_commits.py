"""The number of a commit where git gives none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import commits
import pytest


@pytest.mark.root
def test_a_checkout_that_git_refuses_is_an_error_and_not_number_0(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 12345, 12345)
    with pytest.raises(SystemExit, match="dubious ownership"):
        commits.number(tmp_path)


def test_a_checkout_without_commits_is_an_error(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(SystemExit, match=r"git rev-list --count HEAD in .*HEAD"):
        commits.number(tmp_path)


def test_a_share_that_is_named_is_not_that_of_the_commit(tmp_path: Path) -> None:
    assert commits.share("commit", tmp_path) == "0"  # there is no git here
    assert [commits.share(named, tmp_path) for named in ("all", "475")] == ["all", "475"]
