"""Every command that README and docs show is run, here or by the test that is named here."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Needs a machine, hosts or daemons of its own: the test that runs it, with those.
ELSEWHERE = {
    "pip install .": "tools/wheel",
    "pip install '.[torch]'": "tools/wheel",
    "make demo": "tests/e2e/test_demo.py",
    "make tour": "tests/e2e/test_tour.py",
    "make test": ".ci/run",
    "slipstream run -H a:2,b:2 train.py": "tests/e2e/launch/test_run_ssh.py",
    **dict.fromkeys(
        (
            "slipstream serve model.slip",
            "slipstream serve resnet=resnet50.slip detector.slip --port 9000",
            "slipstream serve resnet=old.slip resnet=new.slip@10%",
            "slipstream serve model.slip --replicas 2 --access-log -",
            "slipstream serve model.slip --host 0.0.0.0 --token-file tokens --tls-cert cert.pem"
            " --tls-key key.pem",
        ),
        "tests/e2e/serving/test_serve.py",
    ),
    "srun -n 2 python train.py": "tests/e2e/launch/test_launchers.py",
    "python -m slipstream.horovod.run -np 4 -H a:2,b:2 python train.py": (
        "tests/e2e/test_horovod_examples.py"
    ),
}
HOROVOD = "slipstream run -n 2 examples/02_horovod"
PIXELS = "slipstream compile model.onnx -o model.slip --data pictures/ --pixels --top 5"
GREENNET = "python benchmarks/greennet.py"
# What makes a long one short.
SHORTER = {
    "slipstream bench comm --local 2": "--sizes 4k --rounds 1",
    "slipstream tour": "--quick --epochs 1",
    PIXELS: "--time 5s",
    GREENNET: "--limit 2000 --epochs 1 --seeds 1 --workers 1 2",
    f"{HOROVOD}/digits.py": "--epochs 1 --images 512",
    f"{HOROVOD}/resnet50.py images --generate": "--image-size 32 --images 8 --epochs 1 --width 8",
    "slipstream run -n 4 examples/02_horovod/process_sets.py": "--steps 20",
    "slipstream run -n 2 --env HOROVOD_TIMELINE=timeline-{rank}.json"
    " examples/02_horovod/digits.py": "--epochs 1 --images 512",
}
SCRIPT = """
import torch.distributed as dist
dist.init_process_group("slipstream")
dist.barrier()
dist.destroy_process_group()
"""


def shown_commands() -> list[str]:
    """Return the command lines of all pages, without comments.

    Those of two pages need root: tests/lab/test_page.py runs the lab's, which build on one another,
    in their order, and tests/lab/test_bench_page.py shorter benchmarks.
    """
    found: list[str] = []
    for page in PAGES:
        if page.name in ("lab.md", "benchmarks.md"):
            continue
        for block in re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(), re.DOTALL):
            lines = [line.removeprefix("$ ").split(" #")[0].strip() for line in block.splitlines()]
            found += [line for line in lines if line]
    return sorted(set(found))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, with what the commands name."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for script in (tmp_path / "train.py", tmp_path / "package" / "train.py"):
        script.write_text(SCRIPT)
    for name in ("benchmarks", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    classifier(tmp_path / "model.onnx")
    photographs(tmp_path / "pictures")
    return tmp_path


def classifier(path: Path) -> None:
    """An ONNX file: pictures (1, 3, 16, 16) to ten logits."""
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
    """A dozen JPEG files."""
    image = pytest.importorskip("PIL.Image")
    folder.mkdir()
    for seed in range(12):
        pixels = np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8)
        image.fromarray(pixels).save(folder / f"{seed}.jpg")


@pytest.mark.multiprocess
@pytest.mark.parametrize("command", [each for each in shown_commands() if each not in ELSEWHERE])
def test_a_shown_command_runs(command: str, folder: Path) -> None:
    program, *arguments = shlex.split(f"{command} {SHORTER.get(command, '')}")
    if program == "mpirun":
        arguments = ["--allow-run-as-root", "--oversubscribe", *arguments]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which(program, path=path) is None:
        pytest.skip(f"needs {program}")
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path, "SLIPSTREAM_JOB_KEY": "k" * 32, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    # One epoch decides nothing: this one may say that its claim does not hold.
    allowed = (0, 1) if command == GREENNET else (0,)
    assert done.returncode in allowed, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_run_elsewhere_is_shown_and_its_test_exists() -> None:
    assert set(ELSEWHERE) | set(SHORTER) <= set(shown_commands())
    for proof in ELSEWHERE.values():
        assert (ROOT / proof).exists(), proof
