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


def site_packages(python: Path) -> Path:
    """Return where a Python's packages are."""
    return Path(said_by(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))


def version_of(package: str, python: Path) -> str:
    """Return the version of a package that a Python imports."""
    return said_by(python, "-c", f"import {package}; print({package}.__version__)")


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """Return the Python of a user's active environment, without packages."""
    venv.create(tmp_path / "outer", symlinks=True)
    return tmp_path / "outer" / "bin" / "python"


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that the tool made from one with an editable torch."""
    folder = tmp_path_factory.mktemp("environments")
    venv.create(folder / "outer", symlinks=True)
    outer = folder / "outer" / "bin" / "python"
    (folder / "checkout").mkdir()
    (folder / "checkout" / "torch.py").write_text("__version__ = '2.14.0a0'")
    (site_packages(outer) / "torch.pth").write_text(f"{folder / 'checkout'}\n")
    (site_packages(outer) / "numpy.py").write_text("__version__ = '2.1.0'")
    said = said_by(outer, TOOL, folder / "inner")
    assert f"with the PyTorch of {outer}" in said
    return folder / "inner" / "bin" / "python"


@pytest.mark.slow("environment that the tools set up")
def test_packages_of_an_active_environment_are_seen(inner: Path) -> None:
    assert version_of("numpy", inner) == "2.1.0"
    said = said_by(inner, "-c", "import pip; print(pip.__file__)")
    assert said.startswith(str(inner.parents[1]))


def test_so_is_its_torch_that_is_installed_as_editable(inner: Path) -> None:
    assert version_of("torch", inner) == "2.14.0a0"


def test_packages_of_its_own_go_before_those_of_the_outer_one(inner: Path) -> None:
    own = site_packages(inner) / "numpy.py"
    own.write_text("__version__ = '2.2.0'")
    assert version_of("numpy", inner) == "2.2.0"
    own.unlink()


@pytest.mark.slow("environment that the tools set up")
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
