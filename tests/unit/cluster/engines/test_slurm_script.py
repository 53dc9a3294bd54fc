"""A batch script asks for what the job needs, and no more."""

from collections.abc import Callable

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.slurm.script import batch_script

MakePlan = Callable[..., RunPlan]


def options(script: str) -> list[str]:
    """Return the options of a batch script."""
    lines = script.splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def test_resources_become_options(plan_of: MakePlan) -> None:
    plan = plan_of(
        on="slurm",
        hosts="2:4",
        resources={"gpus": 8, "cpus": 16, "memory": "1.5GiB", "accelerators": {"fpga": 1}},
        slurm={"partition": "long", "options": ["--constraint=ib"]},
    )
    chosen = options(batch_script(plan, "/shared/runs/train-1", "python3"))
    assert {
        "--nodes=2-4",
        "--no-kill",
        "--requeue",
        "--gres=gpu:8,fpga:1",
        "--cpus-per-task=16",
        "--mem=1536M",
        "--partition=long",
        "--dependency=singleton",
    } <= set(chosen)
    assert chosen[-1] == "--constraint=ib"  # the user's options come last, so that they win
    assert not any(option.startswith(("--time", "--account", "--tmp")) for option in chosen)


def test_a_job_of_a_fixed_size_starts_again_when_a_node_fails(
    plan_of: MakePlan,
) -> None:
    chosen = options(batch_script(plan_of(hosts=2, processes=3), "/f", "python3"))
    assert "--nodes=2" in chosen
    assert "--cpus-per-task=3" in chosen
    assert "--no-kill" not in chosen


def test_the_key_is_not_in_the_script(plan_of: MakePlan) -> None:
    plan = plan_of()
    script = batch_script(plan, "/f", "python3")
    assert plan.job_key not in script
    assert "PRIVATE" not in script
