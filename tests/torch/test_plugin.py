"""PyTorch's entry point: it costs little, imports nothing heavy and breaks nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import slipstream
from slipstream.cluster.launch.agent import find_free_port_pair

PACKAGE = Path(slipstream.__file__).parent
MOST_SECONDS = 0.010

TIMED = """
import os, sys, time
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
from importlib.metadata import entry_points
(entry,) = entry_points(group="torch.backends", name="slipstream")
before = set(sys.modules)
started = time.process_time()
entry.load()()
seconds = time.process_time() - started
print(seconds, *sorted(set(sys.modules) - before))
assert "slipstream" in torch.distributed.Backend.backend_list
"""


def run_python(code: str, *options: str, **variables: str) -> str:
    """Run code in a new interpreter and return its output."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", *options, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **variables},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow("order of imports")
def test_entry_point_is_quick_and_imports_four_small_modules() -> None:
    def seconds() -> float:
        took, *imported = run_python(TIMED).split()
        assert {*imported} == {
            "slipstream",
            "slipstream.torch",
            "slipstream.torch.backend",  # one constant
            "slipstream.torch.plugin",
        }
        return float(took)

    assert any(seconds() < MOST_SECONDS for _ in range(3))


@pytest.mark.slow("order of imports")
def test_backend_is_known_after_importing_torch_alone() -> None:
    printed = run_python("import torch; print(torch.distributed.Backend.backend_list)")
    assert "slipstream" in printed


@pytest.mark.slow("order of imports")
def test_importing_slipstream_torch_registers_where_autoload_is_off() -> None:
    code = "import slipstream.torch, torch; print(torch.distributed.Backend.SLIPSTREAM)"
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "slipstream\n"


@pytest.mark.slow("order of imports")
def test_importing_slipstream_torch_first_is_fine() -> None:
    code = "import slipstream.torch, torch; print(torch.distributed.Backend.SLIPSTREAM)"
    assert run_python(code) == "slipstream\n"


@pytest.mark.slow("backend that cannot register")
@pytest.mark.parametrize(
    "broken", ["_core.py", "errors.py", "settings.py", "torch/process_group.py"]
)
def test_broken_installation_leaves_torch_alone(tmp_path: Path, broken: str) -> None:
    copy = tmp_path / "slipstream"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "_core*"))
    shutil.rmtree(copy / "settings")
    (copy / broken).write_text("raise RuntimeError('this installation is broken')\n")
    metadata = tmp_path / "slipstream-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slipstream\nVersion: 0\n")
    entry = "[torch.backends]\nslipstream = slipstream.torch.plugin:register\n"
    (metadata / "entry_points.txt").write_text(entry)
    code = "import torch, slipstream; print(torch.ones(2).sum().item(), slipstream.__file__)"
    # Without site (-S), no hook of an editable installation comes before the broken copy.
    folders = os.pathsep.join([str(tmp_path), sysconfig.get_path("platlib")])
    printed = run_python(code, "-S", PYTHONPATH=folders)
    assert printed.split() == ["2.0", str(copy / "__init__.py")]


@pytest.mark.slow("backend that cannot register")
def test_registration_that_fails_is_a_warning() -> None:
    code = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
def refuse(*args, **kwargs):
    raise TypeError("another signature")
torch.distributed.Backend.register_backend = refuse
from slipstream.torch import plugin
plugin.register()
print("alive")
"""
    assert run_python(code) == "alive\n"


def test_options_of_older_releases_need_not_say_whether_a_call_is_asynchronous() -> None:
    code = """
import torch, torch.distributed as dist
from torch.distributed import distributed_c10d
for name in ("Allreduce", "Barrier", "Reduce", "Gather", "AllToAll"):
    delattr(getattr(distributed_c10d, name + "Options"), "asyncOp")
dist.init_process_group("slipstream", store=dist.HashStore(), rank=0, world_size=1)
group, value, output = dist.group.WORLD, torch.ones(3), torch.zeros(3)
group.allreduce([value]).wait()
group.reduce([value]).wait()
group.barrier().wait()
group.gather([[output]], [value]).wait()
group.broadcast([value]).wait()
group.alltoall([output], [value]).wait()
print(output.tolist())
dist.destroy_process_group()
"""
    assert run_python(code) == "[1.0, 1.0, 1.0]\n"


@pytest.mark.slow("PyTorch under a launcher")
def test_a_rank_of_mpirun_needs_none_of_torchruns_variables() -> None:
    code = """
import os
from torch import distributed
distributed.init_process_group("slipstream")
print(distributed.get_rank(), distributed.get_world_size(), os.environ["LOCAL_RANK"])
distributed.destroy_process_group()
"""
    of_mpirun = {"RANK": "0", "SIZE": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "1"}
    variables = {f"OMPI_COMM_WORLD_{name}": value for name, value in of_mpirun.items()}
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port_pair())}
    assert run_python(code, **variables, **master) == "0 1 0\n"
