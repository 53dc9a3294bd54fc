"""The plan of one run: its description, its identifiers, and its secrets."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipstream.cluster.head.placement import RetryRules, RunPlacement
from slipstream.cluster.head.roles import RolePart
from slipstream.cluster.head.spot_notice import SERVICES
from slipstream.cluster.records import RunRecord
from slipstream.cluster.spec import JobSpec
from slipstream.cluster.spec.storage import storage_buckets, storage_mounts
from slipstream.settings import (
    checkpoint_environment,
    job_key_environment,
    secret_variables,
    steps_environment,
)

# Files of the keys of a run; the last one is written last.
_KEY_NAMES = ("certificate", "private_key", "ssh_key", "ssh_key.pub", "job_key")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """A run, as engines see it.

    Args:
        record: Record of the run in the store.
        spec: Description of the job.
        base: Folder of the job file on this machine, to which its paths are relative.
        home: Folder of the records on this machine.
        certificate: Certificate of the run in PEM format.
        private_key: Its private key in PEM format.
        job_key: Key that the ranks of the job share.
        public_ssh_key: Public ssh key of the run, in OpenSSH's format, for machines of a cloud.
        secret_variables: Values of the secret environment variables.
    """

    record: RunRecord
    spec: JobSpec
    base: Path
    home: Path
    certificate: str
    private_key: str
    job_key: str
    public_ssh_key: str
    secret_variables: Mapping[str, str]

    @property
    def run(self) -> str:
        """Identifier of the run: the name and the number of its record."""
        return f"{self.record.name}-{self.record.number}"

    @property
    def folder(self) -> Path:
        """Folder of the run on this machine."""
        return self.home / "runs" / self.run

    @property
    def ssh_key_path(self) -> Path:
        """File with the private ssh key of the run."""
        return self.home / "keys" / self.run / "ssh_key"

    @property
    def code_folder(self) -> Path:
        """Folder on this machine with the files of the job."""
        return (self.base / self.spec.code.folder).resolve()

    def placement(
        self,
        *,
        cwd: str,
        hosts: tuple[str, ...],
        python: str,
        heads: tuple[str, ...] = (),
        head_port: int = 0,
    ) -> RunPlacement:
        """Return the placement of the run.

        Args:
            cwd: Absolute path of the working directory on every host.
            hosts: Names of the hosts.
            python: Path of Python on every host.
            heads: Addresses of the head's host (default none: the ranks run on its own host).
            head_port: Port of the head (default 0).
        """
        spec, rules = self.spec, self.spec.retry
        volumes = tuple(mount.target for mount in storage_mounts(spec.storage, cwd))
        container = spec.container.as_image(volumes)
        python = python if container is None else container.python
        return RunPlacement(
            run=self.run,
            program=spec.command,
            module=spec.module,
            cwd=cwd,
            hosts=hosts,
            min_hosts=spec.hosts.min,
            max_hosts=spec.hosts.max,
            processes=0 if spec.processes == "gpu" else spec.processes,
            python=python,
            environ={
                **spec.env,
                **checkpoint_environment(spec.checkpoint),
                **steps_environment(is_asked=rules.hang_progress is not None),
                **self.secret_variables,
                **job_key_environment(self.job_key.encode()),
            },
            roles=tuple(
                RolePart(
                    name=name, count=role.count, argv=_argv(python, role.command or spec.command)
                )
                for name, role in spec.roles.items()
            ),
            gpu_memory_gib=spec.resources.gpu_memory or 0.0,
            buckets=storage_buckets(spec.storage, cwd),
            container=container,
            heads=heads,
            head_port=head_port,
            certificate=self.certificate,
            private_key=self.private_key,
            retry=RetryRules(
                max_restarts=rules.max_restarts,
                scope=rules.scope,
                backoff_seconds=rules.backoff,
                permanent_codes=rules.permanent_codes,
                silence_seconds=rules.hang or 0.0,
                progress_seconds=rules.hang_progress or 0.0,
                bad_host_failures=rules.bad_host_failures,
                bad_host_seconds=rules.bad_host_time,
            ),
            cloud=spec.on if spec.on in SERVICES and spec.cloud.spot else "",
            deadline_at=self.record.deadline_at,
            grace_seconds=spec.grace,
            host_wait_seconds=rules.host_wait,
            lost_seconds=rules.lost,
            outputs=spec.outputs,
            outputs_wait_seconds=spec.outputs_wait,
        )


def _argv(python: str, command: tuple[str, ...]) -> tuple[str, ...]:
    return (python, *command) if command[0].endswith(".py") else command


def make_plan(record: RunRecord, spec: JobSpec, base: Path, home: Path) -> RunPlan:
    """Return the plan of a run; its keys are drawn at the first call and kept in a secret folder.

    Args:
        record: Record of the run.
        spec: Description of the job.
        base: Folder of the job file.
        home: Folder of the records on this machine.

    Raises:
        ConfigError: a secret variable is not set on this machine.
    """
    load = _load_job_key if spec.on == "local" else _load_keys
    keys = load(home / "keys" / f"{record.name}-{record.number}")
    return RunPlan(
        record=record,
        spec=spec,
        base=base,
        home=home,
        certificate=keys["certificate"],
        private_key=keys["private_key"],
        job_key=keys["job_key"],
        public_ssh_key=keys["ssh_key.pub"],
        secret_variables=secret_variables(spec.secrets),
    )


def _load_keys(folder: Path) -> dict[str, str]:
    """Return the keys in a folder; all of them are drawn before the first of them is used."""
    # The import takes 0.05 s, which a run on this host need not wait for.
    from slipstream.cluster.control.certificate import make_certificate, make_ssh_key

    if not (folder / _KEY_NAMES[-1]).exists():
        texts = (*make_certificate(folder.name), *make_ssh_key(), secrets.token_hex(32))
        _write_keys(folder, dict(zip(_KEY_NAMES, texts, strict=True)))
    return {name: (folder / name).read_text() for name in _KEY_NAMES}


def _load_job_key(folder: Path) -> dict[str, str]:
    """Return the keys of a run on this host, which needs no more than the job key."""
    name = _KEY_NAMES[-1]
    if not (folder / name).exists():
        _write_keys(folder, {name: secrets.token_hex(32)})
    return dict.fromkeys(_KEY_NAMES, "") | {name: (folder / name).read_text()}


def _write_keys(folder: Path, keys: Mapping[str, str]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in keys.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)


def forget_keys(plan: RunPlan) -> None:
    """Delete the keys of a run that has ended."""
    folder = plan.home / "keys" / plan.run
    for name in reversed(_KEY_NAMES):
        (folder / name).unlink(missing_ok=True)
    if folder.exists():
        folder.rmdir()
