"""Code becomes a small archive with the same bytes each time, and comes back from it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.code_bundle import bundle_code, bundle_files
from slipstream.cluster.head.bundle import ARCHIVE, SOURCES, unpack_code
from slipstream.errors import ConfigError

MakePlan = Callable[..., RunPlan]


def test_the_code_comes_back_without_what_is_excluded(plan_of: MakePlan, tmp_path: Path) -> None:
    plan = plan_of(
        code={"exclude": ["*.bin", "data", "sub/skipped"]}, software={"setup": "cp train.py t2"}
    )
    code = plan.code_folder
    for name in ("model.bin", "data/x", "sub/kept", "sub/skipped", "sub/deep/model.bin"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(name)
    unpack_code(bundle_files(plan), tmp_path / "there")
    names = {str(path.relative_to(tmp_path / "there")) for path in (tmp_path / "there").rglob("*")}
    assert names == {"train.py", "t2", "sub", "sub/kept"}


def test_the_same_code_has_the_same_bytes(plan_of: MakePlan) -> None:
    code = plan_of().code_folder
    first = bundle_code(code, ())
    (code / "train.py").touch()
    assert bundle_code(code, ()) == first


def test_a_set_up_that_fails_is_named(plan_of: MakePlan, tmp_path: Path) -> None:
    files = bundle_files(plan_of(software={"setup": "echo no such driver >&2; exit 3"}))
    assert set(files) == {ARCHIVE, SOURCES}
    with pytest.raises(ConfigError, match="sh failed on the host: no such driver"):
        unpack_code(files, tmp_path / "there")
