"""`slipstream serve -H a,b`: replicas over real ssh, on hosts of which one is switched off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from cluster_hosts import Hosts, open_hosts
from host_boot import HOME, REPOSITORY, UID
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "rsync", "unshare", "nsenter", "setpriv"),
    pytest.mark.multiprocess,
]

ADDRESS = "127.0.0.1:8000"
LOAD = (sys.executable, REPOSITORY / "tests/plugins/replica_load.py", ADDRESS)
SERVE = (Path(sys.executable).with_name("slipstream"), "serve", "m=m.slip")
CALL = """
import tritonclient.grpc
client = tritonclient.grpc.InferenceServerClient("127.0.0.1:8001")
print(client.get_model_metadata("m").name)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, packages: dict[str, Path]) -> Iterator[Hosts]:
    """Yield a desk with a model, and two hosts."""
    with open_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        hosts.start(2)
        put(packages["double"], hosts)
        yield hosts


def put(package: Path, hosts: Hosts) -> None:
    """Replace the model on the desk."""
    model = hosts.desk.path(f"{HOME}/m.slip")
    part = model.with_suffix(".part")
    shutil.copyfile(package, part)
    os.chown(part, UID, UID)
    part.rename(model)


def status(hosts: Hosts) -> Any:
    """Return the gateway's status; an empty one while it does not listen."""
    done = hosts.desk.run(*LOAD, "/replicas")
    return json.loads(done.stdout) if done.returncode == 0 else {"replicas": []}


def ready(hosts: Hosts) -> Counter[str]:
    """Return the number of ready replicas on each host."""
    return Counter(each["host"] for each in status(hosts)["replicas"] if each["state"] == "ready")


def serves(host: Any) -> bool:
    return any("serve.gateway.replica" in line for line in host.processes().values())


@pytest.mark.slow("gateway loss")
def test_a_host_that_is_switched_off_under_load_fails_no_request(hosts: Hosts) -> None:
    desk = hosts.desk
    log, answers = desk.write(f"{HOME}/log", ""), desk.write(f"{HOME}/answers", "")
    gateway = desk.start(*SERVE, "-H", "host1,host2", "--replicas", "2:3", log=log)
    wait_until(lambda: ready(hosts) == {"host1": 1, "host2": 1})
    clients = desk.start(*LOAD, "4", log=answers)

    def answered() -> int:
        return int((answers.read_text().split() or ["0"])[-1])

    wait_until(lambda: answered() > 100)
    hosts["host2"].kill()
    wait_until(lambda: ready(hosts) == {"host1": 2})
    before = answered()
    wait_until(lambda: answered() > before + 100)
    os.kill(clients.pid, signal.SIGTERM)
    assert clients.process.wait(60) == 0, answers.read_text()[-2000:]
    os.kill(gateway.pid, signal.SIGTERM)
    assert gateway.process.wait(60) == 0, log.read_text()
    text = log.read_text()
    assert "is lost: it has been silent for" in text, text
    assert not serves(hosts["host1"])
    assert not list(hosts["host1"].path(f"{HOME}/.slipstream/serve").iterdir())


def test_replicas_on_hosts_demand_a_secret_and_end_with_the_gateway(hosts: Hosts) -> None:
    desk, host = hosts.desk, hosts["host1"]
    log = desk.write(f"{HOME}/log", "")
    gateway = desk.start(*SERVE, "-H", "host1", log=log)
    wait_until(lambda: ready(hosts) == {"host1": 1})
    assert desk.output(sys.executable, "-c", CALL) == "m\n"
    lines = host.output("ss", "-Hltn", user="root").splitlines()
    ports = [line.split()[3].rpartition(":") for line in lines]
    listening = {port for address, _, port in ports if host.address in address} - {"22"}
    assert len(listening) == 2  # REST and gRPC
    asked = [desk.run("curl", "-sk", f"https://host1:{each}/v2/models/m") for each in listening]
    assert any("a token is needed" in each.stdout for each in asked), asked
    for each in listening:
        assert not desk.run("curl", "-s", f"http://host1:{each}/v2/models/m").stdout
    everything = "\n".join([*host.processes().values(), *desk.processes().values()])
    assert "PRIVATE KEY" not in everything
    assert "token" not in everything
    wait_until(lambda: not list(host.path("/tmp").glob("slipstream-replica-*")))  # with the key
    copies = host.path(f"{HOME}/.slipstream/serve")
    assert len(list(copies.iterdir())) == 1
    gateway.kill()
    wait_until(lambda: not serves(host))
    assert not list(copies.iterdir())


@pytest.mark.slow("gateway change")
def test_a_new_file_reaches_the_hosts(hosts: Hosts, packages: dict[str, Path]) -> None:
    desk, host = hosts.desk, hosts["host1"]
    log, answers = desk.write(f"{HOME}/log", ""), desk.write(f"{HOME}/answers", "")
    gateway = desk.start(*SERVE, "-H", "host1", log=log)
    wait_until(lambda: ready(hosts) == {"host1": 1})
    clients = desk.start(*LOAD, "2", log=answers)
    put(packages["triple"], hosts)

    def generations() -> list[int]:
        return [each["generation"] for each in status(hosts)["replicas"]]

    wait_until(lambda: generations() == [2])
    assert len(list(host.path(f"{HOME}/.slipstream/serve").iterdir())) == 1  # the new one
    os.kill(clients.pid, signal.SIGTERM)
    assert clients.process.wait(60) == 0, answers.read_text()[-2000:]
    os.kill(gateway.pid, signal.SIGTERM)
    assert gateway.process.wait(60) == 0, log.read_text()


def test_a_host_without_the_package_is_named(hosts: Hosts) -> None:
    done = hosts.desk.run(*SERVE, "-H", "host1", "--python", "/usr/bin/no-python")
    assert done.returncode == 2
    assert "no replica starts: replica-1 on host1 ended with code 127" in done.stderr
    assert "/usr/bin/no-python" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_host_that_cannot_be_reached_is_named(hosts: Hosts) -> None:
    done = hosts.desk.run(*SERVE, "-H", "nowhere")
    assert done.returncode == 2
    assert "nowhere cannot be reached" in done.stderr
