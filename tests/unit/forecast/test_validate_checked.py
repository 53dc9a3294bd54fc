"""Steps that were run on a device: how they are read, and what is fitted on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.errors import ConfigError
from slipstream.forecast.simulate import parameters
from slipstream.forecast.validate import checked
from slipstream.forecast.validate.checked import CheckedStep
from slipstream.forecast.work.strategy import Optimizer

STEPS = Path(__file__).parents[3] / "benchmarks" / "forecast" / "h100.csv"
# Matrix units limit the first model, memory bandwidth the second.
FEW = ("vgg16", "resnet18")


@pytest.mark.slow("forecast fitted to measurements")
def test_the_default_runtime_is_near_what_an_h100_was_measured_to_do() -> None:
    rows = [each for each in checked.read(STEPS) if each.model in ("vgg16", "bert-base")]
    fitted = parameters.load()
    assert len(rows) == 3
    for row in rows:
        seconds = checked.forecast(row, "H100", fitted, fitted.runtime("pytorch2"))
        assert seconds == pytest.approx(row.seconds, rel=0.25), row


@pytest.mark.slow("forecast fitted to measurements")
def test_a_fit_finds_the_runtime_that_made_the_steps() -> None:
    fitted = parameters.load()
    start = replace(fitted.runtime("pytorch2"), memory=1.0, compute=1.0, batch_norm=1.0)
    made = replace(start, memory=1.2, compute=0.9)
    rows = [CheckedStep(name, 256, "bf16", Optimizer.MOMENTUM, 1.0) for name in FEW]
    rows = [replace(row, seconds=checked.forecast(row, "H100", fitted, made)) for row in rows]
    found = checked.fit(rows, "H100", fitted, start)
    for row in rows:
        again = checked.forecast(row, "H100", fitted, found)
        assert again == pytest.approx(row.seconds, rel=0.05)
    assert (found.forward_us, found.update_us) == (start.forward_us, start.update_us)


@pytest.mark.parametrize(
    "text",
    ["model,batch\nresnet50,1\n", "model,batch,precision,optimizer,milliseconds\nr,1,fp7,sgd,1\n"],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be read as measured steps"):
        checked.read(path)
