"""Outputs are found by name or pattern, whatever their names are, below the folder of the code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.cluster.head.storage.output_names import find_outputs
from slipstream.cluster.spec import check_job
from slipstream.errors import UsageError


@pytest.mark.parametrize(
    "pattern", ["../victim.txt", "out/../../a", "/tmp/abs.txt", "", "a**", "nul\0"]
)
def test_outputs_outside_of_the_code_are_refused_with_every_engine(pattern: str) -> None:
    with pytest.raises(UsageError, match="allowed: paths below the folder of the code"):
        check_job({"name": "a", "command": "a", "outputs": ["good.txt", pattern]}, "a.yaml")


def test_odd_names_are_found(tmp_path: Path) -> None:
    names = ["my result.txt", "nl\nname.txt", "-n", "a;touch pwned", "a[1].txt", "out/b"]
    (tmp_path / "out").mkdir()
    for name in names:
        (tmp_path / name).write_text("x")
    patterns = ["my result.txt", "nl*", "-n", "a;touch pwned", "a[1].txt", "out", "$(touch x)"]
    found = find_outputs(tmp_path, patterns)
    assert found.names == sorted([*names[:-1], "out"])
    assert found.unmatched == ["$(touch x)"]
    assert find_outputs(tmp_path, ["**/b", "."]).names == [".", "out/b"]


def test_links_that_lead_out_of_the_code_are_told(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (tmp_path / "secret").write_text("x")
    (code / "up").symlink_to("..")
    found = find_outputs(code, ["up/secret", "up"])
    assert (found.names, found.outside) == (["up"], ["up/secret"])


def test_a_name_may_have_any_bytes(tmp_path: Path) -> None:
    name = b"caf\xe9\xff"
    (tmp_path / os.fsdecode(name)).write_text("x")
    argv = [
        sys.executable,
        "-m",
        "slipstream.cluster.head.storage.output_names",
        str(tmp_path),
        "caf*",
    ]
    answer = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout.decode())
    assert [os.fsencode(each) for each in answer["names"]] == [name]
