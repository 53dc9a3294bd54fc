"""README and docs: a test runs each shown command, either here or in a test that is named here."""

import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from shown_commands import PAGES, ROOT, shown_commands, wrong_claims

from slipstream.cli import app

# The commands of two pages need root: tests/lab/test_page.py and test_bench_page.py run them.
COMMANDS = shown_commands(*(page for page in PAGES if page.name not in ("lab.md", "benchmarks.md")))

RUN, SERVING = "tests/e2e/launch/test_launchers.py", "tests/e2e/serve"
GATEWAY = f"{SERVING}/test_replicas_gateway.py"
GATEWAY_SCALES = f"{GATEWAY}::test_replicas_follow_the_load_down_to_none_and_back"
ELASTIC = "tests/e2e/launch/test_run_elastic.py"
FLIGHT = "tests/e2e/launch/test_flight.py"
HOROVOD, HOROVODRUN = "tests/e2e/test_horovod_examples.py", "tests/unit/horovod/test_run.py"
SSH_JOB = "tests/e2e/cluster/test_run_job_ssh.py"
PLANS = "tests/e2e/cluster/test_plans.py"
CLUSTER_COMMANDS = f"{SSH_JOB}::test_the_commands_tell_of_a_run"
CHECKPOINT = "tests/multiprocess/test_checkpoint_ranks.py"
RESUMES = "test_the_example_continues_with_the_same_numbers"
ELSEWHERE = {
    **dict.fromkeys(shown_commands(ROOT / "docs" / "queue.md"), "tests/e2e/cluster/test_queue.py"),
    "slipstream cluster up pool --on aws --type g4dn.xlarge --yes": (
        "tests/e2e/cluster/test_queue_autoscale.py"
    ),
    "pip install '.[torch]'": "tools/wheel",
    "make demo": "tests/e2e/test_readme.py::test_a_make_command_runs_what_is_tested",
    "make tour": "tests/e2e/test_readme.py::test_a_make_command_runs_what_is_tested",
    "make test": ".ci/run",
    "slipstream run -n 2 train.py": (
        "tests/e2e/test_readme.py::test_first_script_averages_gradients"
    ),
    "slipstream run -H a:2,b:2 train.py": (
        "tests/e2e/launch/test_run_ssh.py::test_ranks_of_two_hosts_meet"
    ),
    "slipstream run -H a:8,b:8 train.py": (
        "tests/e2e/launch/test_run_ssh.py::test_ranks_of_two_hosts_meet"
    ),
    "slipstream run -H a:8,b:8 --nccl-plugin train.py": (
        "tests/e2e/launch/test_run_ssh.py::test_both_hosts_are_led_to_the_nccl_plugin"
    ),
    "slipstream run job.yaml --on ssh": (
        f"{SSH_JOB}::test_two_hosts_run_a_job_and_the_outputs_come_back"
    ),
    "slipstream run job.yaml --on ssh --set hosts=2": CLUSTER_COMMANDS,
    "slipstream run --on ssh -H node1,node2 --set retry.hang=30m train.py": (
        f"{SSH_JOB}::test_a_program_runs_on_an_engine_without_a_job_file"
    ),
    "slipstream run job.yaml --detach": CLUSTER_COMMANDS,
    "slipstream run job.yaml": f"{SSH_JOB}::test_a_killed_client_is_followed_by_another_one",
    "slipstream cluster attach job": CLUSTER_COMMANDS,
    "slipstream cluster ls --all": CLUSTER_COMMANDS,
    "slipstream cluster status job": CLUSTER_COMMANDS,
    "slipstream cluster logs job --rank 0": CLUSTER_COMMANDS,
    "slipstream cluster events job": CLUSTER_COMMANDS,
    "slipstream cluster replay job --name job-again": CLUSTER_COMMANDS,
    "slipstream cluster down job": CLUSTER_COMMANDS,
    "slipstream explain slipstream-flight/train-20261128-154322": (
        f"{FLIGHT}::test_an_exception_is_shown_on_the_terminal"
    ),
    "slipstream explain records": f"{FLIGHT}::test_without_a_launcher_the_user_names_the_folder",
    "torchrun --nproc-per-node 2 train.py": f"{RUN}::test_torchrun",
    "slipstream run --min 2 --max 8 -H a:4,b:4 train.py": (
        f"{ELASTIC}::test_training_goes_on_in_the_same_processes_and_the_next_one_joins"
    ),
    "slipstream run --min 2 --max 8 --hosts-from ./hosts.sh train.py": (
        f"{ELASTIC}::test_hosts_that_are_added_and_withdrawn_are_followed"
    ),
    "mpirun -n 2 python train.py": f"{RUN}::test_open_mpis_mpirun",
    "srun -n 2 python train.py": f"{RUN}::test_srun",
    "accelerate launch --cpu --num_processes 2 --mpirun_hostfile hosts train.py": (
        "tests/e2e/test_trainers.py::test_accelerate_under_its_own_launcher"
    ),
    "python -m slipstream.horovod.run -np 2 python train.py": f"{HOROVODRUN}::test_a_program_runs",
    "python -m slipstream.horovod.run -np 4 -H a:2,b:2 python train.py": (
        f"{HOROVODRUN}::test_options_have_their_meaning"
    ),
    "python -m slipstream.horovod.run -np 2 --min-np 2 --max-np 8"
    " --host-discovery-script ./hosts.sh python train.py": (
        f"{HOROVODRUN}::test_options_have_their_meaning"
    ),
    "slipstream run -n 2 examples/02_horovod/digits.py": f"{HOROVOD}::test_digits_are_told_apart",
    "slipstream run -n 2 examples/02_horovod/resnet50.py images --generate": (
        f"{HOROVOD}::test_resnet50_goes_on_from_its_checkpoint"
    ),
    "slipstream run -n 4 examples/02_horovod/process_sets.py": (
        f"{HOROVOD}::test_two_models_train_in_two_process_sets"
    ),
    "slipstream run -n 2 --env HOROVOD_TIMELINE=timeline-{rank}.json"
    " examples/02_horovod/digits.py": f"{HOROVOD}::test_a_timeline_has_the_names_of_gradients",
    "slipstream run -n 2 examples/06_checkpoints/train.py --steps 200": f"{CHECKPOINT}::{RESUMES}",
    "slipstream run -n 3 examples/06_checkpoints/train.py --steps 400": f"{CHECKPOINT}::{RESUMES}",
    "slipstream checkpoints checkpoints": f"{CHECKPOINT}::{RESUMES}",
    "slipstream checkpoints checkpoints --verify --json": f"{CHECKPOINT}::{RESUMES}",
    "slipstream bench comm --local 2": (
        "tests/unit/bench/test_comm.py::test_the_command_prints_a_table_and_writes_all_samples"
    ),
    "slipstream compile --list": (
        "tests/e2e/test_compile.py::test_the_list_names_engines_and_rewrites"
    ),
    "slipstream forecast resnet18 --batch 64 --gpus T4 --max-devices 4": (
        "tests/e2e/test_forecast_command.py::test_an_architecture_is_ranked_on_clouds"
    ),
    "slipstream forecast resnet18 --batch 64 --own 1xXeon-8380 --samples 50000 --epochs 2 --json"
    " | slipstream run --plan - train.py": (
        f"{PLANS}::test_a_forecast_that_is_wrong_by_half_is_corrected_by_the_runs_of_its_plan"
    ),
    "slipstream run --plan plans.json --choose 2 -H a,b train.py": (
        f"{PLANS}::test_two_hosts_run_a_plan_and_the_status_compares"
    ),
    "slipstream run job.yaml --plan plans.json": (
        f"{PLANS}::test_a_job_file_has_a_plan_and_the_command_line_another_one"
    ),
    "slipstream tour": (
        "tests/e2e/test_tour.py::test_one_command_forecasts_trains_compiles_serves_and_asks"
    ),
    "slipstream compile model.onnx -o model.slip --device cuda": (
        "tests/e2e/test_compile.py::test_without_a_gpu_the_commands_for_gpus_say_so"
    ),
    "slipstream serve model.slip --device cuda:0,cuda:1": (
        "tests/e2e/test_compile.py::test_without_a_gpu_the_commands_for_gpus_say_so"
    ),
    "slipstream serve model.slip": (
        f"{SERVING}/test_new_files.py::test_a_new_file_takes_over_and_a_wrong_one_does_not"
    ),
    "slipstream serve resnet=resnet50.slip detector.slip --port 9000": (
        f"{SERVING}/test_deployment.py::test_the_unit_starts_a_server_and_ends_it"
    ),
    "slipstream serve resnet=old.slip resnet=new.slip@10%": (
        f"{SERVING}/test_serve.py::test_shares_of_versions_are_kept_and_it_ends_when_told"
    ),
    "slipstream serve model.slip --replicas 2 --access-log -": (
        f"{SERVING}/test_replicas.py::test_replicas_that_are_killed_are_not_noticed"
    ),
    "slipstream serve model.slip --replicas 1:4": (
        f"{GATEWAY}::test_replicas_that_are_killed_under_load_fail_no_request"
    ),
    "slipstream serve model.slip --replicas 0:4 --idle 5m": GATEWAY_SCALES,
    "slipstream serve model.slip --replicas 1:8 --target-latency 50ms": GATEWAY_SCALES,
    "slipstream serve model.slip -H a,b --replicas 2:6": (
        f"{SERVING}/test_replicas_hosts.py"
        "::test_a_host_that_is_switched_off_under_load_fails_no_request"
    ),
    "slipstream ask http://localhost:8000 cat.jpg": (
        f"{SERVING}/test_ask.py::test_a_server_and_a_package_say_the_same_of_pictures"
    ),
    "slipstream ask model.slip cat.jpg --json": (
        f"{SERVING}/test_ask.py::test_a_server_and_a_package_say_the_same_of_pictures"
    ),
    "slipstream serve model.slip --host 0.0.0.0 --token-file tokens --tls-cert cert.pem"
    " --tls-key key.pem": f"{SERVING}/test_serve.py::test_tokens_and_tls_let_in_who_has_them",
}
EXAMPLE = (
    "slipstream compile examples.03_inference.network:make -o model.slip"
    " --data examples.03_inference.network:samples --search-time 20s"
)
IMAGES = "slipstream compile model.onnx -o model.slip --data images/ --pixels --top 5"
GREENNET = "python benchmarks/greennet.py"
# Options that shorten long commands.
SHORTER = {
    EXAMPLE: "--search-time 3s",
    IMAGES: "--search-time 3s",
    GREENNET: "--limit 2000 --epochs 1 --seeds 1 --workers 1 2",
}
SLOW = (EXAMPLE, GREENNET, IMAGES)
HERE = [
    pytest.param(command, marks=[pytest.mark.slow("shown example")] if command in SLOW else [])
    for command in COMMANDS
    if command not in ELSEWHERE
]
SCRIPT = """
from slipstream import comm
comm.init()
comm.barrier()
comm.shutdown()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a user's folder that has the files of the commands."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for script in (tmp_path / "train.py", tmp_path / "package" / "train.py"):
        script.write_text(SCRIPT)
    for name in ("benchmarks", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    classifier(tmp_path / "model.onnx")
    photographs(tmp_path / "images")
    return tmp_path


def classifier(path: Path) -> None:
    """Write an ONNX file with a model from images (1, 3, 16, 16) to ten logits."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.parser.parse_graph(
        """tiny (float[1,3,16,16] image) => (float[1,10] logits) {
            a = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (image, w) b = Relu(a)
            c = GlobalAveragePool(b) d = Flatten(c) logits = Gemm(d, v)
        }"""
    )
    random = np.random.default_rng(0)
    for name, shape in {"w": (16, 3, 3, 3), "v": (16, 10)}.items():
        array = random.standard_normal(shape).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), path)


def photographs(folder: Path) -> None:
    """Write a dozen JPEG files."""
    image = pytest.importorskip("PIL.Image")
    folder.mkdir()
    for seed in range(12):
        pixels = np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8)
        image.fromarray(pixels).save(folder / f"{seed}.jpg")


@pytest.mark.multiprocess
@pytest.mark.parametrize("command", HERE)
def test_a_shown_command_runs(command: str, folder: Path) -> None:
    program, *arguments = shlex.split(f"{command} {SHORTER.get(command, '')}")
    # After one epoch, the claim of GREENNET may not hold yet.
    allowed = (0, 1) if command == GREENNET else (0,)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode in allowed, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_slipstream_understands_every_command_of_every_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options are those of the page, although tests that run the command may shorten it."""
    monkeypatch.chdir(folder)
    whole_command = typer.main.get_command(app)
    lines = shown_commands(*PAGES)
    for command in (command for line in lines for command in line.split(" | ")):
        program, *words = shlex.split(command)
        if program == "slipstream":
            with suppress(typer.Exit):  # raised by options that print, such as --list
                understand(whole_command, command, words)


def understand(command: Any, name: str, words: list[str], parent: Any = None) -> None:
    """Parse the words of a command and its sub-commands, and run nothing."""
    context = command.make_context(name, words, parent=parent)
    if hasattr(command, "resolve_command"):
        words = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, words)
        understand(command, name, words, context)


def test_commands_of_other_tests_are_shown_and_their_tests_contain_their_words() -> None:
    assert set(ELSEWHERE) | set(SHORTER) <= set(COMMANDS)
    assert wrong_claims(ELSEWHERE) == []


def test_a_wrong_claim_is_reported() -> None:
    claims = {
        "slipstream tour": "tests/e2e/test_gone.py",
        "slipstream serve --no-such-option": f"{SERVING}/test_serve.py::test_gone",
        "make tour": "Makefile",
    }
    assert wrong_claims(claims) == [
        "slipstream tour: tests/e2e/test_gone.py has no slipstream",
        "slipstream tour: tests/e2e/test_gone.py has no tour",
        f"slipstream serve --no-such-option: {SERVING}/test_serve.py has no def test_gone(",
        f"slipstream serve --no-such-option: {SERVING}/test_serve.py has no --no-such-option",
    ]
