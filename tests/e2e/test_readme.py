"""What the README shows works: its script runs, and its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.multiprocess
def test_first_script_averages_gradients(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL)))
    launcher = Path(sys.executable).parent / "slipstream"
    result = subprocess.run(
        [str(launcher), "run", "-n", "2", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    norms = re.findall(r"rank \d of 2: ([\d.]+)", result.stdout)
    assert len(norms) == 2, result.stdout
    assert norms[0] == norms[1], result.stdout


def test_make_commands_exist() -> None:
    commands = re.findall(r"^make (\w+)$", README, re.MULTILINE)
    assert commands == ["demo", "tour", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert (ROOT / target).exists(), target
