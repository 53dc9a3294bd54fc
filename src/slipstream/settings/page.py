"""The page docs/settings.md, generated from the declarations of the variables."""

from slipstream.settings.launch import DIALECTS
from slipstream.settings.variables import variables

_HEAD = """# Environment variables

`python -m slipstream.settings > docs/settings.md` generates this page from
`src/slipstream/settings/`. Slipstream reads the variables once, when the first group is made. An
empty value counts as unset.

| variable | meaning | allowed | default | unit |
| --- | --- | --- | --- | --- |
"""

_LAUNCH = """
## The rank of a process

The first row whose rank variable is set decides. If none is set, the process is rank 0 of 1.
`MASTER_ADDR` and `MASTER_PORT` have priority over a launcher's own variables for the host and port
of rank 0. Without them, the host is the first one in Slurm's node list, or this host if all ranks
share it, and the port is computed from the number of the job.

| launcher | rank | ranks | rank on its host | ranks on its host |
| --- | --- | --- | --- | --- |
"""

_LAUNCHERS = {
    "environment": "`slipstream run`, torchrun",
    "openmpi": "Open MPI's mpirun",
    "pmi": "MPICH's mpiexec, `srun --mpi=pmi2`",
    "slurm": "srun",
}


def settings_page() -> str:
    """Return the documentation page of all variables."""
    settings = [
        (f"`{item.name}`", item.doc, item.kind.allowed, item.shown, item.unit)
        for item in variables().values()
    ]
    launchers = [
        (
            _LAUNCHERS[dialect.source],
            _names((dialect.rank,)),
            _names(dialect.world_size),
            _names(dialect.local_rank),
            _names(dialect.local_world_size),
        )
        for dialect in DIALECTS
    ]
    return _HEAD + _rows(settings) + _LAUNCH + _rows(launchers)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _rows(rows: list[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(cells) + " |\n" for cells in rows)
