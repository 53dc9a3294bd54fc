"""Accelerate, Lightning and the Trainer of transformers give over Slipstream what gloo gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow("training as on one worker")]


@pytest.mark.parametrize("name", ["accelerate_loop", "lightning_trainer", "transformers_trainer"])
def test_trainer_gives_what_it_gives_over_gloo(
    run_trainer: Callable[[int, str], None], name: str
) -> None:
    run_trainer(2, f"{name}.py")
