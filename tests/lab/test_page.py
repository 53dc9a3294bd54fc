"""The commands of docs/lab.md, in their order, as a user of a new machine would type them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.multiprocess]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lab.md").read_text()
SCRIPT = """
import torch
import torch.distributed as dist
dist.init_process_group()
dist.all_reduce(torch.ones(1000))
dist.destroy_process_group()
"""


@pytest.mark.slow("shown command in a lab")
@pytest.mark.launcher("ping", "unshare")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    # A /run of its own: labs of others on this machine have the same name.
    script = f"set -ex; mount -t tmpfs lab /run\n{block}slipstream lab status --json"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.count(" 0% packet loss") == 2
    assert re.search(r"slipstream .* \d+\.\d+ .*x ", done.stdout), done.stdout
    assert re.search(r"host 1 .* 100mbit ", done.stdout)
    assert done.stdout.endswith("[]\n")


def test_the_example_in_python_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; print(os.environ['RANK'])")
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[\d.]+ \d+\n", done.stdout), done.stdout


@pytest.mark.launcher("unshare")
def test_the_command_without_root_runs_as_any_user_may(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    command = shlex.split(shown.replace("\\\n", "").replace("compare --num-hosts 2 --", "run --"))
    script = tmp_path / "train.py"
    script.write_text("import os; print('rank', os.environ['RANK'])")
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "[host3:3] rank 3\n" in done.stdout
