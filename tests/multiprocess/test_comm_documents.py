"""The examples in the documentation run as they stand there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

DOCUMENT = Path(__file__).parents[2] / "docs" / "comm.md"


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_the_example_of_the_page_runs(
    start: Callable[..., Any], tmp_path: Path, num_ranks: int
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    ranks = " ".join(map(str, range(num_ranks)))
    for rank, output in enumerate(start(num_ranks, str(script)).finish()):
        assert f"rank {rank} of {num_ranks}: [{ranks}], " in output
