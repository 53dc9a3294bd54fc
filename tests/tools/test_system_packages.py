"""What is missing on a machine, and whether that stops the build."""

import os
from pathlib import Path

import pytest
from system_packages import GROUPS, Package, install, missing_packages, report

NEEDED = [Package("needed-1", "a test", bool), Package("needed-2", "a test", bool)]
NICE = [Package(f"nice-{i}", "a test", bool, required=False) for i in (1, 2)]
INSTALL = "noninteractive install -y -q --no-install-recommends"


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an apt-get that records its calls and knows no package named in $UNKNOWN."""
    program = tmp_path / "apt-get"
    calls = tmp_path / "calls"
    program.write_text(
        f'#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >> {calls}\n'
        'for name in $UNKNOWN; do case " $* " in *" $name "*) exit 100; esac; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return calls


def test_only_packages_whose_probe_fails_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Package("there", "a test", lambda: True)
    absent = Package("absent", "a test", lambda: False)
    monkeypatch.setitem(GROUPS, "build", (there, absent))

    assert missing_packages(["build"]) == [absent]


def test_the_report_says_what_each_is_for_and_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report([Package("libx-dev", "the x", lambda: False), Package("y", "y", lambda: False, False)])

    text = capsys.readouterr().err
    assert "libx-dev" in text
    assert "required: the x" in text
    assert "optional: y" in text
    assert "apt-get install libx-dev y" in text


def test_required_packages_are_installed_before_those_that_are_optional(apt_get: Path) -> None:
    install([NICE[0], NEEDED[0], NICE[1], NEEDED[1]])

    assert apt_get.read_text().splitlines() == [
        "noninteractive update -q",
        f"{INSTALL} needed-1 needed-2",
        f"{INSTALL} nice-1 nice-2",
    ]


def test_an_optional_package_that_does_not_exist_does_not_keep_others_out(
    apt_get: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNKNOWN", "nice-1")
    install([*NEEDED, *NICE])

    assert apt_get.read_text().splitlines()[2:] == [
        f"{INSTALL} nice-1 nice-2",
        f"{INSTALL} nice-1",
        f"{INSTALL} nice-2",
    ]


def test_a_required_package_that_does_not_exist_does_not_keep_optional_ones_out(
    apt_get: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNKNOWN", "needed-2")
    install([*NEEDED, *NICE])

    assert apt_get.read_text().splitlines()[1:] == [
        f"{INSTALL} needed-1 needed-2",
        f"{INSTALL} nice-1 nice-2",
    ]


def test_nothing_is_asked_for_where_no_package_of_a_kind_is_missing(apt_get: Path) -> None:
    install(NICE[:1])

    assert apt_get.read_text().splitlines() == ["noninteractive update -q", f"{INSTALL} nice-1"]
