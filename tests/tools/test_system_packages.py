"""What is missing on a machine, and whether that stops the build."""

import pytest
from system_packages import GROUPS, Package, missing_packages, report


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
