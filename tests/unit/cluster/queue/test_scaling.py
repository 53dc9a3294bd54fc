"""The scaling: jobs get machines by what a sample costs, and are told why they have them."""

import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.cluster.progress import measured_rates, report_progress
from slipstream.cluster.queue.autoscaling.sizes import ScalingJob, ScalingPolicy, scale

POLICY = ScalingPolicy(min_machines=1, max_machines=16, machine_price=1.0, waiting_price=1.0)


def test_each_job_begins_with_its_smallest_number():
    found = scale([ScalingJob(number=1, max_hosts=8), ScalingJob(number=2, min_hosts=2)], POLICY)
    assert found.hosts == {1: 1, 2: 2}
    assert found.machines == 3
    assert found.reasons[1] == "runs on 1 machine until its speed is known"


def test_a_job_that_scales_well_doubles_step_by_step():
    rates = {1: 10.0}
    for hosts in (2, 4, 8):
        found = scale([ScalingJob(number=1, max_hosts=8, rates=rates)], POLICY)
        assert found.hosts == {1: hosts}
        rates[hosts] = 10.0 * hosts
    assert found.reasons[1] == "runs on 8 machines, the most that it can use"


def test_a_job_that_scales_badly_goes_back_and_is_told_why():
    job = ScalingJob(number=1, max_hosts=8, hosts=4, rates={1: 10.0, 2: 18.0, 4: 22.0})
    found = scale([job], POLICY)
    assert found.hosts == {1: 2}
    assert found.reasons[1] == (
        "runs on 2 machines: on 4 each machine has 61% of the speed"
        " (5.5 against 9 samples/s), so a sample would cost more"
    )


def test_waiting_that_costs_more_pays_for_more_machines():
    job = ScalingJob(number=1, max_hosts=2, rates={1: 10.0, 2: 14.0})
    assert scale([job], POLICY).hosts == {1: 1}
    dear = ScalingPolicy(min_machines=0, max_machines=16, machine_price=1.0, waiting_price=9.0)
    assert scale([job], dear).hosts == {1: 2}


def test_with_few_machines_every_job_gets_one_before_any_gets_two():
    wide = ScalingJob(number=1, max_hosts=8, hosts=3, rates={1: 10.0, 2: 20.0})
    few = ScalingPolicy(min_machines=1, max_machines=3, machine_price=1.0, waiting_price=1.0)
    jobs = [wide, *(ScalingJob(number=number) for number in (2, 3, 4))]
    found = scale(jobs, few)
    assert found.hosts == {1: 1, 2: 1, 3: 1, 4: 0}
    assert found.reasons[4] == "waits: other jobs have all 3 machines"


def test_the_job_that_gains_most_doubles_first():
    few = ScalingPolicy(min_machines=1, max_machines=3, machine_price=1.0, waiting_price=1.0)
    jobs = [
        ScalingJob(number=1, max_hosts=2, rates={1: 10.0, 2: 17.0}),
        ScalingJob(number=2, max_hosts=2, rates={1: 10.0, 2: 20.0}),
    ]
    assert scale(jobs, few).hosts == {1: 1, 2: 2}


def test_the_smallest_number_of_machines_stays():
    assert scale([], POLICY).machines == 1


def test_an_idle_machine_is_kept_until_a_new_one_would_be_cheaper():
    assert POLICY.idle_seconds == pytest.approx(360.0)


def test_reports_of_progress_are_read_by_number_of_hosts(tmp_path, monkeypatch):
    path = tmp_path / "progress"
    assert measured_rates(path) == {}
    monkeypatch.delenv("SLIPSTREAM_PROGRESS_FILE", raising=False)
    report_progress(5.0, 1)
    monkeypatch.setenv("SLIPSTREAM_PROGRESS_FILE", str(path))
    for rate in (1.0, 9.0, 10.0, 10.5, 11.0, 12.0):
        report_progress(rate, 1)
    report_progress(20.0, 2)
    with path.open("a") as file:
        file.write('{"hosts": 4, "samp')
    assert measured_rates(path) == {1: 10.5, 2: 20.0}


def test_a_simulated_month_costs_little_more_than_with_full_knowledge():
    program = Path(__file__).parents[3] / "soak" / "scaling.py"
    command = [sys.executable, str(program), "--seeds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
