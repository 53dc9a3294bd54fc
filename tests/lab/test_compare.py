"""One script over gloo and over Slipstream."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.lab import Lab, LabSpec
from slipstream.lab.compare import Progress, compare

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.multiprocess]

COMMAND = str(Path(sys.executable).with_name("slipstream"))
NUM_BYTES = 8_000_000

SCRIPT = f"""
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones({NUM_BYTES} // 4))
pair = dist.new_group(backend="gloo")
print("arguments", sys.argv[1:], "backends", dist.get_backend(), dist.get_backend(pair))
dist.destroy_process_group()
"""


@pytest.mark.slow("lab compare")
def test_a_script_is_run_over_both_and_its_bytes_are_counted(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = ["--num-hosts", "2", "--rate", "100mbit", "--json"]
    done = subprocess.run(
        [COMMAND, "lab", "compare", "--name", "test-none", *options, "--", script, "--lr", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [result["backend"] for result in results] == ["gloo", "slipstream"]
    assert results[0]["speed"] == 1.0
    for result in results:
        # An allreduce of two hosts sends the buffer once.
        assert 0.6 < result["seconds"] < result["seconds_with_startup"]
        for host in result["hosts"]:
            assert NUM_BYTES < host["sent_payload_bytes"] < 1.1 * NUM_BYTES
        assert result["failure"] is None


@pytest.mark.slow("lab compare")
def test_the_backend_is_chosen_and_a_failure_ends_only_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        SCRIPT.replace(
            "dist.destroy_process_group()",
            'dist.destroy_process_group() if dist.get_backend() == "gloo" else sys.exit(5)',
        )
    )
    heard: list[list[str]] = []

    def note(shown: list[Progress]) -> None:
        heard.append([each.state for each in shown])

    with Lab(LabSpec(hosts=2)) as lab:
        gloo, ours = compare(
            lab, [str(script), "--lr", "1"], together=True, on_progress=lambda s: note(list(s))
        )
    assert gloo.last_line == "arguments ['--lr', '1'] backends gloo gloo"
    assert (gloo.state, ours.state) == ("done", "failed")
    assert ours.failure is not None
    assert ours.failure.status == 5
    assert "arguments ['--lr', '1'] backends slipstream slipstream" in ours.failure.last_lines
    assert heard[0] == ["running", "running"]
    assert gloo.traffic is not None
    assert gloo.traffic.hosts[0].sent_payload_bytes > NUM_BYTES
