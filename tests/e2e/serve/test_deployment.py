"""The example deployment: what its files start is started, and what they ask for is there."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

pytestmark = pytest.mark.multiprocess

FOLDER = Path(__file__).parents[3] / "examples" / "05_serving"
PROGRAM = str(Path(sys.executable).with_name("slipstream"))


@pytest.fixture
def started(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start a server by a command of the files, on ports that are free."""
    return lambda command: start(*command, "--port", "0", "--grpc-port", "-1")


def deployment() -> tuple[Any, Any]:
    return tuple(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))


def test_the_unit_starts_a_server_and_ends_it(
    started: Callable[..., Any], packages: dict[str, Path], tmp_path: Path
) -> None:
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(FOLDER / "slipstream.service")
    command = shlex.split(unit["Service"]["ExecStart"])
    assert command[:2] == ["/opt/slipstream/bin/slipstream", "serve"]
    assert command[2].startswith(f"/var/lib/{unit['Service']['StateDirectory']}/")
    shutil.copy(packages["double"], tmp_path / "model.slip")
    server = started([PROGRAM, "serve", str(tmp_path / "model.slip"), *command[3:]])
    urllib.request.urlopen(f"http://{server.rest}/v2/models/model/ready").close()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(int(unit["Service"]["TimeoutStopSec"])) == 0


def test_the_unit_is_one_of_systemd() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(FOLDER / "slipstream.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    strange = [
        line for line in done.stderr.splitlines() if "slipstream.service" in line
        and "is not executable" not in line
    ]  # fmt: skip
    assert not strange


def test_what_the_image_starts_serves_who_has_a_token(
    started: Callable[..., Any], packages: dict[str, Path], tmp_path: Path
) -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    entry, more = (
        json.loads(line.partition(" ")[2])
        for line in lines
        if line.startswith(("ENTRYPOINT", "CMD"))
    )
    (tmp_path / "tokens").write_text("0123456789abcdef\n")
    places = {"slipstream": PROGRAM, "/models/model.slip": str(packages["double"])}
    places |= {"/tokens": str(tmp_path / "tokens")}
    server = started([places.get(each, each) for each in [*entry, *more]])
    (pod,) = deployment()[0]["spec"]["template"]["spec"]["containers"]
    for probe in ("readinessProbe", "livenessProbe"):
        urllib.request.urlopen(f"http://{server.rest}{pod[probe]['httpGet']['path']}").close()
    request = urllib.request.Request(
        f"http://{server.rest}/v2", headers={"Authorization": "Bearer 0123456789abcdef"}
    )
    urllib.request.urlopen(request).close()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://{server.rest}/v2")
    server.process.terminate()
    assert server.process.wait(30) == 0


def test_ports_and_names_of_the_manifest_fit() -> None:
    made, service = deployment()
    pod = made["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {each["containerPort"] for each in container["ports"]}
    exposed = re.search(r"EXPOSE (.+)", (FOLDER / "Dockerfile").read_text())
    assert exposed
    assert ports == set(map(int, exposed[1].split()))
    assert {each["port"] for each in service["spec"]["ports"]} == ports
    labels = pod["metadata"]["labels"]
    assert labels == made["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    # A pod is killed no sooner than the server has had its 30 s for what it has.
    assert pod["spec"]["terminationGracePeriodSeconds"] > 30
