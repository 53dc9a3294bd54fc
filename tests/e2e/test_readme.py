"""README and other pages: the script runs, and commands, links and paths exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow("shown example")
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


MAKE = {
    "demo": "slipstream run -n 2 $tty examples/01_fashion_mnist/train.py",  # test_demo.py
    "tour": "slipstream tour",  # test_tour.py
    "test": "tools/run_tests.py",
}


def test_the_make_commands_are_known() -> None:
    assert re.findall(r"^make (\w+)$", README, re.MULTILINE) == list(MAKE)


@pytest.mark.parametrize("target", MAKE)
def test_a_make_command_runs_what_is_tested(target: str) -> None:
    command = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert MAKE[target] in done.stdout


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue  # tests do without the network
        assert (ROOT / target).exists(), target


def test_the_files_and_commands_of_the_contributors_page_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:core|src|tests|tools|docs)/[\w/.-]+)`", page):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?\bmake ([a-z-]+)", page):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    checks = (ROOT / "tools" / "check").read_text(encoding="utf-8")
    for check in re.findall(r"^ *tools/check (.+)$", page, re.MULTILINE):
        assert all(f"check_{name}()" in checks for name in check.split())


def test_the_paths_of_the_status_page_exist() -> None:
    page = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")
    cells = [cell for row in re.findall(r"^\|.*", page, re.MULTILINE) for cell in row.split("|")]
    codes = [code.split()[0] for cell in cells for code in re.findall("`([^`]+)`", cell)]
    patterns = [pattern for code in codes if "/" in code for pattern in without_braces(code)]
    assert len(patterns) > 50
    assert [pattern for pattern in patterns if not list(ROOT.glob(pattern))] == []


def without_braces(pattern: str) -> list[str]:
    """Return the patterns that a{b,c} stands for: ab and ac."""
    braces = re.search("{([^{}]*)}", pattern)
    if braces is None:
        return [pattern]
    return [
        expanded
        for choice in braces[1].split(",")
        for expanded in without_braces(pattern.replace(braces[0], choice))
    ]
