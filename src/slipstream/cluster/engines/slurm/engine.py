"""The engine of Slurm: a batch job, whose nodes and whose client share a file system."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.file_journal import read_file_journal
from slipstream.cluster.engines.layout import RunLayout, read_layout, write_layout
from slipstream.cluster.engines.preparation import prepare_host
from slipstream.cluster.engines.probe import probe
from slipstream.cluster.engines.protocol import HeadState, JournalPart, RunProgress
from slipstream.cluster.engines.remarks import (
    CANCELLED_CODE,
    Remarks,
    cancelled_entry,
    end_entry,
    is_submitted,
    mark_cancelled,
    mark_submitted,
)
from slipstream.cluster.engines.slurm.jobs import (
    SlurmJob,
    cancel_job,
    exit_code_of,
    find_job,
    submit_job,
)
from slipstream.cluster.engines.slurm.script import batch_script, home_of
from slipstream.cluster.engines.this_host import ThisHost
from slipstream.cluster.head.allocation import TAKEN_CODE
from slipstream.cluster.head.placement import ENDED, FILE_NAME, JOURNAL
from slipstream.cluster.spec import JobSpec
from slipstream.errors import ConfigError, PeerError, UsageError

LOOK_SECONDS = 5.0
# A job whose head has ended, ends so soon by itself; one that is cancelled, within CLEAN_SECONDS.
END_SECONDS = 15.0
CLEAN_SECONDS = 60.0
POLL_SECONDS = 0.2


class SlurmEngine:
    """The engine of Slurm."""

    name = "slurm"

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._remarks = Remarks()

    def check(self, plan: RunPlan) -> None:
        """Refuse what is not known of the nodes, and a folder within the code."""
        spec = plan.spec
        if spec.resources.gpu:
            raise UsageError(
                f"resources.gpu is {spec.resources.gpu!r}, but Slurm has names of its own for GPUs;"
                " leave it out, and set slurm.options: --gres=gpu:NAME:NUMBER"
            )
        if spec.software.cuda or spec.software.cudnn:
            raise UsageError(
                "software.cuda or software.cudnn is set, but Slurm chooses the nodes when the job"
                " starts; leave them out, and set slurm.options: --constraint=NAME"
            )
        if home_of(plan).is_relative_to(plan.code_folder):
            raise UsageError(
                f"slurm.folder is {str(home_of(plan))!r}, within the folder of the code; choose"
                " another one, which all nodes see"
            )

    def estimate(self, spec: JobSpec) -> None:
        """Return None: its machines cost nothing."""
        del spec

    def prepare(self, plan: RunPlan, progress: RunProgress) -> None:
        """Bring code, environment and data to the shared folder."""
        if read_layout(plan).python:
            return
        host = ThisHost()
        with progress.stage("look"):
            facts = probe(host, plan.spec, str(home_of(plan)))
        if plan.spec.software.environment == "existing" and not facts.has_slipstream:
            raise ConfigError(f"{plan.spec.software.python} has no Slipstream; install it there")
        python = prepare_host(plan, host, facts, progress)
        write_layout(plan, RunLayout(home=facts.home, python=python))

    def submit(self, plan: RunPlan) -> None:
        """Submit the batch job, unless there is one of this name, or the run has ended."""
        job = find_job(plan.run)
        folder = self._folder(plan)
        if (job is not None and job.is_active) or (folder / ENDED).exists():
            return
        layout = read_layout(plan)
        if not (folder / FILE_NAME).exists():
            code = str(folder / "code")
            plan.placement(cwd=code, hosts=(), python=layout.python).write(folder)
        script = folder / "job.sh"
        script.write_text(batch_script(plan, str(folder), layout.python))
        mark_submitted(plan)
        submit_job(script, plan.spec.secrets)

    # ---- while it runs ----

    def read_journal(self, plan: RunPlan, position: str, seconds: float) -> JournalPart:
        """Return new lines of the journal, or why the job waits or has ended without a result.

        Raises:
            QuotaError, UsageError: the job waits for what never comes.
        """
        part = read_file_journal(self._folder(plan) / JOURNAL, position, seconds)
        if part.text or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return part
        self._looked_at = time.monotonic()
        return JournalPart(text=self._look(plan), position=part.position)

    def _look(self, plan: RunPlan) -> str:
        """Return an entry about the job if there is news, or ""."""
        try:
            job = find_job(plan.run)
        except PeerError as error:
            return self._remarks.entry(str(error))
        if job is not None and job.phase == "waiting":
            job.check_waiting()
            if job.reason == "None":
                return ""
            return self._remarks.entry(f"Slurm's job {job.number} waits: {job.reason}")
        if (job is not None and job.is_active) or (self._folder(plan) / ENDED).exists():
            return ""
        return cancelled_entry(plan) or ("" if job is None else self._look_at_end(plan, job))

    def _look_at_end(self, plan: RunPlan, job: SlurmJob) -> str:
        """Return the last entry of a job that has ended for good without a result, or ""."""
        if job.phase == "taken":
            return ""
        if job.state == "CANCELLED":
            return end_entry("cancelled", CANCELLED_CODE, f"Slurm's job {job.number} was cancelled")
        code = exit_code_of(job)
        if code == TAKEN_CODE:
            return ""
        log = self._folder(plan) / "slurm.log"
        said = "; ".join(log.read_text(errors="replace").splitlines()[-3:] if log.exists() else [])
        return end_entry("failed", code, f"Slurm's job {job.number} is {job.state}: {said}")

    def head_state(self, plan: RunPlan) -> HeadState:
        """Return whether the job waits or runs; while Slurm does not answer, it does."""
        if (self._folder(plan) / ENDED).exists():
            return "ended"
        try:
            job = find_job(plan.run)
        except PeerError:
            return "running"  # read_journal tells it
        if cancelled_entry(plan) or (
            job is not None and (job.is_active or self._look_at_end(plan, job))
        ):
            return "running"
        return "absent"

    def restart_head(
        self, plan: RunPlan, progress: RunProgress, *, host_is_lost: bool
    ) -> Sequence[str]:
        """Submit the job again."""
        del progress, host_is_lost
        self.submit(plan)
        return ()

    def replace_hosts(
        self, plan: RunPlan, lost: Sequence[str], progress: RunProgress
    ) -> Sequence[str]:
        """Return no host: Slurm starts the job again on others if too few are left."""
        del plan, lost, progress
        return ()

    # ---- the end ----

    def cancel(self, plan: RunPlan) -> None:
        """Cancel the job."""
        mark_cancelled(plan)
        self._looked_at = 0.0
        job = find_job(plan.run)
        if job is not None and job.is_active:
            cancel_job(job)

    def fetch(self, plan: RunPlan, patterns: Sequence[str], folder: Path) -> Sequence[str]:
        """Copy the outputs into the folder of the code."""
        return ThisHost().download(str(self._folder(plan) / "code"), patterns, folder)

    def release(self, plan: RunPlan) -> None:
        """Cancel a job that does not end by itself, and delete the secrets."""
        began_at = time.monotonic()
        patience = END_SECONDS if (self._folder(plan) / ENDED).exists() else 0.0
        is_told = False
        while is_submitted(plan) and (job := find_job(plan.run)) is not None and job.is_active:
            waited = time.monotonic() - began_at
            if waited >= patience and not is_told:
                cancel_job(job)
                is_told = True
            if waited >= patience + CLEAN_SECONDS:
                raise PeerError(
                    f"Slurm's job {job.number} is still {job.state} after {waited:.0f} s; call"
                    f" `scancel {job.number}`"
                )
            time.sleep(POLL_SECONDS)
        (self._folder(plan) / FILE_NAME).unlink(missing_ok=True)

    def shell(self, plan: RunPlan, host: str) -> list[str]:
        """Refuse: Slurm has a command for this."""
        job = find_job(plan.run)
        number = "JOB" if job is None else job.number
        where = f" --nodelist={host}" if host else ""
        raise UsageError(
            f"{plan.run} runs in Slurm; call `srun --jobid={number} --overlap{where} --pty bash`"
        )

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        """Return the path in the shared folder."""
        return str(self._folder(plan) / "code" / path)

    def _folder(self, plan: RunPlan) -> Path:
        """Return the folder of the run, which all nodes see."""
        return Path(read_layout(plan).home or home_of(plan)) / "runs" / plan.run
