"""Where mutants are drawn, that draws repeat, and that a run kills, restores and goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mutants import execute, reach
from mutants.commands import build_commands, part_commands, whole_commands
from mutants.cpp_sites import cpp_sites
from mutants.draw import Mutant, draw, next_mutant
from mutants.parts import PARTS, closest_programs, closest_tests
from mutants.python_sites import python_sites
from mutants.results import (
    EQUIVALENT,
    ESCAPED,
    KILLED_BY_NEW,
    KILLED_BY_WHOLE,
    NOT_MET,
    SURVIVED,
    Results,
    counts,
    load,
)
from mutants.sites import Site, apply, change_of

ROOT = Path(__file__).parents[2]

PYTHON = {
    "x = a <= b": {"x = a < b"},
    "x = a is b": {"x = a is not b"},
    "x = (a) - (b)": {"x = (a) + (b)"},
    "x = a * b": {"x = a / b"},
    "x = a and b and c": {"x = a or b and c", "x = a and b or c"},
    "é = not b": {"é = b"},
    "a = 1.5": {"a = 2.5"},
    "a = True": {"a = False"},
    "def f():\n    return x": {"def f():\n    return None"},
    "if a:\n    b = c": {"if not (a):\n    b = c"},
    "while a:\n    break": {"while a:\n    continue"},
    "a.b = c": {"pass"},
    "a += b": {"pass"},
    "f(\n    a,\n)": {"pass"},
}
CPP = {
    "  a <= b;": {"  a < b;"},
    "  a && !b;": {"  a || !b;", "  a && b;"},
    "  a = 1'000u;": {"  a = 1001u;"},
    "  a = true;": {"  a = false;"},
    "{\n  f(a);\n}": {"{\n  {}\n}"},
    "  a->b.c(d);  // e()": {"  {}  // e()"},
}
PYTHON_ALONE = [
    '"""1 < 2"""',
    "a: Literal[1] = b",
    "__all__ = [1]",
    "if TYPE_CHECKING:\n    f()",
    'raise ValueError("a" + b, 1)',
    'logger.info("a", 1)',
    'x = f"{a + 1}"',
    '"a" + b',
]
CPP_ALONE = [
    "// a < b",
    '#include "a" // 1 < 2',
    "#define A 1",
    'f("1 < 2")',
    "vector<T> a{};",
    "array<int, 3> a{};",
    "T* a; T&& b;",
    "static_assert(a == 1);",
    "  return f(a);",
    "  int f(int a);",
]


def results_of(text: str, sites: list[Site]) -> set[str]:
    return {apply(text, change_of(text, site)) for site in sites}


@pytest.mark.parametrize("text", PYTHON)
def test_python_changes(text: str) -> None:
    found = python_sites(text)
    assert results_of(text, found) == PYTHON[text]


@pytest.mark.parametrize("text", PYTHON_ALONE)
def test_python_left_alone(text: str) -> None:
    assert [site for site in python_sites(text) if site.new != "pass"] == []


@pytest.mark.parametrize("text", CPP)
def test_cpp_changes(text: str) -> None:
    assert results_of(text, cpp_sites(text)) == CPP[text]


@pytest.mark.parametrize("text", CPP_ALONE)
def test_cpp_left_alone(text: str) -> None:
    assert cpp_sites(text) == []


def test_other_lines_are_not_overwritten() -> None:
    change = change_of("a\nb < c\n", Site(4, 5, "<=", "comparison"))
    assert apply("a\nb < c\n", change) == "a\nb <= c\n"
    with pytest.raises(ValueError, match="draw again"):
        apply("b < c\n", change)


@pytest.mark.slow("mutants of a tree")
def test_a_seed_gives_the_same_mutants_and_each_part_its_share() -> None:
    drawn = draw(ROOT, 1, 30)
    assert drawn == draw(ROOT, 1, 30)
    assert drawn != draw(ROOT, 2, 30)
    assert [mutant.id for mutant in drawn] == [*range(1, 31)]
    assert all(sum(mutant.part == part for mutant in drawn) >= 3 for part in PARTS)


def test_what_replaces_a_mutant_was_not_drawn() -> None:
    drawn = draw(ROOT, 1, 9)
    other = next_mutant(ROOT, 1, drawn[0].part, drawn)
    assert (other.part, other.id) == (drawn[0].part, 10)
    assert other.change != drawn[0].change


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if not part.is_cpp])
def test_each_part_has_sources_and_tests(name: str) -> None:
    part = PARTS[name]
    assert part.files(ROOT)
    assert part.test_files(ROOT)


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("src/slipstream/comm/tuner.py", "tests/unit/comm/test_tuner.py"),
        ("src/slipstream/horovod/common/util.py", "tests/unit/horovod/test_modules.py"),
    ],
)
def test_the_tests_of_a_module_come_first(source: str, test: str) -> None:
    assert closest_tests(ROOT, PARTS[source.split("/")[2]], Path(source))[0] == test


@pytest.mark.parametrize(
    ("source", "program", "other"),
    [
        ("core/collective/dimensions.cc", "dimensions_test", "engine_test"),
        ("core/engine/receiver.cc", "engine_trouble_test", "wire_test"),
    ],
)
def test_the_programs_of_a_file_come_first(source: str, program: str, other: str) -> None:
    found = closest_programs(ROOT, Path(source))
    assert program in found
    assert other not in found


@pytest.mark.parametrize(
    ("output", "test"),
    [
        ("x\nFAILED tests/a.py::b[c d] - assert 1\nFAILED tests/e.py::f", "tests/a.py::b[c d]"),
        ("ERROR tests/a.py - NameError", "tests/a.py"),
        ("The following tests FAILED:\n\t  3 - wire_test (Timeout)\n", "wire_test"),
        ("Segmentation fault\n", "Segmentation fault"),
        ("", "nothing was printed"),
    ],
)
def test_the_first_failed_test_is_named(output: str, test: str) -> None:
    assert execute.first_failed(output) == test


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with one file, which is committed."""
    (tmp_path / "limit.py").write_text("LIMIT = 1\n")
    (tmp_path / "tests").mkdir()
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command]
        subprocess.run(git, cwd=tmp_path, check=True)
    return tmp_path


def limit_mutant() -> Mutant:
    return Mutant(1, "comm", "limit.py", 1, "constant", "LIMIT = 1", "LIMIT = 2")


def python(code: str) -> list[list[str]]:
    return [[sys.executable, "-c", code]]


def test_tests_that_pass_leave_a_mutant_alive(checkout: Path) -> None:
    ended = execute.meet(
        checkout, limit_mutant(), python("import limit; assert limit.LIMIT > 1"), 60
    )
    assert ended == execute.Ended(True)
    assert (checkout / "limit.py").read_text() == "LIMIT = 1\n"


@pytest.mark.parametrize("condition", ["limit.LIMIT == 1", "True"])
def test_a_test_kills_only_what_it_tells_from_the_original(checkout: Path, condition: str) -> None:
    (checkout / "tests/test_limit.py").write_text(
        f"import sys\nsys.path.insert(0, '.')\nimport limit\ndef test_it(): assert {condition}\n"
    )
    commands = [["sh", "-c", "echo FAILED tests/test_limit.py::test_it; exit 1"]]
    if condition == "True":
        with pytest.raises(execute.UnclearError, match="not alone"):
            execute.meet(checkout, limit_mutant(), commands, 60)
    else:
        ended = execute.meet(checkout, limit_mutant(), commands, 60)
        assert ended == execute.Ended(False, "tests/test_limit.py::test_it")
    assert (checkout / "limit.py").read_text() == "LIMIT = 1\n"


def test_what_hangs_is_killed_with_its_children(checkout: Path) -> None:
    code = "grep 1 limit.py || { sh -c 'echo $$ > child; exec sleep 600'; true; }"
    ended = execute.meet(checkout, limit_mutant(), [["sh", "-c", code]], 2)
    assert ended == execute.Ended(False, execute.TIMED_OUT)
    assert (checkout / "limit.py").read_text() == "LIMIT = 1\n"
    wait_for_end(int((checkout / "child").read_text()))


CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(limit LANGUAGES CXX)
enable_testing()
if(SLIPSTREAM_WERROR)
  add_compile_options(-Werror=parentheses)
endif()
add_subdirectory(core/test)
"""
CMAKE_TEST = """
add_executable(limit_test limit_test.cc)
add_test(NAME limit_test COMMAND limit_test)
"""
MAKE = """
.venv/stamps/package: core/limit.h
\tmkdir -p .venv/stamps
\tcp core/limit.h installed.h
\ttouch $@
test-python: .venv/stamps/package
\tpython -m pytest -q tests/test_installed.py
"""
INSTALLED = """
from pathlib import Path
def test_installed(): assert "(a || b) && c" in Path("installed.h").read_text()
"""


@pytest.fixture
def cpp_checkout(checkout: Path) -> Path:
    """Return a repository with the project's presets and a C++ header that a test program reads."""
    shutil.copy(ROOT / "CMakePresets.json", checkout)
    (checkout / "core/test").mkdir(parents=True)
    for name, text in {
        "CMakeLists.txt": CMAKE,
        "core/test/CMakeLists.txt": CMAKE_TEST,
        "core/test/limit_test.cc": '#include "../limit.h"\nint main() { return !f(1, 1, 1); }\n',
        "core/limit.h": "inline bool f(bool a, bool b, bool c) { return (a || b) && c; }\n",
        "Makefile": MAKE,
        "tests/test_installed.py": INSTALLED,
    }.items():
        (checkout / name).write_text(text)
    return checkout


def header_mutant(checkout: Path, old: str, new: str) -> Mutant:
    before = (checkout / "core/limit.h").read_text().rstrip("\n")
    after = before.replace(old, new)
    return Mutant(1, "core/engine", "core/limit.h", 1, "and/or", before, after)


@pytest.mark.slow("mutants of a tree")
def test_a_mutant_that_compiles_with_a_warning_meets_its_tests(cpp_checkout: Path) -> None:
    mutant = header_mutant(cpp_checkout, "(a || b)", "a || b")
    tests = part_commands(cpp_checkout, mutant)
    ended = execute.meet(cpp_checkout, mutant, tests, 60, build_commands(mutant))
    assert ended == execute.Ended(True)


@pytest.mark.slow("mutants of a tree")
def test_what_does_not_compile_is_told_from_a_build_that_fails(cpp_checkout: Path) -> None:
    mutant = header_mutant(cpp_checkout, "return", "retrun")
    build = build_commands(mutant)
    assert execute.meet(cpp_checkout, mutant, [], 60, build) is None
    (cpp_checkout / "core/test/limit_test.cc").write_text("#error disk is full")
    with pytest.raises(execute.UnclearError, match="without the mutant"):
        execute.meet(cpp_checkout, mutant, [], 60, build)


def test_a_build_without_end_is_unclear(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "BUILD_SECONDS", 1)
    with pytest.raises(execute.UnclearError, match=execute.TIMED_OUT):
        execute.meet(checkout, limit_mutant(), [], 60, [["sleep", "600"]])


@pytest.mark.slow("mutants of a tree")
def test_what_was_installed_from_a_mutant_does_not_stay(cpp_checkout: Path) -> None:
    mutant = header_mutant(cpp_checkout, "&&", "||")
    build, tests = build_commands(mutant, whole=True), whole_commands(mutant)
    ended = execute.meet(cpp_checkout, mutant, tests, 60, build)
    assert ended == execute.Ended(False, "tests/test_installed.py::test_installed")
    assert (cpp_checkout / "installed.h").read_text() == (cpp_checkout / "core/limit.h").read_text()
    make = subprocess.run(["make", "-q", ".venv/stamps/package"], cwd=cpp_checkout)
    assert make.returncode == 0


@pytest.mark.slow("mutants of a tree")
def test_tests_without_end_kill_only_if_they_end_without_the_mutant(checkout: Path) -> None:
    code = "cat limit.py >> runs; grep 1 limit.py || exec sleep 600"
    for _ in range(2):
        ended = execute.meet(checkout, limit_mutant(), [["sh", "-c", code]], 2)
        assert ended == execute.Ended(False, execute.TIMED_OUT)
    assert (checkout / "runs").read_text() == "LIMIT = 2\nLIMIT = 1\nLIMIT = 2\n"
    with pytest.raises(execute.UnclearError, match="without the mutant"):
        execute.meet(checkout, limit_mutant(), [["sleep", "600"]], 1)


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for_end(process: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not has_ended(process):
        assert time.monotonic() < deadline, f"{process} has not ended"
        time.sleep(0.02)


STUBBORN = """
import signal, sys
from pathlib import Path
from mutants.draw import Mutant
from mutants.execute import meet

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN if number in map(int, sys.argv[1:]) else signal.SIG_DFL)
mutant = Mutant(1, "comm", "limit.py", 1, "constant", "LIMIT = 1", "LIMIT = 2")
meet(Path(), mutant, [["sh", "-c", "trap '' INT; echo $$ > child; exec sleep 600"]], 600)
"""


def start_stubborn(checkout: Path, *ignored: signal.Signals) -> tuple[subprocess.Popen[str], int]:
    """Start a process whose tests do not end when asked to, and return it and the tests."""
    started = subprocess.Popen(
        [sys.executable, "-c", STUBBORN, *(str(int(number)) for number in ignored)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_text(checkout / "child", "\n")
    return started, int((checkout / "child").read_text())


def wait_for_text(path: Path, text: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{path} has no {text!r}"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_a_signal_restores_the_file_at_once_and_another_ends_the_tests(
    checkout: Path, number: signal.Signals
) -> None:
    started, tests = start_stubborn(checkout)
    started.send_signal(number)
    wait_for_text(checkout / "limit.py", "LIMIT = 1")
    assert not has_ended(tests)
    started.send_signal(number)
    assert f"stopped by signal {int(number)}" in started.communicate(timeout=60)[1]
    wait_for_end(tests)


def test_a_signal_that_nohup_ignores_stays_ignored(checkout: Path) -> None:
    started, tests = start_stubborn(checkout, signal.SIGHUP)
    started.send_signal(signal.SIGHUP)
    started.send_signal(signal.SIGTERM)
    os.kill(tests, signal.SIGKILL)
    assert "stopped by signal 15" in started.communicate(timeout=60)[1]


def test_no_bytecode_of_a_mutant_stays(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    execute.meet(checkout, limit_mutant(), python("import limit"), 60)
    assert [*checkout.rglob("*.pyc")] == []


def test_a_changed_checkout_is_refused(checkout: Path) -> None:
    execute.refuse_changes(checkout)
    (checkout / "limit.py").write_text("LIMIT = 3\n")
    with pytest.raises(SystemExit, match=r"limit\.py"):
        execute.refuse_changes(checkout)


def test_results_are_stored_and_an_equivalent_one_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "src").symlink_to(ROOT / "src")
    results = Results(1, "abc", draw(tmp_path, 1, 2))
    drawn = results.replace(tmp_path, results.mutants[0], EQUIVALENT, "nothing reads it")
    assert load(tmp_path) == results
    assert drawn.part == results.mutants[0].part
    assert counts(results)["all"]["drawn"] == 2
    assert counts(results)[drawn.part][EQUIVALENT] == 1
    assert counts(results)["all"][NOT_MET] == 2


def call(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mutants", *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("outcome", "arguments"),
    [
        *[("", [how, "--only", "9"]) for how in ("closest", "run", "whole")],
        *[(KILLED_BY_NEW, [how, "--only", "1"]) for how in ("closest", "run", "whole")],
        (EQUIVALENT, ["run", "--only", "1"]),
        ("", ["whole", "--only", "1"]),
        ("", ["equivalent", "9", "--why", "nothing reads it"]),
        (EQUIVALENT, ["equivalent", "1", "--why", "nothing reads it"]),
    ],
)
def test_only_a_mutant_that_lives_can_be_named(
    checkout: Path, outcome: str, arguments: list[str]
) -> None:
    results = Results(1, "abc", [replace(limit_mutant(), outcome=outcome)])
    results.save(checkout)
    called = call(checkout, *arguments)
    assert called.returncode == 1
    reason = "there is no mutant 9" if "9" in arguments else f"mutant 1 is {outcome or NOT_MET}"
    assert called.stderr.startswith(reason)
    assert load(checkout) == results


@pytest.mark.parametrize(
    ("before", "after"), [(SURVIVED, KILLED_BY_WHOLE), (ESCAPED, KILLED_BY_NEW)]
)
def test_what_all_tests_had_let_escape_is_killed_by_a_new_one(
    checkout: Path, before: str, after: str
) -> None:
    (checkout / "Makefile").write_text("test-python:\n\tpython -m pytest -q tests/test_limit.py\n")
    (checkout / "tests/test_limit.py").write_text(
        "def test_it(): assert open('limit.py').read() == 'LIMIT = 1\\n'\n"
    )
    Results(1, "abc", [replace(limit_mutant(), outcome=before)]).save(checkout)
    assert call(checkout, "whole", "--only", "1").returncode == 0
    [mutant] = load(checkout).mutants
    assert (mutant.outcome, mutant.test) == (after, "tests/test_limit.py::test_it")


@pytest.mark.parametrize("output", ["No space left on device", "ERROR tests/test_limit.py"])
def test_tests_that_did_not_run_reach_nothing_that_counts(checkout: Path, output: str) -> None:
    (checkout / "Makefile").write_text(f"test-python:\n\techo '{output}'; exit 1\n")
    results = Results(1, "abc", [replace(limit_mutant(), outcome=SURVIVED)])
    results.save(checkout)
    assert call(checkout, "reach").returncode == 1
    assert load(checkout) == results


STATEMENTS = """LIMIT = (
    1
)

@decorated
def outer(at=2):
    if at:
        return sum(
            [at, 3]
        )
    elif at > 4:
        pass
    try:
        at = 5
    except ValueError: at = 6
    match at:
        case 7: at = 8
    @decorated
    def inner(): return 9
    return inner
"""


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        *[(2, None), (5, None), (6, None)],  # of the module
        *[(7, 7), (9, 8), (11, 7), (12, 12), (14, 14), (15, 13), (17, 16), (18, 18), (19, 18)],
    ],
)
def test_the_statement_of_a_line_can_have_a_line_before_it(
    line: int, statement: int | None
) -> None:
    assert reach.statement_line(STATEMENTS, line) == statement
    if statement is not None:
        lines = STATEMENTS.split("\n")
        indent = lines[statement - 1][: -len(lines[statement - 1].lstrip())]
        lines.insert(statement - 1, f"{indent}note()")
        compile("\n".join(lines), "noted", "exec")


def test_only_folders_that_reach_a_statement_are_run(tmp_path: Path) -> None:
    source = "def f(a):\n    if a:\n        return 1\n    return 2\n\n\nLIMIT = 3\n"
    (tmp_path / "limit.py").write_text(source)
    one, two, three, module = mutants = [
        Mutant(number, "comm", "limit.py", line, "constant", "", "")
        for number, line in enumerate((3, 4, 4, 7))
    ]
    reach.note_file(tmp_path, one).parent.mkdir(parents=True)
    texts = reach.texts_with_notes(tmp_path, mutants)
    with execute.changed(texts):
        code = "import limit; limit.f(0)"
        for test in ("tests/unit/comm/test_a.py::test_b (call)", "tests/e2e/launch/test_c.py::d"):
            subprocess.run(
                [sys.executable, "-c", code],
                cwd=tmp_path,
                env={"PYTEST_CURRENT_TEST": test},
                check=True,
            )
    assert (tmp_path / "limit.py").read_text() == source
    for mutant in mutants:
        mutant.reached = reach.folders(tmp_path, mutant)
    assert one.reached == []
    assert whole_commands(one) == []
    assert two.reached == three.reached == ["tests/e2e", "tests/unit/comm"]
    [command] = whole_commands(two)
    assert command[-1] == "PYTEST_ARGS=-x tests/e2e tests/unit/comm"
    assert module.reached == [reach.EVERYTHING]
    reach.note_file(tmp_path, one).write_text("tests/lab/test_e.py::f (call)\n\n")
    assert reach.folders(tmp_path, one) == [reach.EVERYTHING]
