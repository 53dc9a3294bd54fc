"""Plans of a forecast: what is read, what is refused, and what a job takes from them."""

import json
from pathlib import Path
from typing import Any

import pytest
from forecast_plans import forecast_text, plan_of, rented_plan

from slipstream.cluster.spec import JobSpec, check_job, check_place, fill_job, read_job, read_plan
from slipstream.cluster.spec.plan import ForecastPlan
from slipstream.errors import UsageError


def parsed(plan: dict[str, Any]) -> ForecastPlan:
    return read_plan(forecast_text(plan), "plan.json")


def job(**fields: Any) -> JobSpec:
    return check_job({"name": "train", "command": "train.py", **fields}, "the job")


def test_the_best_plan_is_taken_unless_another_one_is_chosen() -> None:
    text = forecast_text(plan_of(), plan_of(hosts=2), plan_of(hosts=4))
    assert read_plan(text, "plan.json").hosts == 1
    assert read_plan(text, "plan.json", choose=3).hosts == 4
    for number in (0, 4, -1):
        with pytest.raises(UsageError, match=r"plan\.json has the plans 1 to 3"):
            read_plan(text, "plan.json", number)


def test_time_and_cost_follow_from_the_steps() -> None:
    plan = parsed(rented_plan())
    assert plan.seconds is not None
    assert plan.dollars is not None
    assert plan.seconds.value == pytest.approx(3600)
    assert plan.seconds.high == pytest.approx(4500)
    assert plan.dollars.value == pytest.approx(2 * 21.5)
    assert parsed(rented_plan(steps=None)).seconds is None
    assert parsed(rented_plan(steps=None)).dollars is None
    assert parsed(rented_plan(dollars_per_hour=None)).dollars is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON: it is empty; allowed: the output of slipstream forecast"),
        ("  hardware strategy", "it begins with 'hardware strategy'"),
        ("[1]", "is JSON without plans"),
        ('{"plans": 3}', "is JSON without plans"),
        ('{"plans": []}', "has version None of the format"),
        (forecast_text(), "has no plan"),
        (forecast_text(plan_of(), version=2), "has version 2 of the format, and this Slipstream"),
        ('{"version": 1, "plans": [3]}', "plan 1 cannot become a job"),
        ('{"version": 1, "plans": [{"machine": "x"}]}', "plan 1 cannot become a job"),
        (forecast_text(plan_of(hosts=0)), "hosts: Input should be greater than or equal to 1"),
        (forecast_text(plan_of(more=1)), "more: Extra inputs are not permitted"),
        (forecast_text(plan_of(steps="many")), "steps: Input should be a valid number"),
        (
            forecast_text(plan_of(seconds_per_step={"value": 1.0, "low": 0.5})),
            "seconds_per_step.high: Field required",
        ),
        (
            forecast_text(plan_of(device_bytes=1 << 30)),
            "its fullest device needs 1.9 GiB and has 1.0 GiB; forecast a plan for devices",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_a_way_out(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_plan(text, "plan.json")
    assert words in str(caught.value)
    assert str(caught.value).startswith("plan.json")


@pytest.mark.parametrize("name", sorted(plan_of()))
def test_a_plan_without_a_field_is_refused(name: str) -> None:
    fields = plan_of()
    del fields[name]
    with pytest.raises(UsageError, match=f"{name}: Field required"):
        parsed(fields)


def test_a_job_is_filled_for_this_host() -> None:
    filled = fill_job(job(), parsed(plan_of()))
    assert (filled.on, filled.hosts.max, filled.processes) == ("local", 1, 1)
    assert json.loads(filled.env["SLIPSTREAM_PLAN"])["micro_batch"] == 64
    assert filled.deadline == 1860  # twice 25 s and half an hour, in whole minutes
    assert filled.cost_cap is None
    assert filled.resources == job().resources


def test_a_job_is_filled_for_machines_of_a_cloud() -> None:
    filled = fill_job(job(), parsed(rented_plan()))
    assert (filled.on, filled.cloud.instance_type, filled.cloud.spot) == (
        "aws", "p4d.24xlarge", False,
    )  # fmt: skip
    assert (filled.hosts.min, filled.hosts.max, filled.processes) == (2, 2, 8)
    assert (filled.resources.gpus, filled.resources.gpu) == (8, "A100")
    assert filled.deadline == 10800
    assert filled.cost_cap == pytest.approx(2 * 21.5 * 3)
    assert filled.env["HOROVOD_FUSION_THRESHOLD"] == str(4 << 20)


def test_machines_and_costs_are_for_that_cloud_only() -> None:
    filled = fill_job(job(on="slurm"), parsed(rented_plan()))
    assert filled.cloud == job().cloud
    assert filled.cost_cap is None
    assert filled.resources.gpus == 8
    named = fill_job(job(ssh={"hosts": ["a", "b"]}), parsed(rented_plan()))
    assert named.on == "ssh"


def test_the_job_prevails_field_by_field() -> None:
    chosen = job(
        hosts=3, resources={"gpu": "H100"}, env={"A": "1"}, deadline="1h", cost_cap=5,
        cloud={"region": "eu-west-1"},
    )  # fmt: skip
    filled = fill_job(chosen, parsed(rented_plan()))
    assert (filled.hosts.max, filled.processes, filled.deadline) == (3, 8, 3600)
    assert (filled.resources.gpus, filled.resources.gpu) == (8, "H100")
    assert filled.env.keys() == {"A", "SLIPSTREAM_PLAN", "HOROVOD_FUSION_THRESHOLD"}
    assert (filled.cloud.region, filled.cloud.instance_type) == ("eu-west-1", "p4d.24xlarge")
    assert filled.cost_cap == 5


@pytest.mark.parametrize("plan", [plan_of(), rented_plan(), rented_plan(steps=None)])
def test_filling_a_job_again_changes_nothing(plan: dict[str, Any]) -> None:
    filled = fill_job(job(), parsed(plan))
    assert fill_job(filled, parsed(plan)) == filled
    recorded = check_job(filled.model_dump(mode="json"), "a record")
    assert fill_job(recorded, parsed(plan)) == filled
    check_place(recorded, parsed(plan))


def test_a_plan_without_an_end_sets_no_deadline() -> None:
    filled = fill_job(job(), parsed(rented_plan(steps=None)))
    assert filled.deadline is None
    assert filled.cost_cap is None


@pytest.mark.parametrize(
    ("plan", "fields", "words"),
    [
        (plan_of(), {}, ""),
        (plan_of(hosts=2), {}, "the job has 2 hosts of your own; name them"),
        (plan_of(hosts=2), {"hosts": 1}, ""),
        (plan_of(), {"hosts": "1:3"}, "the job has 3 hosts of your own"),
        (plan_of(hosts=2), {"on": "slurm"}, ""),
        (plan_of(hosts=2), {"ssh": {"hosts": ["a", "b"]}}, ""),
        (rented_plan(), {}, ""),
        (rented_plan(cloud="gcp"), {}, "creates machines on aws and aliyun only"),
        (rented_plan(cloud="gcp"), {"on": "ssh"}, ""),
        (rented_plan(cloud="gcp"), {"on": "local", "hosts": 1}, ""),
    ],
)
def test_hosts_that_nobody_names_are_asked_for(
    plan: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    filled = fill_job(job(**fields), parsed(plan))
    if not words:
        check_place(filled, parsed(plan))
        return
    with pytest.raises(UsageError, match=words):
        check_place(filled, parsed(plan))


def test_a_job_file_names_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: train.py\nplan: plans/best.json\nprocesses: 4")
    with pytest.raises(UsageError, match=r"best\.json cannot be read: No such file"):
        read_job(path)
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "best.json").write_text(forecast_text(rented_plan()))
    filled = read_job(path, ["cloud.region=us-east-1"])
    assert (filled.on, filled.hosts.max, filled.processes) == ("aws", 2, 4)
    assert read_job(path, ['plan=""']).hosts.max == 1
