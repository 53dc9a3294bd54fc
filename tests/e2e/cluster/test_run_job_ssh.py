"""`slipstream run job.yaml --on ssh` over real sshd, each host with files of its own."""

import json
import os
import signal

import pytest
from cluster_hosts import Hosts
from run_jobs import HOME, PYTHON, SLIPSTREAM, left_behind, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
]


def test_two_hosts_run_a_job_and_the_outputs_come_back(hosts: Hosts) -> None:
    desk = hosts.desk
    fields = {"hosts": 2, "ssh": {"hosts": ["host1", "host2"]}, "outputs": ["result.txt"]}
    write_job(desk, "plain", "steps.py 3 0", **fields)
    done = desk.run(SLIPSTREAM, "run", "plain/plain.yaml")
    assert done.returncode == 0, done.stderr
    assert "[host1:0] step 2\n" in done.stdout
    assert "[host2:1] step 2\n" in done.stdout
    assert desk.path(f"{HOME}/plain/result.txt").read_text() == "3 steps on host1\n"
    for name in ("host1", "host2"):
        wait_until(lambda name=name: not left_behind(hosts[name]))
        assert not hosts[name].run("grep", "-rl", "PRIVATE KEY", ".slipstream").stdout


def test_a_program_runs_on_an_engine_without_a_job_file(hosts: Hosts) -> None:
    desk = hosts.desk
    write_job(desk, "bare", "unused")
    existing = ("--set", "software.environment=existing", "--python", str(PYTHON))
    engine = ("--on", "ssh", "-H", "host1,host2", "-n", "1", *existing)
    extra = ("--cwd", "bare", "--env", "A=b", "--set", "outputs=result.txt")
    done = desk.run(SLIPSTREAM, "run", *engine, *extra, "steps.py", "2", "0")
    assert done.returncode == 0, done.stderr
    assert "[host1:0] step 1\n" in done.stdout
    assert "[host2:1] step 1\n" in done.stdout
    assert desk.path(f"{HOME}/bare/result.txt").read_text() == "2 steps on host1\n"
    (listed,) = [
        run
        for run in json.loads(desk.output(SLIPSTREAM, "cluster", "ls", "--all", "--json"))
        if run["name"] == "steps"
    ]
    assert (listed["spec"]["env"], listed["spec"]["hosts"]["max"]) == ({"A": "b"}, 2)


def test_a_job_that_prints_and_makes_no_step_is_started_again(hosts: Hosts) -> None:
    desk = hosts.desk
    retry = {"hang": "1h", "hang_progress": "2s", "backoff": [0.1, 0.1]}
    fields = {"hosts": 2, "ssh": {"hosts": ["host1", "host2"]}, "retry": retry}
    write_job(desk, "stuck", "stuck_steps.py", **fields)
    done = desk.run(SLIPSTREAM, "run", "stuck/stuck.yaml")
    assert done.returncode == 0, done.stderr
    assert "no rank has come further for 2 s; rank" in done.stderr
    assert "reported step" in done.stderr
    assert "[host2:1] alive at step 5\n" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_killed_client_is_followed_by_another_one(hosts: Hosts) -> None:
    desk = hosts.desk
    fields = {"hosts": 2, "ssh": {"hosts": ["host1", "host2"]}, "outputs": ["result.txt"]}
    write_job(desk, "again", "steps.py 30 0.1", **fields)
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "again/again.yaml", log=log)
    wait_until(lambda: "step 3\n" in log.read_text())
    client.kill()
    done = desk.run(SLIPSTREAM, "run", "again/again.yaml")
    assert done.returncode == 0, done.stderr
    assert "the run again goes on" in done.stderr
    assert "start at step" not in done.stdout
    assert "[host1:0] step 29\n" in done.stdout
    assert desk.path(f"{HOME}/again/result.txt").exists()


@pytest.mark.slow("lost host of a run")
def test_a_host_that_is_killed_is_replaced_and_the_job_goes_on(hosts: Hosts) -> None:
    desk = hosts.desk
    retry = {"host_wait": "20s"}
    fields = {"hosts": 2, "ssh": {"hosts": ["host1", "host2", "host3"]}, "retry": retry}
    write_job(desk, "replaced", "steps.py 60 0.1", **fields)
    (spare,) = hosts.start(1)
    assert spare.name == "host3"
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "replaced/replaced.yaml", log=log)
    wait_until(lambda: "[host2:1] step 5\n" in log.read_text())
    hosts["host2"].kill()
    assert client.process.wait(100) == 0, log.read_text()
    text = log.read_text()
    assert "host3 takes the place of a lost host" in text
    assert "[host3:1] step 59\n" in text
    assert text.count("step 0\n") == 2
    hosts["host2"].boot()


@pytest.mark.slow("lost host of a run")
def test_the_host_of_the_head_is_lost_and_another_one_gets_it(hosts: Hosts) -> None:
    desk = hosts.desk
    retry = {"host_wait": "5s"}
    fields = {"hosts": "1:2", "ssh": {"hosts": ["host1", "host2"]}, "retry": retry}
    write_job(desk, "headless", "steps.py 60 0.1", **fields)
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "headless/headless.yaml", log=log)
    wait_until(lambda: "[host2:1] step 5\n" in log.read_text())
    hosts["host1"].kill()
    assert client.process.wait(100) == 0, log.read_text()
    text = log.read_text()
    assert "another head is started" in text
    assert "[0] step 59\n" in text
    hosts["host1"].boot()


@pytest.mark.slow("lost host of a run")
def test_the_only_host_loses_its_power_and_the_job_goes_on_when_it_is_back(hosts: Hosts) -> None:
    desk = hosts.desk
    write_job(desk, "single", "steps.py 60 0.1", ssh={"hosts": ["host1"]})
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "single/single.yaml", log=log)
    wait_until(lambda: "step 5\n" in log.read_text())
    hosts["host1"].kill()
    wait_until(lambda: "no other head can be started yet" in log.read_text())
    hosts["host1"].boot()
    assert client.process.wait(100) == 0, log.read_text()
    assert "step 59\n" in log.read_text()


def test_ctrl_c_ends_the_job_on_all_hosts(hosts: Hosts) -> None:
    desk = hosts.desk
    write_job(desk, "ended", "steps.py 1000 0.1", hosts=2, ssh={"hosts": ["host1", "host2"]})
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "ended/ended.yaml", log=log)
    wait_until(lambda: "step 3\n" in log.read_text())

    os.kill(client.pid, signal.SIGINT)
    assert client.process.wait(60) != 0
    assert "the job is ended" in log.read_text()
    for name in ("host1", "host2"):
        wait_until(lambda name=name: not left_behind(hosts[name]))


def test_the_commands_tell_of_a_run(hosts: Hosts) -> None:
    desk = hosts.desk
    fields = {"hosts": "1:2", "ssh": {"hosts": ["host1", "host2"]}, "retry": {"host_wait": "5s"}}
    write_job(desk, "job", "steps.py 10 0.1", **fields)

    def cluster(*arguments: str) -> str:
        return desk.output(SLIPSTREAM, "cluster", *arguments)

    desk.output(SLIPSTREAM, "run", "job/job.yaml", "--on", "ssh", "--set", "hosts=2", "--detach")
    (listed,) = json.loads(cluster("ls", "--json"))
    assert (listed["name"], listed["state"], listed["spec"]["hosts"]["min"]) == (
        "job",
        "running",
        2,
    )
    assert "[host2:1] step 9\n" in cluster("attach", "job")
    assert cluster("ls") == "no run goes on; --all lists those that have ended\n"
    assert "job #" in cluster("ls", "--all")
    assert "ssh: succeeded" in cluster("status", "job")
    shown = cluster("logs", "job", "--rank", "0")
    assert "[host1:0] step 9\n" in shown
    assert "[host2:1]" not in shown
    events = json.loads(cluster("events", "job", "--json"))
    assert [event["text"] for event in events if event["kind"] == "state"] == [
        "preparing",
        "starting",
        "running",
        "releasing",
        "succeeded",
    ]
    assert "[host1:0] step 9\n" in cluster("replay", "job", "--name", "job-again")
    log = desk.write(f"{HOME}/log", "")
    again = desk.start(
        SLIPSTREAM, "run", "job/job.yaml", "--set", "command=steps.py 1000 0.1", log=log
    )
    wait_until(lambda: "step 3\n" in log.read_text())
    assert desk.output(SLIPSTREAM, "cluster", "ssh", "job", "host2", "hostname") == "host2\n"
    cluster("down", "job")
    assert again.process.wait(60) != 0
    for name in ("host1", "host2"):
        wait_until(lambda name=name: not left_behind(hosts[name]))
