"""The benchmark of the NCCL plugin: arithmetic, samples, the table, and a run without a lab."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from slipstream.bench.plugin import table as plugin_table
from slipstream.bench.plugin.job import PluginJob, PluginSamples, read_samples, write_samples
from slipstream.bench.plugin.measure import PluginReport, PluginSpec
from slipstream.errors import UsageError
from slipstream.lab import LabSpec

MB = 1_000_000
COMMAND = str(Path(sys.executable).with_name("slipstream"))


def samples(contender: str, *seconds: float) -> PluginSamples:
    """Return results for messages of 64 MB."""
    cpu = (0.064,) * len(seconds)
    return PluginSamples(
        contender=contender, size=64 * MB, seconds=seconds, sender_cpu=cpu, receiver_cpu=cpu
    )


def report(lab: LabSpec | None) -> PluginReport:
    """Return a report of two contenders."""
    both = (samples("plugin, 8 streams", 0.5, 0.6, 0.7), samples("1 plain socket", 2.4))
    return PluginReport(spec=PluginSpec(lab=lab), samples=both)


def test_results_are_compared_with_one_socket_and_the_link() -> None:
    one = report(LabSpec(hosts=2, rate="1gbit", flow_rate="250mbit"))
    ours = one.of("plugin, 8 streams", 64 * MB)
    assert one.times_faster(ours) == pytest.approx(4.0)
    assert one.limit_share(ours) == pytest.approx(0.512 / 0.956 / 0.6)
    assert report(None).limit_share(ours) is None
    with pytest.raises(KeyError):
        one.of("2 plain sockets", 64 * MB)


def test_jobs_and_samples_survive_their_texts(tmp_path: Path) -> None:
    job = PluginJob(
        sizes=(1, 2), request_bytes=3, streams=(8,), sockets=(1,), rounds=2, output="out"
    )
    assert PluginJob.from_text(job.as_text()) == job
    written = [samples("1 plain socket", 1.0, 2.0)]
    write_samples(tmp_path / "samples", written)
    assert read_samples(tmp_path / "samples") == written


def test_the_table_has_a_row_for_each_contender() -> None:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(*plugin_table.tables(report(LabSpec(hosts=2))))
    text = captured.get()
    assert "4.00x" in text
    assert "1.00" in text
    rows = plugin_table.as_json(report(None))["rows"]
    assert [row["median_seconds"] for row in rows] == [0.6, 2.4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": ()}, "sizes is"),
        ({"rounds": 0}, "rounds is 0"),
        ({"streams": (0,)}, "streams is"),
        ({"sockets": (8,)}, "sockets lacks 1"),
        ({"lab": LabSpec(hosts=3)}, "the lab has 3 ranks"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PluginSpec(**options)  # type: ignore[arg-type]


@pytest.mark.multiprocess
def test_the_command_measures_this_machine(tmp_path: Path) -> None:
    output = tmp_path / "plugin.json"
    command = [COMMAND, "bench", "plugin", "--local", "--sizes", "1m", "--rounds", "2"]
    options = ["--request-size", "300k", "--streams", "3", "--sockets", "1,2", "-o", str(output)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(output.read_text())["rows"]
    names = ["plugin, 3 streams", "1 plain socket", "2 plain sockets"]
    assert [row["contender"] for row in rows] == names
    assert all(len(row["seconds"]) == 2 and row["limit_share"] is None for row in rows)
