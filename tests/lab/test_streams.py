"""The engine opens as many streams as a network with capped flows needs."""

from pathlib import Path

import pytest

from slipstream.lab import Lab, LabSpec

RANK = Path(__file__).parent / "ranks" / "streams.py"

pytestmark = [pytest.mark.netns, pytest.mark.alone]


def streams_in(spec: LabSpec, **environ: str) -> list[int]:
    """Return how many streams each rank used in the end."""
    with Lab(spec) as lab:
        result = lab.run([str(RANK)], environ=environ, timeout_seconds=120)
    words = [word for lines in result.lines for line in lines for word in line.split()]
    return [int(words[i + 1]) for i, word in enumerate(words) if word == "streams"]


@pytest.mark.slow("streams past the cap of a flow")
def test_capped_flows_get_more_streams() -> None:
    spec = LabSpec(hosts=2, rate="200mbit", flow_rate="50mbit")
    streams = streams_in(spec)
    assert len(streams) == 2
    assert min(streams) >= 3


@pytest.mark.slow("streams past the cap of a flow")
def test_a_given_number_of_streams_is_kept() -> None:
    spec = LabSpec(hosts=2, rate="200mbit", flow_rate="50mbit")
    assert streams_in(spec, SLIPSTREAM_STREAMS="2") == [2, 2]
