"""What `pip install` brings along is what the package imports."""

import re

import pytest


def test_every_dependency_is_imported(pytestconfig: pytest.Config) -> None:
    project = (pytestconfig.rootpath / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    names = re.findall(r'^  "([\w-]+)', listed, re.MULTILINE)
    sources = [path.read_text() for path in (pytestconfig.rootpath / "src").rglob("*.py")]
    assert names
    for name in names:
        statement = re.compile(rf"^ *(import|from) {name}\b", re.MULTILINE)
        assert any(statement.search(text) for text in sources), name
