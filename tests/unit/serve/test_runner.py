"""A model in a serving process: its executables."""

from __future__ import annotations

import pytest

from slipstream.infer.package.package import read
from slipstream.serve.replicas import ModelRunner


@pytest.mark.parametrize("runs", [1, 2])
def test_a_model_that_is_let_go_can_be_run_no_more(compiled, runs):
    inputs = read(compiled).check.inputs
    runner = ModelRunner(compiled, 1, 2, runs)
    executables = {id(each): each for each in (runner._alone, runner._together)}.values()
    for each in executables:
        assert each.run(inputs)
    runner.close()
    for each in executables:
        with pytest.raises((RuntimeError, AttributeError, TypeError, ValueError, IndexError)):
            each.run(inputs)
    with pytest.raises(RuntimeError, match="shutdown"):
        runner.pool.submit(print)
