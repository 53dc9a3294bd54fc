"""A dry run prints what an engine would be given, and creates nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli import in_process, usage_error

SECRET = "s3cret-of-the-user"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a job file whose job has a secret."""
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    (tmp_path / "train.py").write_text("")
    fields = {"command": "train.py --lr 0.1", "hosts": 2, "secrets": ["TOKEN"], "deadline": "8h"}
    path = tmp_path / "train.yaml"
    path.write_text(json.dumps(fields))
    return path


def test_the_manifests_are_what_the_published_schemas_allow(job: Path, tmp_path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    done = in_process("run", str(job), "--on", "k8s", "--set", "k8s.image=me/train:1", "--dry-run")
    assert done.code == 0, done.stderr
    assert SECRET not in done.stdout
    assert "PRIVATE KEY" not in done.stdout
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all(done.stdout))
    assert [manifest["kind"] for manifest in manifests] == ["Job", "Secret", "Service"]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.31", strict=True)
    assert not (tmp_path / "home/keys").exists()
    assert json.loads(in_process("cluster", "ls", "--json").stdout) == []


def test_the_batch_script_is_printed(job: Path) -> None:
    done = in_process("run", str(job), "--on", "slurm", "--dry-run", "--set", "slurm.folder=/all")
    assert done.code == 0, done.stderr
    assert done.stdout.startswith("#!/bin/sh\n#SBATCH --job-name=train-0\n")
    assert "#SBATCH --nodes=2\n" in done.stdout
    assert "exec /all/envs/ENVIRONMENT/bin/python -m slipstream" in done.stdout
    shown = json.loads(in_process("run", str(job), "--on", "slurm", "--dry-run", "--json").stdout)
    assert shown["script"].startswith("#!/bin/sh\n")


def test_other_engines_get_the_fields_of_the_job(job: Path) -> None:
    done = in_process("run", "--dry-run", str(job), "--on", "ssh", "--set", "ssh.hosts=[a,b]")
    assert done.code == 0, done.stderr
    fields = yaml.safe_load(done.stdout)
    assert fields["ssh"] == {"hosts": ["a", "b"]}
    assert fields["deadline"] == 28800.0
    assert fields["name"] == "train"


def test_what_the_engine_cannot_run_is_refused(job: Path) -> None:
    assert "k8s.image is not set" in usage_error("run", str(job), "--on", "k8s", "--dry-run")
    assert "without an engine" in usage_error("run", "--dry-run", "train.py")
