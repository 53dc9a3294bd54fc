"""Where environment variables may be named and read."""

from pathlib import Path

import check_environment
import pytest

DECLARED = 'Setting("SLIPSTREAM_PORT")'


def problems_with(root: Path, path: str, text: str) -> list[str]:
    """Return the findings in a tree whose settings declare SLIPSTREAM_PORT, with one more file."""
    for name, content in (("src/slipstream/settings/variables.py", DECLARED), (path, text)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return check_environment.problems(root)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/slipstream/cluster/run.py", 'os.environ["HOME"]'),
        ("src/slipstream/cluster/run.py", 'os.environ.get("HOME")'),
        ("src/slipstream/cluster/run.py", 'os.getenv("HOME")'),
        ("src/slipstream/cluster/run.py", 'environ["HOME"]'),
        ("src/slipstream/cluster/run.py", 'child["SLIPSTREAM_PORT"] = port'),
        ("src/slipstream/cluster/run.py", 'print("set SLIPSTREAM_PROT")'),
        ("docs/launch.md", "Set `SLIPSTREAM_PROT`."),
        ("core/base/log.cc", 'getenv("HOME");'),
        ("plugin/devices.cc", 'getenv("HOME");'),
        ("plugin/options.cc", 'getenv("SLIPSTREAM_PROT");'),
        ("relay/connections.cc", 'getenv("LAB_RELAY");'),
    ],
)
def test_a_breach_is_reported(tmp_path: Path, path: str, text: str) -> None:
    assert len(problems_with(tmp_path, path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/slipstream/settings/launch.py", 'os.environ["SLIPSTREAM_PORT"]'),
        ("src/slipstream/cluster/run.py", "child(env={**os.environ})"),
        ("src/slipstream/cluster/run.py", 'raise ConfigError("set SLIPSTREAM_PORT")'),
        ("docs/launch.md", "Set `SLIPSTREAM_PORT`."),
        ("plugin/options.cc", 'getenv("SLIPSTREAM_PORT");'),
        ("relay/redirect.cc", 'getenv("LAB_RELAY");'),
        ("core/base/log.cc", "// not getenv(), values come from Python"),
        ("core/test/fuzz_test.cc", 'getenv("SHARE");'),
    ],
)
def test_what_the_rule_allows_passes(tmp_path: Path, path: str, text: str) -> None:
    assert problems_with(tmp_path, path, text) == []
