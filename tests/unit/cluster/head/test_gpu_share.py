"""The share of a GPU's memory: variables, and the hook that limits TensorFlow.

No GPU is here. `tensorflow` is a small fake that shows which calls it gets, and once the real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.cluster.head.gpu_share import share_variables
from slipstream.errors import ConfigError
from slipstream.settings import share_hook_environment

HOOK = Path(__file__).parents[4] / "src" / "slipstream" / "cluster" / "head" / "share_hook"
FAKE = """
class config:
    LogicalDeviceConfiguration = dict
    list_physical_devices = staticmethod(lambda kind: [f"{kind}:0", f"{kind}:1"])
    set_logical_device_configuration = staticmethod(lambda *arguments: print(*arguments))
"""


def run_python(code: str, path: Path | None = None) -> str:
    own = {**os.environ, "PYTHONPATH": str(path or "")}
    environ = {**own, **share_hook_environment(str(HOOK), 2048, own)}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environ, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def test_tensorflow_is_limited_on_each_gpu_after_its_import(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text(FAKE)
    said = run_python("print('first'); import tensorflow; print('last')", tmp_path)
    limit = "[{'memory_limit': 2048}]"
    assert said.splitlines() == ["first", f"GPU:0 {limit}", f"GPU:1 {limit}", "last"]


def test_a_sitecustomize_of_the_host_is_imported_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of the host')")
    assert run_python("print('program')", tmp_path) == "of the host\nprogram\n"
    assert run_python("import sys; print('tensorflow' in sys.modules)") == "False\n"


@pytest.mark.slow("TensorFlow with a share of a GPU")
def test_the_real_tensorflow_can_be_imported() -> None:
    code = "import tensorflow as tf; print(int(tf.reduce_sum(tf.ones(3))))"
    assert run_python(code) == "3\n"


def test_no_share_needs_no_gpu_and_a_share_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share_variables(0.0) == {}
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="needs a GPU of NVIDIA"):
        share_variables(8.0)


def test_a_share_of_a_card_becomes_variables_of_all_frameworks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 16384\necho 81920\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    variables = share_variables(4.0, {"PYTHONPATH": "/mine"})
    assert variables["PYTORCH_ALLOC_CONF"] == "per_process_memory_fraction:0.2500"
    assert variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2500"
    assert variables["SLIPSTREAM_GPU_MEMORY"] == "4096"
    assert variables["PYTHONPATH"] == f"{HOOK}:/mine"
    with pytest.raises(ConfigError, match="gpu_memory is 17 GiB"):
        share_variables(17.0)
