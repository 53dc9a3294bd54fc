"""Skips, with the reason, what this machine cannot run; pyproject.toml lists the markers."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Remove the size of the terminal from the environment of commands that tests start.

    GNU readline, which pytest imports, sets it in C's environment, unseen by os.environ.
    """
    for name in ("COLUMNS", "LINES"):
        if name not in os.environ:
            os.unsetenv(name)


def obstacles(item: pytest.Item) -> Iterator[str]:
    """Yield the reasons why a test cannot run here, judging by its markers."""
    is_root = os.geteuid() == 0
    if not is_root and item.get_closest_marker("root"):
        yield "needs root"
    if item.get_closest_marker("netns") and not (is_root and shutil.which("ip")):
        yield "needs root and iproute2 to make network namespaces"
    if item.get_closest_marker("gpu") and not Path("/dev/nvidiactl").exists():
        yield "needs an NVIDIA GPU"
    for marker in item.iter_markers("launcher"):
        for name in marker.args:
            if shutil.which(name) is None:
                yield f"needs {name}"


@pytest.hookimpl(tryfirst=True)  # a test that is skipped stands for no other
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that have an obstacle as skipped."""
    for item in items:
        for reason in obstacles(item):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which tests were left out because this user is not root."""
    skipped = terminalreporter.stats.get("skipped", [])
    # A skipped test is a place (file and line) and a reason.
    rootless = [report for report in skipped if "needs root" in report.longrepr[2]]
    if rootless:
        terminalreporter.write_sep(
            "!", f"{len(rootless)} TESTS SKIPPED: they need root; run make test as root", red=True
        )
