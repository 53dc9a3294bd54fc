"""Which programs run under the sanitizers, on a small tree whose build is a script."""

import json
import subprocess
from pathlib import Path

import commits
import pytest
import sanitize

SOURCES = {
    "core/include/slipstream/error.h": "",
    "core/include/slipstream/listen.h": "",
    "core/base/clock.cc": '#include "slipstream/error.h"',
    "core/topology/listen.cc": '#include "slipstream/listen.h"',
    "core/transport/transport.h": '#include "base/clock.h"',
    "core/transport/tcp/stream.cc": '#include "transport/transport.h"',
    "core/engine/engine.cc": '#include "transport/transport.h"',
    "core/runtime.cc": '#include "engine/engine.h"',
    "core/base/clock.h": "",
    "core/transport/tcp/stream.h": "",
    "core/engine/engine.h": '#include "engine/details/queue.inc"',
    "core/engine/details/queue.inc": "",
    "core/unlisted/memory.h": "",
    "core/test/clock_test.cc": '#include "base/clock.h"',
    "core/test/listen_test.cc": "# include <slipstream/listen.h>",
    "core/test/tcp_test.cc": '#include "test/world/tcp.h"',
    "core/test/world/tcp.h": '#include "ports.h"',
    "core/test/world/ports.h": '#include "transport/tcp/stream.h"',
    "core/test/shared.cc": '#include "unlisted/memory.h"',
    "core/test/engine_test.cc": '#include "engine/engine.h"',
    "kernels/program.h": "",
    "kernels/workers.cc": "",
    "kernels/test/program_test.cc": '#include "program.h"',
    "plugin/handle.h": "",
    "plugin/comm.cc": '#include "transport/tcp/stream.h"',
    "plugin/test/messages_test.cc": '#include "handle.h"',
    "CMakeLists.txt": "",
    "CMakePresets.json": "",
    "core/CMakeLists.txt": "",
    "core/layers.cmake": "",
    "kernels/test/CMakeLists.txt": "",
}
CORE = ["clock_test", "engine_test", "listen_test", "tcp_test"]
PLUGIN = "plugin_messages_test"
ALL = sorted([*CORE, "kernels_program_test", PLUGIN])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a tree of sources."""
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return tmp_path


# A cmake and a ctest that write their calls. $FAILING names a call that fails, $UNREGISTERED a test
# that ctest does not know, $BAD a test that fails beside others and prints $SAID.
PROGRAM = """#!/bin/sh
call="$(basename "$0") $*"
echo "$call" >> $CALLS
eval "$MEANWHILE"
case "$call" in *"$FAILING"*) exit 1; esac
all="$*"
while [ $# -gt 3 ] && [ "$1" != --output-junit ]; do shift; done
[ "$1" = --output-junit ] || exit 0
mkdir -p "$(dirname "$2")"
cases=$(echo "$4" | tr -d '^()$' | tr '|' '\\n' | grep -vx "$UNREGISTERED")
{
  echo '<testsuite>'
  for name in $cases; do
    status=run
    case "$all" in *"--parallel 1") ;; *) [ "$name" != "$BAD" ] || status=fail ;; esac
    echo "<testcase name='$name' status='$status'><system-out>$SAID</system-out></testcase>"
  done
  echo '</testsuite>'
} > "$2"
! grep -q "'fail'" "$2"
"""


@pytest.fixture
def calls(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file to which a cmake and a ctest write their calls."""
    (root / "programs").mkdir()
    for name in ("cmake", "ctest"):
        (root / "programs" / name).write_text(PROGRAM)
        (root / "programs" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{root / 'programs'}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(root / "calls"))
    for name in ("FAILING", "UNREGISTERED", "BAD"):
        monkeypatch.setenv(name, "nothing of the kind")
    for name in ("MEANWHILE", "SAID"):
        monkeypatch.setenv(name, "")
    return root / "calls"


@pytest.mark.parametrize(
    ("changed", "programs"),
    [
        ("core/base/clock.cc", ["clock_test", "engine_test", PLUGIN, "tcp_test"]),
        ("core/include/slipstream/error.h", ["clock_test", "engine_test", PLUGIN, "tcp_test"]),
        ("core/topology/listen.cc", ["listen_test"]),
        ("core/transport/transport.h", ["engine_test", PLUGIN, "tcp_test"]),
        ("core/transport/tcp/stream.cc", [PLUGIN, "tcp_test"]),
        ("plugin/comm.cc", [PLUGIN]),
        ("core/engine/new.cc", ["engine_test"]),
        ("core/engine/details/queue.inc", ["engine_test"]),
        ("core/unlisted/memory.h", CORE),
        ("core/runtime.cc", []),
        ("core/test/shared.cc", CORE),
        ("core/test/world/ports.h", CORE),
        ("core/test/clock_test.cc", ["clock_test"]),
        ("kernels/workers.cc", ["kernels_program_test"]),
        ("kernels/test/CMakeLists.txt", ALL),
        ("core/CMakeLists.txt", ALL),
        ("core/layers.cmake", ALL),
        ("CMakePresets.json", ALL),
    ],
)
def test_a_change_reaches_the_programs_that_depend_on_it(
    root: Path, changed: str, programs: list[str]
) -> None:
    before = sanitize.digests(root)
    (root / changed).write_text("// changed\n")
    after = sanitize.digests(root)

    assert [name for name in after if after[name] != before[name]] == programs


def test_other_flags_reach_every_program(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sanitize.digests(root)
    monkeypatch.setenv("CXXFLAGS", "-DNDEBUG")
    after = sanitize.digests(root)

    assert [name for name in after if after[name] != before[name]] == ALL


@pytest.mark.parametrize("first", [0, 1, 200])
def test_three_successive_thirds_are_all_programs(first: int) -> None:
    names = [f"program_{index}" for index in range(34)]
    thirds = [commits.turn(names, first + number, 3) for number in range(3)]

    assert {name for third in thirds for name in third} == set(names)
    assert all(len(each) == 12 for each in thirds)


def test_all_runs_every_program_under_each_sanitizer_and_records_them(
    root: Path, calls: Path
) -> None:
    (root / "tests").mkdir()

    assert sanitize.main(["all"], root) == 0
    assert json.loads((root / sanitize.RECORD).read_text()) == sanitize.digests(root)
    lines = calls.read_text().splitlines()
    for preset in sanitize.PRESETS:
        assert f"cmake --build --preset {preset} --target {' '.join(ALL)}" in lines
        assert any(f"ctest --preset {preset} " in line for line in lines)


REPORTS = [
    ("expected 3, got 4", 0),
    ("WARNING: ThreadSanitizer: data race (pid=7)", 1),
    ("==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60", 1),
    ("core/base/clock.cc:9:3: runtime error: signed integer overflow", 1),
]


@pytest.mark.parametrize(("said", "code"), REPORTS)
def test_a_program_without_a_report_that_fails_beside_others_runs_again_alone(
    root: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    (root / "tests").mkdir()
    monkeypatch.setenv("SAID", said)
    monkeypatch.setenv("BAD", "clock_test")

    assert sanitize.main(["all"], root) == code
    again = [line for line in calls.read_text().splitlines() if line.endswith("--parallel 1")]
    assert len(again) == (0 if code else len(sanitize.PRESETS))
    assert all("^(clock_test)$" in line for line in again)
    assert (root / sanitize.RECORD).exists() == (code == 0)


@pytest.mark.parametrize("failing", ["cmake --build --preset asan", "ctest --preset tsan"])
def test_nothing_is_recorded_when_a_sanitizer_fails(
    root: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setenv("FAILING", failing)

    assert sanitize.main(["all"], root) == 1
    assert failing in calls.read_text().splitlines()[-1]
    assert not (root / sanitize.RECORD).exists()


@pytest.mark.parametrize("which", ["all", "share"])
def test_a_program_that_ctest_does_not_know_fails(
    root: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    which: str,
) -> None:
    monkeypatch.setenv("UNREGISTERED", "engine_test")

    assert sanitize.main([which], root) == 1
    assert "ctest --preset asan has not run engine_test." in capfd.readouterr().err
    assert not (root / sanitize.RECORD).exists()


def test_nothing_is_recorded_when_a_file_changes_during_the_run(
    root: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEANWHILE", f"echo // changed > {root}/core/engine/engine.cc")

    assert sanitize.main(["all"], root) == 1
    assert "dependencies of engine_test changed during the run" in capfd.readouterr().err
    assert not (root / sanitize.RECORD).exists()


def test_a_share_runs_what_changed_and_a_third_and_says_why(
    root: Path, calls: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / "tests").mkdir()
    sanitize.main(["all"], root)
    record = (root / sanitize.RECORD).read_text()
    (root / "core/engine/engine.cc").write_text("// changed\n")
    calls.unlink()
    capfd.readouterr()

    assert sanitize.main(["share"], root) == 0
    turn = commits.turn(ALL, 0, 3)  # there is no git here
    named = sorted({"engine_test", *turn})
    assert f"cmake --build --preset tsan --target {' '.join(named)}\n" in calls.read_text()
    assert f"--tests-regex ^({'|'.join(named)})$\n" in calls.read_text()
    said = capfd.readouterr().out.splitlines()
    assert [line.split()[:2] for line in said[1:-1]] == [
        [name, "sources" if name == "engine_test" else "its"] for name in named
    ]
    assert "make sanitize runs all programs" in said[-1]
    assert (root / sanitize.RECORD).read_text() == record


def test_without_a_record_a_share_is_all_programs(root: Path) -> None:
    assert list(sanitize.share(sanitize.recorded(root), sanitize.digests(root), set())) == ALL


def test_the_turn_is_the_number_of_commits(root: Path) -> None:
    assert commits.number(root) == 0
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=root, check=True)
    for number in (1, 2):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=root, check=True)
        assert commits.number(root) == number


def test_the_turn_in_a_shallow_clone_is_drawn_from_the_commit(root: Path, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=root, check=True)
    for number in range(5):
        subprocess.run(
            [*git, "commit", "-q", "--allow-empty", "-m", f"{number}"], cwd=root, check=True
        )
    clones = [tmp_path / f"clone{depth}" for depth in (1, 2)]
    for depth, clone in enumerate(clones, 1):
        source = f"file://{root}"
        subprocess.run([*git, "clone", "-q", "--depth", f"{depth}", source, clone], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    assert {commits.number(clone) for clone in clones} == {int(head.stdout[:8], 16)}
