"""With which compiler flags users build, and with which we do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRESETS = [
    each["name"]
    for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
]
ENVIRON = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def flags_of(folder: Path, *options: str) -> list[list[str]]:
    """Return the words of each compiler call of a build tree that is configured in the folder."""
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
        if "/core/" in call["file"]
    ]


def test_a_users_compiler_may_warn_about_what_ours_does_not(tmp_path: Path) -> None:
    calls = flags_of(tmp_path)
    assert calls
    for call in calls:
        assert "-Wall" in call
        assert "-Werror" not in call


@pytest.mark.parametrize("preset", [each for each in PRESETS if each != "bench"])
def test_our_own_builds_allow_no_warning(tmp_path: Path, preset: str) -> None:
    calls = flags_of(tmp_path, "--preset", preset)
    assert calls
    for call in calls:
        assert "-Werror" in call
