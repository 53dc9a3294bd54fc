"""Which PyTorch an environment gets: real pip, and indexes with small packages of that name."""

import os
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "install_torch.py"
VERSION = "2.13.0"  # the one in constraints.txt
UNREACHABLE = "http://127.0.0.1:9/simple"  # where nobody listens
LIMIT_SECONDS = 60.0


def wheel(index: Path, name: str, version: str, *needs: str) -> None:
    """Put a package of one module into an index that is a folder."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    contents = {
        f"{name}.py": f"__version__ = {version!r}",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*contents, f"{info}/RECORD"])
    folder = index / name.replace("_", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    (folder / "index.html").write_text(
        "".join(f'<a href="{each.name}">{each.name}</a>' for each in folder.glob("*.whl"))
    )


@pytest.fixture
def pypi(tmp_path: Path) -> Path:
    """Return an index like PyPI, whose torch needs the packages of CUDA on Linux."""
    index = tmp_path / "pypi"
    cuda = 'nvidia-cublas; platform_system == "Linux"'
    wheel(index, "torch", VERSION, cuda, "filelock", "nvidia-optional; extra == 'x'")
    for name in ("nvidia_cublas", "filelock"):
        wheel(index, name, "4.2.11")
    return index


@pytest.fixture
def pytorch(tmp_path: Path) -> Path:
    """Return an index like that of PyTorch, whose torch is a CPU build."""
    wheel(tmp_path / "pytorch", "torch", f"{VERSION}+cpu", "filelock")
    return tmp_path / "pytorch"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with only pip, to be copied."""
    folder = tmp_path_factory.mktemp("made") / "environment"
    venv.create(folder, with_pip=True, symlinks=True)
    return folder


@pytest.fixture
def python(environment: Path, tmp_path: Path) -> Path:
    """Return the Python of an environment of this test, which has only pip."""
    copied = shutil.copytree(environment, tmp_path / "environment", symlinks=True)
    return copied / "bin" / "python"


Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def install(python: Path) -> Install:
    """Run the tool with a pip that knows one index, and with one for CPU builds."""

    def run(index: Path, cpu_index: str | Path) -> "subprocess.CompletedProcess[str]":
        own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        pip = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": index.as_uri(),
            "PIP_NO_CACHE_DIR": "1",
        }
        cpu = cpu_index.as_uri() if isinstance(cpu_index, Path) else cpu_index
        return subprocess.run(
            [sys.executable, TOOL, python],
            env={**own, **pip, "TORCH_INDEX": cpu},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )

    return run


def packages(python: Path) -> dict[str, str]:
    """Return name and version of what is installed."""
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    found = distributions(path=[str(folder)])
    return {each.name.replace("_", "-"): each.version for each in found}


@pytest.mark.slow("environment that the tools set up")
def test_a_build_for_the_cpu_is_preferred_to_one_with_cuda(
    install: Install, python: Path, pypi: Path, pytorch: Path
) -> None:
    done = install(pypi, pytorch)
    assert done.returncode == 0, done.stderr
    found = packages(python)
    assert found["torch"] == f"{VERSION}+cpu"
    assert found["filelock"] == "4.2.11"
    assert "nvidia-cublas" not in found


@pytest.mark.slow("environment that the tools set up")
def test_an_index_that_cannot_be_reached_costs_seconds_and_fails_nothing(
    install: Install, python: Path, pypi: Path
) -> None:
    began_at = time.monotonic()
    done = install(pypi, UNREACHABLE)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began_at < LIMIT_SECONDS / 2
    assert f"found no CPU build at {UNREACHABLE}; torch {VERSION} has CUDA" in done.stderr
    assert {"torch", "nvidia-cublas"} <= set(packages(python))


@pytest.mark.slow("environment that the tools set up")
def test_a_cpu_build_of_pips_own_sources_needs_no_other_index(
    install: Install, python: Path, pytorch: Path
) -> None:
    wheel(pytorch, "filelock", "4.2.11")
    done = install(pytorch, UNREACHABLE)
    assert done.returncode == 0, done.stderr
    assert packages(python)["torch"] == f"{VERSION}+cpu"
    assert "127.0.0.1" not in done.stderr


@pytest.mark.slow("environment that the tools set up")
def test_no_other_index_is_asked_when_none_is_named(
    install: Install, python: Path, pypi: Path
) -> None:
    done = install(pypi, "")
    assert done.returncode == 0, done.stderr
    assert "TORCH_INDEX is empty" in done.stderr
    assert packages(python)["torch"] == VERSION


@pytest.mark.slow("environment that the tools set up")
def test_a_torch_that_is_there_stays(
    install: Install, python: Path, pypi: Path, pytorch: Path, tmp_path: Path
) -> None:
    wheel(tmp_path / "own", "torch", "2.7.1")
    (file,) = (tmp_path / "own").rglob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", file], check=True)
    assert install(pypi, pytorch).returncode == 0
    assert packages(python)["torch"] == "2.7.1"


@pytest.mark.slow("environment that the tools set up")
def test_one_that_is_too_old_is_named_with_what_to_do(
    install: Install, python: Path, pypi: Path, pytorch: Path, tmp_path: Path
) -> None:
    wheel(tmp_path / "own", "torch", "2.5.1")
    (file,) = (tmp_path / "own").rglob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", file], check=True)
    done = install(pypi, pytorch)
    assert done.returncode == 1
    assert f"{python} has torch 2.5.1; Slipstream needs torch>=2.6" in done.stderr
    assert "pip install 'torch>=2.6'" in done.stderr
    assert packages(python)["torch"] == "2.5.1"


@pytest.mark.slow("environment that the tools set up")
def test_where_pip_finds_none_it_says_what_it_said(
    install: Install, python: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = install(tmp_path / "empty", UNREACHABLE)
    assert done.returncode == 1
    assert "ERROR: " in done.stderr
    assert "error: pip finds no torch" in done.stderr
