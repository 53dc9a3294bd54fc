"""The scripts of docs/trainers.md, each under one of the launchers that the page names."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"^## (\w+)\n+```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
ACCELERATE = "accelerate launch --cpu --num_processes 2 --mpirun_hostfile hosts train.py"
LINE_OF_HOSTS = "localhost slots=2"

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow("training as on one worker")]


def losses(name: str, command: str, folder: Path) -> list[float]:
    """Run a script of the page with a command of the page; return the loss of each of two ranks."""
    assert f"\n{command}\n" in PAGE
    (folder / "train.py").write_text(SCRIPTS[name])
    chosen = {
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        env={**os.environ, **chosen},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    said = dict(re.findall(r"rank (\d) of 2: (\d\.\d{4})", done.stdout))
    assert sorted(said) == ["0", "1"], done.stdout
    return [float(loss) for loss in said.values()]


def test_lightning_under_slipstream_run(tmp_path: Path) -> None:
    first, second = losses("Lightning", "slipstream run -n 2 train.py", tmp_path)
    assert first == second < 0.01


def test_trainer_under_torchrun(tmp_path: Path) -> None:
    found = losses("Trainer", "torchrun --nproc-per-node 2 train.py", tmp_path)
    assert max(found) < 4.3  # the logarithm of 64 words is 4.16


@pytest.mark.launcher("mpirun.openmpi")
def test_accelerate_under_its_own_launcher(tmp_path: Path) -> None:
    assert f"`{LINE_OF_HOSTS}`" in PAGE
    (tmp_path / "hosts").write_text(f"{LINE_OF_HOSTS}\n")
    mpirun = shutil.which("mpirun.openmpi")
    assert mpirun is not None
    (tmp_path / "mpirun").symlink_to(mpirun)  # the one that takes such a file of hosts
    first, second = losses("Accelerate", ACCELERATE, tmp_path)
    assert first == second < 0.01
