"""Data of a job comes to its folder on a host, and nothing that is there is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.preparation import bring_data
from slipstream.cluster.engines.this_host import ThisHost
from slipstream.errors import ConfigError

MakePlan = Callable[..., RunPlan]
pytestmark = pytest.mark.launcher("rsync")


def bring(plan: RunPlan, folder: Path) -> Path:
    """Bring the data of a plan to a run's folder on this host; return the folder of its code."""
    (folder / "code").mkdir(parents=True, exist_ok=True)
    bring_data(plan, ThisHost(), str(folder), "python3")
    return folder / "code"


def test_a_folder_comes_beside_files_that_are_there(plan_of: MakePlan, tmp_path: Path) -> None:
    plan = plan_of(data=[{"source": "set", "path": "in/a"}])
    (plan.base / "set/sub").mkdir(parents=True)
    (plan.base / "set/sub/x.csv").write_text("1")
    kept = tmp_path / "run/code/in/a/own.py"
    kept.parent.mkdir(parents=True)
    kept.write_text("code")
    for text in ("1", "22"):
        (plan.base / "set/sub/x.csv").write_text(text)
        code = bring(plan, tmp_path / "run")
        assert (code / "in/a/sub/x.csv").read_text() == text
    assert kept.read_text() == "code"


@pytest.mark.parametrize("name", ["data.csv", "a b.csv", "w[1]*.csv", "back\\slash", "b\\[1]"])
def test_a_file_comes_alone(plan_of: MakePlan, tmp_path: Path, name: str) -> None:
    plan = plan_of(data=[{"source": name, "path": "in"}])
    (plan.base / name).write_text("1")
    (plan.base / "w[1]2.csv").write_text("another")
    code = bring(plan, tmp_path / "run")
    assert [path.name for path in (code / "in").iterdir()] == [name]
    assert (code / "in" / name).read_text() == "1"


@pytest.mark.parametrize("name", ["missing", "link"])
def test_data_that_is_no_file_or_folder_is_named(
    plan_of: MakePlan, tmp_path: Path, name: str
) -> None:
    plan = plan_of(data=[{"source": name, "path": "in"}])
    (plan.base / "link").symlink_to("train.py")
    with pytest.raises(ConfigError, match=f"{name} is no file or folder of this machine"):
        bring(plan, tmp_path / "run")
