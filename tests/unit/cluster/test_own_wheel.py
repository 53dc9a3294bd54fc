"""A wheel of the Slipstream that is running: pip installs it, and it runs."""

import platform
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slipstream.cluster.own_wheel import build_own_wheel
from slipstream.errors import UnsupportedError

HERE = (sys.version_info[:2], platform.machine())


def test_all_threads_get_the_same_wheel() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: build_own_wheel(*HERE), range(4)))) == 1


def test_it_has_the_package_with_its_compiled_parts_and_its_command() -> None:
    with zipfile.ZipFile(build_own_wheel(*HERE)) as wheel:
        names = wheel.namelist()
        assert any(name.startswith("slipstream/_core.") for name in names)
        assert "slipstream/cluster/head/daemon.py" in names
        assert not any("__pycache__" in name for name in names)
        (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert b"slipstream = slipstream.cli:main" in wheel.read(entry_points)


def test_pip_installs_it_and_it_runs(tmp_path: Path) -> None:
    wheel = build_own_wheel(*HERE)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*pip, str(wheel)], check=True)
    program = "import slipstream._core, slipstream.cluster.head.daemon as d; print(d.__file__)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],  # without the environment of this test
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert ran.stdout.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("python", "machine"), [((3, 9), platform.machine()), (HERE[0], "riscv64")]
)
def test_a_host_on_which_it_cannot_run_is_refused(python: tuple[int, int], machine: str) -> None:
    with pytest.raises(UnsupportedError, match=r"software\.environment: existing"):
        build_own_wheel(python, machine)
