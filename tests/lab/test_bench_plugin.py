"""The NCCL plugin between two hosts of a lab whose flows are capped."""

import pytest

from slipstream.bench.plugin.measure import PluginReport, PluginSpec, measure
from slipstream.lab import LabSpec

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.multiprocess]

SIZE = 16_000_000


def measured(lab: LabSpec, streams: int) -> PluginReport:
    """Measure one number of streams and one plain socket."""
    spec = PluginSpec(lab=lab, sizes=(SIZE,), streams=(streams,), sockets=(1,), rounds=2)
    return measure(spec, lambda _: None)


@pytest.mark.slow("streams past the cap of a flow")
def test_several_streams_pass_the_cap_of_a_flow() -> None:
    report = measured(LabSpec(hosts=2, rate="400mbit", flow_rate="100mbit"), streams=8)
    ours = report.of("plugin, 8 streams", SIZE)
    assert report.times_faster(ours) > 2.5
    share = report.limit_share(ours)
    assert share is not None
    assert 0.6 < share < 1.1


@pytest.mark.slow("streams past the cap of a flow")
def test_a_slow_path_gets_fewer_segments() -> None:
    """With even shares, the slow path would need as long as one socket with half of its rate."""
    lab = LabSpec(hosts=2, rate="1gbit", flow_rates=("200mbit", "20mbit"))
    report = measured(lab, streams=8)
    seconds = report.of("plugin, 8 streams", SIZE).median
    rate = 8 * SIZE / seconds
    assert rate > 120e6
