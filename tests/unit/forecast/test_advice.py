"""The advice says whether a model fits, and names the cheapest change."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic")

from slipstream import forecast
from slipstream.forecast.report import forecast_page
from slipstream.forecast.report.advice import advice
from slipstream.forecast.report.as_json import as_json
from slipstream.forecast.report.terminal import losers
from slipstream.forecast.search.plan import Loss


def _asked(model: str, **more: Any) -> forecast.Result:
    given = {"batch": 16, "tokens": 1024, "precision": "fp16"}
    return forecast.forecast(model, forecast.ForecastOptions(**{**given, **more}))


@pytest.fixture(name="tight", scope="module")
def tight_fixture(wide_gpt: str) -> forecast.Result:
    """Return the memory fit of replicas that do not fit."""
    return _asked(wide_gpt, own="8xT4")


@pytest.mark.slow("cheapest change of what does not fit")
def test_the_cheapest_change_is_the_fastest_that_fits(tight: forecast.Result):
    fit = tight.fit
    assert fit is not None
    assert not fit.fits
    device = fit.machine.cluster.device.memory_gib * 2**30
    assert fit.num_bytes > device
    assert fit.remedies
    assert all(each.num_bytes <= device for each in fit.remedies)
    seconds = [each.seconds for each in fit.remedies]
    assert seconds == sorted(seconds)
    for each in fit.remedies:
        assert each.strategy.global_batch == 16
        assert each.strategy.ranks == 8
    # The search has replayed these strategies too.
    assert tight.plans[0].step.seconds <= 1.02 * seconds[0]


def test_a_change_is_said_in_words_json_and_html(tight: forecast.Result):
    assert tight.fit is not None
    words = tight.fit.remedies[0].words
    first = advice(tight.fit)[0]
    assert "it does not fit. The cheapest change that makes it fit: " + words in first
    written = as_json(tight, "wide")["fit"]
    assert written["fits"] is False
    assert written["changes"][0]["words"] == words
    assert written["changes"][0]["memory_bytes"] <= written["device_bytes"]
    page = forecast_page(tight, {"model": "wide"})
    assert "Memory without sharding or other changes" in page
    assert words in page


@pytest.mark.slow("cheapest change of what does not fit")
def test_what_fits_needs_no_change(wide_gpt: str):
    found = _asked(wide_gpt, own="1xH100").fit
    assert found is not None
    assert found.fits
    assert found.remedies == ()
    (line,) = advice(found)
    assert line.startswith("one device, micro-batch 16")
    assert line.endswith("it fits")


@pytest.mark.slow("cheapest change of what does not fit")
def test_where_nothing_fits_it_says_how_many_hosts_would_do(wide_gpt: str):
    asked: dict[str, Any] = {"own": "1xT4", "precision": "fp32", "batch": 64}
    found = _asked(wide_gpt, **asked)
    assert not found.plans
    (loss,) = found.losses
    assert loss.change.endswith("of these hosts would suffice")
    enough = int(loss.change.split()[0])
    more = _asked(wide_gpt, **asked, max_hosts=enough, network="25g")
    assert max(plan.hosts for plan in more.plans) == enough


@pytest.mark.slow("cheapest change of what does not fit")
def test_too_few_hosts_name_the_cheapest_that_do(wide_gpt: str):
    found = _asked(wide_gpt, gpus=("T4",), clouds=("aws",), max_devices=16, batch=64)
    short = [loss for loss in found.losses if "does not fit" in loss.why]
    cheapest = min(
        found.plans, key=lambda plan: plan.hosts * (plan.machine.dollars_per_hour or 0.0)
    )
    assert short
    for loss in short:
        assert loss.change.startswith(
            f"{cheapest.hosts} x {cheapest.machine.name} would suffice for $"
        )
    assert isinstance(short[0], Loss)
    shown = losers(found).renderables
    assert any(short[0].change in str(line) for line in shown)
