"""Published speed-ups beside forecasts: arithmetic on small workloads, and the whole table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.bench.forecast.published import CLAIMS, PublishedClaim, Scaling, published, scaling
from slipstream.bench.forecast.step import replay_workload
from slipstream.bench.models import model
from slipstream.cli import app
from slipstream.forecast.simulate.compute import Rates, Runtime
from slipstream.forecast.simulate.network import WireRates
from slipstream.forecast.simulate.parameters import Parameters

# 0.3 s of memory traffic on a P100 that reaches all of it.
SECONDS = 0.3
WORKLOAD = replay_workload(model("resnet50"), 612e9 * SECONDS)


def forecast(claim: PublishedClaim, *, spread: float = 0.0, between: float = 1.0) -> Scaling:
    runtime = Runtime(name="pytorch", forward_us=0, backward_us=0, step_ms=0, spread=spread)
    fitted = Parameters(
        rates=Rates(memory=1.0, gap_us=0.0),
        wire=WireRates(inside=1.0, between=between, launch_us=0.0, ramp_us=0.0),
        runtimes={"pytorch": runtime},
    )
    return scaling(claim, WORKLOAD, fitted)


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_is_lost_is_waiting_and_exposed_exchange(claim: PublishedClaim) -> None:
    found = forecast(claim, spread=0.03)
    for step in (found.ddp, found.within, found.even, found.fitted):
        lost = found.waited(step) + found.exposed(step)
        assert found.efficiency(step) == pytest.approx(1 - lost)
        assert found.speedup(step) == pytest.approx(found.efficiency(step) * claim.ranks)
        assert 0 <= found.busy(step) <= 1
        assert found.exposed(step) >= -1e-9
    assert found.waited(found.even) == pytest.approx(0)
    # The engine's buckets are the best of sizes, so no more is exposed than with DDP's.
    assert found.within.seconds <= found.ddp.seconds


def test_a_rank_waits_for_the_slowest_of_all() -> None:
    claim = CLAIMS[0]
    found = forecast(claim, spread=0.02)
    slowest = Runtime(spread=0.02).slowest(claim.ranks)
    waited = found.alone.compute * (slowest - 1)
    assert found.waited(found.within) * found.within.seconds == pytest.approx(waited)
    assert found.limit().startswith("slowest rank 6")


def test_the_spread_that_is_needed_gives_the_published_speed_up() -> None:
    claim = CLAIMS[0]
    spread = forecast(claim).needed_spread()
    found = forecast(claim, spread=spread)
    assert found.speedup(found.within) == pytest.approx(claim.speedup, rel=0.01)
    # No spread helps where the network alone is slower than what was published.
    assert forecast(replace(claim, speedup=claim.ranks)).needed_spread() == 0.0


def test_a_slow_network_is_named_as_the_limit() -> None:
    claim = replace(CLAIMS[2], hosts=512, per_host=1, between="ethernet-10g", codec="none")
    found = forecast(replace(claim, batch=8), spread=0.0)
    quick = scaling(
        claim,
        replay_workload(model("vgg16"), 612e9 * 0.05),
        Parameters(runtimes={"pytorch": Runtime(name="pytorch", spread=0.01)}),
    )
    assert quick.busy(quick.within) > 0.9
    assert quick.limit().startswith("full network")
    assert "slowest" not in found.limit()


def test_slower_links_and_fp32_never_help() -> None:
    half = forecast(CLAIMS[1], between=0.5)
    assert half.fitted.seconds >= half.within.seconds
    assert forecast(CLAIMS[0]).ddp.seconds < forecast(CLAIMS[1]).ddp.seconds


def test_hundreds_of_ranks_are_near_what_was_published() -> None:
    rows = list(published())
    assert [row.claim.ranks for row in rows] == [512, 512, 256, 128]
    for row in rows:
        assert 0.7 < row.efficiency(row.within) <= 1
        # TensorFlow had 219 pictures a second on one P100.
        assert row.claim.batch / row.alone.seconds == pytest.approx(219, rel=0.25)


def test_the_command_prints_the_table_and_its_assumptions(tmp_path: Path) -> None:
    path = tmp_path / "published.json"
    options = ["bench", "forecast", "--published", "-o", str(path)]
    done = CliRunner().invoke(app, options, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    for text in ("AIACC, fp16 (1)", "90.2%", "PAISoar", "GreenNet is not public", "Assumed"):
        assert text in done.output
    content = json.loads(path.read_text())
    assert [row["ranks"] for row in content["rows"]] == [512, 512, 256, 128]
    row = content["rows"][2]
    assert row["published_speedup"] == pytest.approx(243.2)
    within = row["within"]
    lost = within["waited"] + within["exposed"]
    assert within["efficiency"] == pytest.approx(1 - lost)
