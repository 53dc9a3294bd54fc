"""The environment of a checkout sees the PyTorch of the Python that it is made with."""

import subprocess
import venv
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "make_venv.py"


def said_by(python: Path, *arguments: str | Path) -> str:
    """Return what a Python prints."""
    return subprocess.run(
        [python, *arguments], check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """The Python of a user's active environment, without packages."""
    venv.create(tmp_path / "outer", symlinks=True)
    return tmp_path / "outer" / "bin" / "python"


def site_packages(python: Path) -> Path:
    """Return where a Python's packages are."""
    return Path(said_by(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))


def test_the_torch_of_an_active_environment_is_seen(outer: Path, tmp_path: Path) -> None:
    (site_packages(outer) / "torch.py").write_text("__version__ = '2.13.0'")
    said = said_by(outer, TOOL, tmp_path / "inner")
    assert f"with the PyTorch of {outer}" in said
    inner = tmp_path / "inner" / "bin" / "python"
    assert said_by(inner, "-c", "import torch; print(torch.__version__)") == "2.13.0"
    assert said_by(inner, "-c", "import pip; print(pip.__file__)").startswith(str(tmp_path))


def test_so_is_one_that_is_installed_as_editable(outer: Path, tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "torch.py").write_text("__version__ = '2.14.0a0'")
    (site_packages(outer) / "torch.pth").write_text(f"{tmp_path / 'checkout'}\n")
    said_by(outer, TOOL, tmp_path / "inner")
    inner = tmp_path / "inner" / "bin" / "python"
    assert said_by(inner, "-c", "import torch; print(torch.__version__)") == "2.14.0a0"


def test_packages_of_its_own_go_before_those_of_the_outer_one(outer: Path, tmp_path: Path) -> None:
    (site_packages(outer) / "torch.py").write_text("__version__ = '2.13.0'")
    said_by(outer, TOOL, tmp_path / "inner")
    inner = tmp_path / "inner" / "bin" / "python"
    (site_packages(inner) / "torch.py").write_text("__version__ = '2.15.0'")
    assert said_by(inner, "-c", "import torch; print(torch.__version__)") == "2.15.0"


def test_without_torch_the_environment_sees_nothing_else(outer: Path, tmp_path: Path) -> None:
    (site_packages(outer) / "stranger.py").touch()
    said_by(outer, TOOL, tmp_path / "inner")
    inner = tmp_path / "inner" / "bin" / "python"
    probe = "from importlib.util import find_spec; print(find_spec('stranger'))"
    assert said_by(inner, "-c", probe) == "None"


def test_half_an_environment_is_taken_away(outer: Path, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "bin").write_text("no folder")
    done = subprocess.run([outer, TOOL, tmp_path / "inner"], capture_output=True, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "inner").exists()
