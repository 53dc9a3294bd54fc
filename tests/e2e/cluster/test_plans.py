"""`slipstream forecast ... --json | slipstream run --plan -`, and what is written back."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli import in_process, usage_error
from cluster_hosts import Hosts
from forecast_plans import forecast_text, plan_of, rented_plan
from run_jobs import HOME, PROGRAMS, PYTHON, SLIPSTREAM, write_job

FORECAST = "forecast my_models.py:make --batch 64 --own 1xXeon-8380 --samples 6400 --epochs 1"
OTHER = "forecast my_models.py:make --batch 64 --own 1xXeon-6342-2S --samples 6400 --epochs 1"
MODEL = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(14400, 10))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder with a model and a script, in which commands run."""
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("SLIPSTREAM_PROGRESS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MODEL)
    (tmp_path / "train.py").write_text((PROGRAMS / "told_rate.py").read_text())
    return tmp_path


def forecast(command: str, *options: str) -> Any:
    """Return the first plan of a forecast."""
    done = in_process(*command.split(), "--shape", "3,32,32", "--json", *options)
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)["plans"][0]


@pytest.mark.multiprocess
@pytest.mark.slow("plans of a forecast")
def test_a_forecast_that_is_wrong_by_half_is_corrected_by_the_runs_of_its_plan(
    folder: Path,
) -> None:
    pytest.importorskip("torch")
    raw = forecast(FORECAST)["seconds_per_step"]["value"]
    other = forecast(OTHER)
    truth = 1.5 * raw
    pipe = (
        f"{SLIPSTREAM} {FORECAST} --shape 3,32,32 --json"
        f" | {SLIPSTREAM} run --plan - train.py {64 / truth} 1"
    )
    for left in (0.06, 0.03):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {pipe}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "rank 0 of 1: 64 samples" in done.stdout
        assert "the next forecast of this kind of job is corrected by it" in done.stderr
        corrected = forecast(FORECAST)
        assert corrected["seconds_per_step"]["value"] == pytest.approx(truth, rel=left)
    assert "corrected by 1 earlier run: seconds x 1.4" in done.stderr
    assert corrected["job"]["correction"]["observations"] == 2
    assert forecast(OTHER) == other
    assert forecast(FORECAST, "--no-observations")["seconds_per_step"]["value"] == raw
    shown = in_process(*FORECAST.split(), "--shape", "3,32,32")
    assert "corrected by 2 earlier runs on Xeon-8380: seconds x 1.4" in shown.stdout
    (folder / "home" / "observations.jsonl").write_text("{}\n")
    assert "observations.jsonl:1 is no observation" in usage_or_config_error(FORECAST)


def usage_or_config_error(command: str) -> str:
    done = in_process(*command.split(), "--shape", "3,32,32")
    assert done.code != 0
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--plan none.json train.py", "the plan none.json cannot be read: No such file"),
        ("--plan train.py train.py", "train.py is no JSON"),
        ("--plan plans.json --choose 4 train.py", "plans.json has the plans 1 to 3"),
        ("--plan plans.json --choose 3 train.py", "its fullest device needs"),
        ("--plan plans.json --choose 2 train.py", "the job has 2 hosts of your own; name them"),
        ("--choose 2 train.py", "no plan is given; say --plan FILE too"),
        ("--plan plans.json --min 2 train.py", "--min is not for engines"),
        ("job.yaml --plan none.json", "the plan none.json cannot be read"),
        ("job.yaml", "other.json cannot be read"),
    ],
)
def test_wrong_plans_are_refused_before_anything_starts(
    folder: Path, arguments: str, words: str
) -> None:
    small = plan_of(device_bytes=1 << 30)
    (folder / "plans.json").write_text(forecast_text(plan_of(), plan_of(hosts=2), small))
    (folder / "job.yaml").write_text("command: train.py\nplan: other.json")
    assert words in usage_error("run", *arguments.split())
    assert not (folder / "home" / "runs").exists()


@pytest.mark.multiprocess
def test_a_job_file_has_a_plan_and_the_command_line_another_one(folder: Path) -> None:
    plans = forecast_text(plan_of(), plan_of(model="bert", processes=2, hardware="2 cores"))
    (folder / "plans.json").write_text(plans)
    (folder / "job.yaml").write_text("command: train.py 100 1\nplan: plans.json")
    first = run("job.yaml")
    assert "rank 0 of 1" in first.stdout
    assert "gpt2, 64 samples a step, on 1 x Xeon-8380" in first.stderr
    second = run("job.yaml --plan plans.json --choose 2")
    assert "rank 1 of 2" in second.stdout
    assert "bert, 64 samples a step, on 2 cores" in second.stderr
    third = run("--plan plans.json -n 2 --json train.py 100 1")
    (entry,) = [json.loads(line) for line in third.stdout.splitlines() if '"plan"' in line][:1]
    assert entry["differences"] == {"processes": {"plan": 1, "job": 2}}
    again = subprocess.run(
        [SLIPSTREAM, "cluster", "replay", "job"], capture_output=True, text=True, check=False
    )
    assert "rank 1 of 2" in again.stdout
    status = in_process("cluster", "status", "job").stdout
    assert "plan: bert, 64 samples a step, on 2 cores" in status
    assert "step: forecast 200 ms, took 640 ms (as the job reported), +220%" in status


def run(arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [str(SLIPSTREAM), "run", *shlex.split(arguments)]
    environ = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.netns
@pytest.mark.multiprocess
@pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync")
def test_two_hosts_run_a_plan_and_the_status_compares(hosts: Hosts) -> None:
    desk = hosts.desk
    setup = {"hosts": 2, "batch": 64, "network": "10 Gbit/s"}
    plan = plan_of(hosts=2, hardware="2 x Xeon-8380", setup=setup)
    write_job(desk, "planned", "told_rate.py")  # only its programs are used
    desk.write(f"{HOME}/plans.json", forecast_text(rented_plan(), plan))
    existing = ("--python", PYTHON, "--set", "software.environment=existing")
    argv = (
        *(SLIPSTREAM, "run", "--plan", "plans.json", "--choose", "2", "-H", "host1,host2"),
        *("--cwd", "planned", *existing, "--name", "planned", "told_rate.py", "160", "2"),
    )
    done = desk.run(*argv)
    assert done.returncode == 0, done.stderr
    assert "[host2:1] rank 1 of 2: 64 samples\n" in done.stdout
    assert "hosts 2, processes 1, SLIPSTREAM_PLAN, deadline 31 min" in done.stderr
    status = desk.output(SLIPSTREAM, "cluster", "status", "planned")
    assert "plan: gpt2, 64 samples a step, on 2 x Xeon-8380" in status
    assert "training: forecast 20 s, took" in status
    assert "on host1, host2" in status
    assert "step: forecast 200 ms, took 400 ms (as the job reported), +100%" in status
    observation = json.loads(desk.path(f"{HOME}/.slipstream/observations.jsonl").read_text())
    assert (observation["setup"], observation["measured_seconds"]) == (setup, 0.4)
