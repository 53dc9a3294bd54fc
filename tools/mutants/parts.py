"""Parts of the source, and the tests that have to kill the mutants of each part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Part:
    """A part of the source, and its tests.

    Args:
        sources: Path of the folder with the sources.
        tests: Glob patterns of Python test files and folders (default: none). Parts in C++ have no
            patterns; their tests are in core/test.
        options: Additional arguments for pytest (default none).
    """

    sources: str
    tests: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def is_cpp(self) -> bool:
        """Whether the part is C++ and must be compiled."""
        return not self.tests

    def files(self, root: Path) -> list[Path]:
        """Return the source files relative to the root, in a fixed order."""
        suffixes = (".cc", ".h") if self.is_cpp else (".py",)
        return sorted(
            path.relative_to(root)
            for path in (root / self.sources).rglob("*")
            if path.suffix in suffixes
        )

    def test_paths(self, root: Path) -> list[str]:
        """Return the paths of the part's tests, as arguments for pytest.

        Raises:
            FileNotFoundError: a pattern matches nothing.
        """
        names: list[str] = []
        for pattern in self.tests:
            paths = sorted(root.glob(pattern))
            if not paths:
                raise FileNotFoundError(f"no tests are at {pattern}: change tools/mutants/parts.py")
            names += [str(path.relative_to(root)) for path in paths]
        return names

    def test_files(self, root: Path) -> list[Path]:
        """Return the part's test files relative to the root."""
        files: list[Path] = []
        for name in self.test_paths(root):
            path = root / name
            files += [path] if path.is_file() else sorted(path.rglob("test_*.py"))
        return [path.relative_to(root) for path in files]


PARTS: dict[str, Part] = {
    "comm": Part("src/slipstream/comm", ("tests/unit/comm", "tests/multiprocess")),
    "torch": Part("src/slipstream/torch", ("tests/torch",)),
    "horovod": Part(
        "src/slipstream/horovod",
        ("tests/unit/horovod", "tests/torch/test_*scripts.py", "tests/e2e/test_horovod_*.py"),
        options=("-k", "horovod or hvd"),
    ),
    "forecast": Part(
        "src/slipstream/forecast", ("tests/unit/forecast", "tests/e2e/test_forecast_*.py")
    ),
    "infer": Part("src/slipstream/infer", ("tests/unit/infer",)),
    "serve": Part("src/slipstream/serve", ("tests/unit/serve", "tests/e2e/serve")),
    "cluster": Part("src/slipstream/cluster", ("tests/unit/cluster", "tests/e2e/launch")),
    "core/collective": Part("core/collective"),
    "core/engine": Part("core/engine"),
}


def words(path: Path) -> set[str]:
    """Return the words in the names of a path's folders and file."""
    return set(re.split(r"[/_]", str(path.with_suffix("")))) - {"test", "tests", "unit"}


def closest_tests(root: Path, part: Part, source: Path, most: int = 3) -> list[str]:
    """Return up to `most` test files that share words with a module's name or import it.

    The closest files come first. If there are none, test files whose paths share words with the
    names of the module's folders are returned.
    """
    stem = words(Path(source.stem))
    inside = words(source.relative_to(part.sources))
    dotted = ".".join(source.with_suffix("").parts[1:]).removesuffix(".__init__")
    imported = re.compile(rf"(?m)^\s*(?:from|import) {re.escape(dotted)}\b(?!\.)")
    scores = {
        test: (
            len(words(Path(test.stem)) & stem),
            imported.search((root / test).read_text(encoding="utf-8")) is not None,
            len(words(test) & inside),
        )
        for test in part.test_files(root)
    }
    named = [test for test, score in scores.items() if score[0] or score[1]]
    # used if no test imports the module or shares a word of its name
    named = named or [test for test, score in scores.items() if score[2]]
    return [str(test) for test in sorted(named, key=lambda test: scores[test])[::-1][:most]]


def closest_programs(root: Path, source: Path) -> list[str]:
    """Return the C++ test programs whose name shares a word with a source's name.

    If there are none, programs that share a word with the name of the source's folder are returned.
    """
    programs = sorted((root / "core/test").glob("*_test.cc"))
    for name in (Path(source.stem), Path(source.parent.name)):
        similar = [path.stem for path in programs if words(Path(path.stem)) & words(name)]
        if similar:
            return similar
    return []
