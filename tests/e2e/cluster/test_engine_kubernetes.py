"""The engine of Kubernetes keeps the contract of engines, on a fake that really runs the pods."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import open_hosts
from engine_contract import PROGRAM, PYTHON, RUN_SECONDS, SIGKILLED, EngineContract, Site
from fake_kubernetes import TOKEN
from host import Host
from host_boot import HOME, REPOSITORY
from waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.launcher("unshare"), pytest.mark.multiprocess]

PORT = 6443
SERVER = f"http://127.0.0.1:{PORT}"
FAKE = REPOSITORY / "tests/plugins/fake_kubernetes.py"


def kubeconfig(server: str, token: str) -> str:
    """Return a kubeconfig with one context."""
    return json.dumps(
        {
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
            "clusters": [{"name": "fake", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {"token": token}}],
        }
    )


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Yield a desk on which the fake runs."""
    with open_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        desk = hosts.desk
        desk.write(f"{HOME}/.kube/config", kubeconfig(SERVER, TOKEN), 0o600)
        log = tmp_path_factory.mktemp("fake") / "log"
        desk.start(PYTHON, FAKE, str(PORT), "/var/fake", user="root", log=log)
        curl = f"import urllib.request as r; r.urlopen('{SERVER}/x')"
        wait_until(lambda: "401" in desk.run(PYTHON, "-c", curl).stderr)
        yield desk


@pytest.fixture(scope="module")
def site(desk: Host) -> Site:
    """Return the fake."""
    return Site(
        desk=desk,
        hosts=[desk],
        fields={"on": "k8s", "hosts": 2, "k8s": {"image": "slipstream"}},
        broken={"k8s": {"image": "slipstream", "namespace": "full"}},
        refusal="exceeded quota",
    )


class TestKubernetes(EngineContract):
    """The engine of Kubernetes."""


def call(desk: Host, method: str, path: str) -> str:
    """Call the fake as the user, and return its answer."""
    program = (
        "import sys, urllib.request as r\n"
        f"q = r.Request(sys.argv[2], None, {{'Authorization': 'Bearer {TOKEN}'}})\n"
        "q.method = sys.argv[1]\n"
        "print(r.urlopen(q).read().decode())\n"
    )
    return desk.output(PYTHON, "-c", program, method, f"{SERVER}{path}")


@pytest.mark.slow("pods that are taken away")
@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_that_is_evicted_starts_again_elsewhere(
    site: Site, tmp_path: Path, index: int
) -> None:
    log = tmp_path / "log"
    name = f"evicted-{index}"
    client = site.start("run", site.write_job(name, f"{PROGRAM} 100 0"), log=log)
    wait_until(lambda: "rank 1 step 3\n" in log.read_text())
    run = site.run_id(name)
    selector = f"labelSelector=slipstream.run={run}"
    pods = call(site.desk, "GET", f"/api/v1/namespaces/default/pods?{selector}")
    (pod,) = set(re.findall(rf"{run}-{index}-\d+", pods))
    call(site.desk, "DELETE", f"/api/v1/namespaces/default/pods/{pod}/eviction")
    assert client.process.wait(RUN_SECONDS) == 0, log.read_text()
    text = log.read_text()
    assert ("the hosts of the head are taken away" in text) == (index == 0)
    assert text.count("rank 0 step 0\n") == 2
    assert text.count("rank 0 step 99\n") == 1
    site.assert_clean()


def test_a_job_without_an_image_that_can_be_had_is_refused(site: Site) -> None:
    job = site.write_job("imageless", f"{PROGRAM} 0 0", k8s={"image": "missing"})
    done = site.slipstream("run", job)
    assert done.returncode == 2
    assert "ImagePullBackOff" in done.stderr
    assert "check k8s.image" in done.stderr
    job = site.write_job("imageless", f"{PROGRAM} 0 0", k8s={})
    assert "k8s.image is not set" in site.slipstream("run", job).stderr


def test_a_pod_that_cannot_be_prepared_is_named(site: Site) -> None:
    software = {"python": str(PYTHON), "environment": "existing"}
    software["setup"] = "test $JOB_COMPLETION_INDEX = 0 || { echo there is no room >&2; exit 5; }"
    done = site.slipstream("run", site.write_job("unready", f"{PROGRAM} 0 0", software=software))
    assert done.returncode == 1
    assert "unready-" in done.stderr
    assert "sh failed on the host: there is no room" in done.stderr
    site.assert_clean()


def test_pods_that_the_quota_refuses_are_named(site: Site) -> None:
    k8s = {"image": "slipstream", "namespace": "crowded"}
    done = site.slipstream("run", site.write_job("podless", f"{PROGRAM} 0 0", k8s=k8s))
    assert "Kubernetes makes no pods" in done.stderr
    assert "exceeded quota" in done.stderr
    assert '"items": []' in call(site.desk, "GET", "/api/v1/namespaces/x/pods?labelSelector=a=b")


def test_a_wrong_token_and_a_server_that_is_away_are_named(site: Site) -> None:
    job = site.write_job("strange", f"{PROGRAM} 0 0")
    for server, token, words in (
        (SERVER, "wrong", "renew your login"),
        ("http://127.0.0.1:1", TOKEN, "cannot be reached: [Errno 111] Connection refused"),
    ):
        site.desk.write(f"{HOME}/other", kubeconfig(server, token))
        done = site.desk.run(
            PYTHON.with_name("slipstream"), "run", job, environ={"KUBECONFIG": f"{HOME}/other"}
        )
        assert done.returncode != 0
        assert words in done.stderr, done.stderr


WRITES = """\
import os, pathlib, sys
folder = pathlib.Path("results")
folder.mkdir(exist_ok=True)
if os.environ["RANK"] == "0":
    (folder / "model.bin").write_bytes(os.urandom(4 << 20))
    (folder / "deep").mkdir()
    (folder / "deep/note.txt").write_text("done\\n")
    (folder / "latest").symlink_to("model.bin")
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.slow("outputs of Kubernetes")
@pytest.mark.parametrize("namespace", ["default", "shaky"])
def test_the_outputs_come_back(site: Site, namespace: str) -> None:
    k8s = {"image": "slipstream", "namespace": namespace}
    name = f"outputs-{namespace}"
    job = site.write_job(name, "writes.py 0", k8s=k8s, outputs=["results"])
    site.desk.write(f"{HOME}/{name}/writes.py", WRITES)
    done = site.slipstream("run", job)
    assert done.returncode == 0, done.stderr
    assert "cannot be brought back" not in done.stderr
    listed = site.desk.output("find", f"{HOME}/{name}/results", "-printf", "%P %s %l|")
    assert set(listed.split("|")) >= {"model.bin 4194304 ", "deep/note.txt 5 "}
    assert "latest 9 model.bin" in listed
    site.assert_clean()


@pytest.mark.slow("outputs of Kubernetes")
def test_the_outputs_wait_for_the_next_client(site: Site) -> None:
    fields = {"hosts": 1, "outputs": ["results/deep"], "retry": {"max_restarts": 0}}
    job = site.write_job("waits", "writes.py 7", **fields)
    site.desk.write(f"{HOME}/waits/writes.py", WRITES)
    assert site.slipstream("run", job, "--detach").returncode == 0
    run = site.run_id("waits")
    wait_for_end(site, run)
    done = site.slipstream("cluster", "attach", "waits")
    assert done.returncode == 7, done.stderr
    assert "cannot be brought back" not in done.stderr, done.stderr
    assert site.desk.output("cat", f"{HOME}/waits/results/deep/note.txt") == "done\n"
    site.assert_clean()


@pytest.mark.slow("kill of a client", represents=False)
def test_a_client_may_be_killed_while_it_brings_the_outputs(site: Site) -> None:
    was_killed, num_kills = True, 0
    while was_killed:
        name = f"fetched-{num_kills}"
        job = site.write_job(name, "writes.py 0", hosts=1, outputs=["results"])
        site.desk.write(f"{HOME}/{name}/writes.py", WRITES)
        assert site.slipstream("run", job, "--detach").returncode == 0
        run = site.run_id(name)
        wait_for_end(site, run)
        stopped = site.slipstream("cluster", "attach", name, stop=f"after:{num_kills}")
        was_killed = stopped.returncode in SIGKILLED
        num_kills += was_killed
        done = site.slipstream("cluster", "attach", name)
        assert done.returncode == 0, done.stderr
        assert "cannot be brought back" not in done.stderr, (name, done.stderr)
        assert site.state(name) == "succeeded", name
        model = site.desk.path(f"{HOME}/{name}/results/model.bin")
        assert model.stat().st_size == 4 << 20, name
    assert num_kills >= 6  # reading the journal and the outputs, and three deletions
    site.assert_clean()


def wait_for_end(site: Site, run: str) -> None:
    """Wait until the journal of a run has its last entry."""
    path = "/api/v1/namespaces/default/pods"

    def journal() -> str:
        listed = call(site.desk, "GET", f"{path}?labelSelector=slipstream.run={run}")
        names = [pod["metadata"]["name"] for pod in json.loads(listed)["items"]]
        logs = [call(site.desk, "GET", f"{path}/{name}/log") for name in names]
        return "".join(logs)

    wait_until(lambda: '"exit_code"' in journal())


def test_code_that_is_too_large_for_a_secret_is_refused(site: Site) -> None:
    job = site.write_job("large", f"{PROGRAM} 0 0")
    site.desk.output(PYTHON, "-c", "import os; open('large/big', 'wb').write(os.urandom(2 << 20))")
    done = site.slipstream("run", job)
    assert done.returncode == 2
    assert "Kubernetes takes 1 MiB" in done.stderr
    done = site.slipstream("run", job, "--set", "code.exclude=[big]")
    assert done.returncode == 0, done.stderr
