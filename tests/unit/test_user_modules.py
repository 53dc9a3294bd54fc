"""Objects of the user's modules and files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slipstream.errors import UsageError
from slipstream.user_modules import SPELLING, import_user_object

TEXT = """
import beside_mine
class Zoo:
    number = beside_mine.NUMBER
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a current folder with a file that imports another one beside it."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "mine.py").write_text(TEXT)
    (tmp_path / "inner" / "beside_mine.py").write_text("NUMBER = 3\n")
    (tmp_path / "broken_mine.py").write_text("raise ValueError('not today')\n")
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "beside_mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_file_may_import_from_its_own_folder(folder: Path) -> None:
    before = list(sys.path)
    assert import_user_object("inner/mine.py:Zoo.number") == 3
    assert import_user_object(f"{folder}/inner/mine.py:Zoo").number == 3
    assert sys.path == before


def test_a_module_is_found_from_the_current_folder(folder: Path) -> None:
    del folder
    assert import_user_object("inner.beside_mine:NUMBER") == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inner/no.py:make", f"there is no file inner/no.py; {SPELLING}"),
        ("no_such_module:make", "no_such_module cannot be imported: ModuleNotFoundError: "),
        ("broken_mine.py:make", "broken_mine.py cannot be imported: ValueError: not today"),
        ("inner/beside_mine.py:Zoo.make", "inner/beside_mine.py has no 'Zoo.make'; allowed"),
    ],
)
def test_errors_name_the_reason(folder: Path, text: str, message: str) -> None:
    del folder
    with pytest.raises(UsageError, match=message):
        import_user_object(text)
