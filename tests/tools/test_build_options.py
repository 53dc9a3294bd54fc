"""With which compiler flags users build, and with which we do."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRESETS = [
    each["name"]
    for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
]
ENVIRON = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
# What pip's build passes, out of pyproject.toml.
PACKAGE = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DSLIPSTREAM_PYTHON=ON")

FlagsOf = Callable[..., list[list[str]]]


@pytest.fixture(scope="module")
def flags_of(tmp_path_factory: pytest.TempPathFactory) -> FlagsOf:
    """Return the words of each compiler call of a build tree that is configured with options."""

    @functools.cache
    def configured(*options: str) -> list[list[str]]:
        folder = tmp_path_factory.mktemp("build")
        subprocess.run(
            ["cmake", *options, "-S", ROOT, "-B", folder, "-DSLIPSTREAM_TESTS=OFF", "-Wno-dev"],
            cwd=ROOT,
            env=ENVIRON,
            check=True,
            capture_output=True,
            timeout=120,
        )
        return [
            call["command"].split()
            for call in json.loads((folder / "compile_commands.json").read_text())
            if call["file"].startswith((f"{ROOT}/core/", f"{ROOT}/kernels/"))
        ]

    return configured


def test_a_users_compiler_may_warn_about_what_ours_does_not(flags_of: FlagsOf) -> None:
    calls = flags_of(*PACKAGE)
    assert calls
    for call in calls:
        assert "-Wall" in call
        assert "-Werror" not in call


@pytest.mark.parametrize("preset", [each for each in PRESETS if each not in {"bench", "fuzz"}])
def test_our_own_builds_allow_no_warning(flags_of: FlagsOf, preset: str) -> None:
    calls = flags_of("--preset", preset)
    assert calls
    for call in calls:
        assert "-Werror" in call


def test_the_package_and_the_tests_compile_the_engine_with_the_same_flags(
    flags_of: FlagsOf,
) -> None:
    """Otherwise ccache cannot give to one what it compiled for the other."""
    ours = flags_of("--preset", "release")
    assert [[word for word in call if word != "-Werror"] for call in ours] == flags_of(*PACKAGE)
