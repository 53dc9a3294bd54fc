"""FastGPU's names: settings, files of settings, and calls that are refused at once."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from slipstream import fastgpu
from slipstream.cli.fastgpu import read_config
from slipstream.errors import ConfigError, UnsupportedError, UsageError
from slipstream.fastgpu import fastgpu_globals
from slipstream.fastgpu.scripts import main
from slipstream.settings.fastgpu import FastGpuSettings, fastgpu_settings, values_of

CONFIG = """\
; a comment
[ncluster]
name=lab
machines=2
system_disk_size=300
instance_type=ecs.gn6v-c8g1.16xlarge
spot=False
confirm_cost=True
disable_nas=True

[cmd]
install_script=pwd
"""


def test_scripts_set_what_they_want_by_variables() -> None:
    assert fastgpu_settings({}) == FastGpuSettings()
    environ = {"FASTGPU_SKIP_COST_CONFORM": "1", "ALIYUN_DATA_DISK_SIZE": "2048"}
    wanted = FastGpuSettings(is_cost_confirmed=True, data_disk_gib=2048)
    assert fastgpu_settings(environ) == wanted
    with pytest.raises(ConfigError, match="ALIYUN_DATA_DISK_SIZE is 'big'"):
        fastgpu_settings({"ALIYUN_DATA_DISK_SIZE": "big"})
    assert values_of(("A", "B"), {"A": "1"}) == {"A": "1"}


def test_a_settings_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "create.cfg"
    path.write_text(CONFIG)
    options = read_config(path)
    assert (options["name"], options["machines"], options["spot"]) == ("lab", "2", False)
    assert (options["confirm_cost"], options["install_script"]) == (True, "pwd")
    path.write_text("[other]\n")
    with pytest.raises(UsageError, match=r"no section \[fastgpu\] or \[ncluster\]"):
        read_config(path)
    with pytest.raises(UsageError, match=r"none.cfg cannot be read"):
        read_config(tmp_path / "none.cfg")


def test_unknown_options_of_a_job_are_named() -> None:
    with pytest.raises(UsageError, match="make_job has no options colour; it has: instance_type"):
        fastgpu.make_job(name="lab", colour="red")  # pyright: ignore[reportCallIssue]


def test_the_state_of_a_script_is_set_by_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastgpu_globals, "state", fastgpu_globals.ScriptState())
    fastgpu_globals.set_should_disable_nas(True)
    assert fastgpu_globals.should_disable_nas()
    assert not fastgpu_globals.should_skip_setup()


def test_a_script_imports_fastgpu_under_both_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, fastgpu, ncluster\n"
        "from fastgpu import fastgpu_globals\n"
        "from ncluster import ncluster_globals\n"
        "assert fastgpu is ncluster and fastgpu_globals is ncluster_globals\n"
        "print(fastgpu.make_job.__name__, sys.argv[1:], __name__)\n"
    )
    for name in ("fastgpu", "ncluster", "fastgpu.fastgpu_globals", "ncluster.ncluster_globals"):
        monkeypatch.setitem(sys.modules, name, sys)  # so that it is taken back at the end
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["fastgpu", str(script), "--machines", "2"])
    main()
    assert capsys.readouterr().out == "make_job ['--machines', '2'] __main__\n"


def test_a_name_that_cannot_change_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from slipstream.cli.fastgpu import rename

    with pytest.raises(UnsupportedError, match="make a group of the new name"):
        rename("task0.lab", "first")
    monkeypatch.setattr(sys, "argv", ["fastgpu", "rename", "task0.lab", "first"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("slipstream.fastgpu", run_name="__main__")
    assert ended.value.code == 1
