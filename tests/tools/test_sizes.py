"""The measure of functions, the budgets and the naming rule."""

from pathlib import Path

import pytest
import sizes

CPP = """\
namespace slipstream {
namespace {
constexpr int kSizes[] = {1, 2, 3};
}  // namespace

struct Point {
  int x{0};
  int twice() const { return 2 * x; }
};

#define LOOP(x)      \\
  do {               \\
    use(x);          \\
  } while (false)

template <typename T>
std::vector<T> Engine<T>::steps(int count,
                                int first) const noexcept {
  const char* text = "}{";  // }
  for (int i = 0; i < count; ++i) {
    visit([&] { return i + first; });
  }
  return {};
}

}  // namespace slipstream
"""


def test_cpp_functions_are_found_with_their_lines() -> None:
    found = {(f.name, f.first, f.last) for f in sizes.cpp_functions(CPP)}

    assert found == {("twice", 8, 8), ("Engine<T>::steps", 16, 24)}


def test_a_docstring_does_not_lengthen_a_python_function() -> None:
    text = 'def f() -> int:\n    """One.\n\n    Two.\n    """\n    return 1\n'

    assert [f.lines for f in sizes.python_functions(text)] == [2]


@pytest.mark.parametrize("lines", [sizes.FUNCTION_LINES, sizes.FUNCTION_LINES + 1])
def test_a_function_over_the_budget_is_reported(lines: int) -> None:
    text = "def f() -> None:\n" + "    g()\n" * (lines - 1)
    path = Path("src/slipstream/ring.py")

    problems = sizes.problems_of(path, text, list(sizes.python_functions(text)))

    assert len(problems) == (lines > sizes.FUNCTION_LINES)


@pytest.mark.parametrize("docstring", ["", '    """Run.\n\n    Slowly.\n    """\n'])
def test_a_reason_above_a_function_lifts_its_budget(docstring: str) -> None:
    text = "# over budget: a state machine\ndef f() -> None:\n" + docstring + "    g()\n" * 100

    assert not sizes.problems_of(Path("a.py"), text, list(sizes.python_functions(text)))


COMMAND, HOROVOD = "src/slipstream/cli/run.py", "src/slipstream/horovod/torch/optimizer.py"


@pytest.mark.parametrize(
    ("path", "name", "count", "is_reported"),
    [
        ("src/slipstream/ring.py", "send", sizes.PARAMETERS, False),
        ("src/slipstream/ring.py", "send", sizes.PARAMETERS + 1, True),
        (COMMAND, "run", sizes.PARAMETERS + 1, False),
        (COMMAND, "_start", sizes.PARAMETERS + 1, True),
        (HOROVOD, "DistributedOptimizer", sizes.PARAMETERS + 1, False),
        (HOROVOD, "_make", sizes.PARAMETERS + 1, True),
    ],
)
def test_a_function_with_too_many_parameters_is_reported(
    path: str, name: str, count: int, is_reported: bool
) -> None:
    parameters = ", ".join(f"p{number}" for number in range(count - 1))
    text = f"class A:\n    def {name}(self, {parameters}, *, last): ...\n"

    problems = sizes.problems_of(Path(path), text, list(sizes.python_functions(text)))

    assert [f"{count} parameters" in problem for problem in problems] == [True] * is_reported


def test_a_folder_with_too_many_modules_is_reported() -> None:
    folders = ("src/slipstream/comm", "src/slipstream/comm/links", "tests/unit/comm")
    paths = [Path(folder, f"m{number}.py") for folder in folders for number in range(sizes.MODULES)]
    headers = [Path("core/engine", f"h{number}.h") for number in range(2 * sizes.MODULES)]
    one_more = [Path("src/slipstream/comm/one.py"), Path("tests/unit/comm/one.py")]

    assert not sizes.crowded_folders(paths + headers)
    assert [problem.split(":")[0] for problem in sizes.crowded_folders(paths + one_more)] == [
        "src/slipstream/comm"
    ]


def test_a_file_over_the_budget_is_reported() -> None:
    assert len(sizes.problems_of(Path("a.cc"), "\n" * (sizes.FILE_LINES + 1), [])) == 1


@pytest.mark.parametrize(
    "path", ["src/slipstream/utils.py", "core/common/x.cc", "core/engine_v2.cc", "core/ring_old.h"]
)
def test_a_name_without_a_concept_is_rejected(path: str) -> None:
    assert len(sizes.problems_of(Path(path), "", [])) == 1


@pytest.mark.parametrize("path", ["core/base/threshold.h", "src/slipstream/renew.py"])
def test_a_name_that_merely_ends_like_a_bad_one_passes(path: str) -> None:
    assert sizes.problems_of(Path(path), "", []) == []
