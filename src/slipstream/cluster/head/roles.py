"""The roles of a job's ranks, such as worker and parameter server, and the variables of each.

`python -m slipstream.cluster.head.roles TABLE` becomes the program of the rank's role. TensorFlow's
programs find their peers in TF_CONFIG, MXNet's in the variables DMLC_*; the ranks of each role are
also numbered in ROLE_RANK and ROLE_WORLD_SIZE, as torchrun does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slipstream.settings import detect_launcher

# MXNet's names of roles; TensorFlow's are chief, worker, ps and evaluator.
_DMLC_ROLES = ("scheduler", "server", "worker")
# Ranks of these roles serve the others and never end by themselves.
SERVING_ROLES = ("ps", "server", "scheduler")
# First of the ports of the tasks, below the kernel's range for outgoing connections and above that
# of the launcher.
FIRST_PORT = 30100


@dataclass(frozen=True, kw_only=True, slots=True)
class RolePart:
    """The ranks of one role, which follow those of the roles before it.

    Args:
        name: Name of the role, such as "worker".
        count: Number of its ranks.
        argv: Program and arguments.
    """

    name: str
    count: int
    argv: tuple[str, ...]

    @property
    def serves(self) -> bool:
        """Whether its ranks serve others until these have ended."""
        return self.name in SERVING_ROLES


def awaited_ranks(roles: Sequence[RolePart]) -> frozenset[int]:
    """Return the ranks whose ends end the job."""
    names = [role for role in roles for _ in range(role.count)]
    return frozenset(rank for rank, role in enumerate(names) if not role.serves)


def role_argv(python: str, roles: Sequence[RolePart], addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the program that becomes that of each rank's role.

    Args:
        python: Path of Python on the hosts.
        roles: Roles of the job.
        addresses: Address of the host of each rank.
    """
    table = {"roles": [asdict(role) for role in roles], "addresses": list(addresses)}
    return (python, "-m", "slipstream.cluster.head.roles", json.dumps(table))


def role_variables(
    roles: Sequence[RolePart], addresses: Sequence[str], rank: int
) -> tuple[RolePart, dict[str, str]]:
    """Return the role of a rank, and the variables by which it finds the others.

    Args:
        roles: Roles of the job.
        addresses: Address of the host of each rank.
        rank: Rank.
    """
    places = [f"{address}:{FIRST_PORT + number}" for number, address in enumerate(addresses)]
    cluster: dict[str, list[str]] = {}
    first = 0
    own, index = roles[0], 0
    for role in roles:
        cluster[role.name] = places[first : first + role.count]
        if first <= rank < first + role.count:
            own, index = role, rank - first
        first += role.count
    variables = {
        "ROLE_NAME": own.name,
        "ROLE_RANK": str(index),
        "ROLE_WORLD_SIZE": str(own.count),
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": own.name, "index": index}}),
    }
    if "scheduler" in cluster:
        host, _, port = cluster["scheduler"][0].rpartition(":")
        variables |= {
            "DMLC_ROLE": own.name if own.name in _DMLC_ROLES else "worker",
            "DMLC_PS_ROOT_URI": host,
            "DMLC_PS_ROOT_PORT": port,
            "DMLC_NUM_SERVER": str(len(cluster.get("server", ()))),
            "DMLC_NUM_WORKER": str(len(cluster.get("worker", ()))),
        }
    return own, variables


def parse_roles(fields: Sequence[Mapping[str, Any]]) -> tuple[RolePart, ...]:
    """Return the roles in parsed JSON."""
    return tuple(
        RolePart(name=field["name"], count=field["count"], argv=tuple(field["argv"]))
        for field in fields
    )


def main() -> None:
    """Become the program of this rank's role."""
    table: dict[str, Any] = json.loads(sys.argv[1])
    roles = parse_roles(table["roles"])
    role, variables = role_variables(roles, table["addresses"], detect_launcher().rank)
    os.execvpe(role.argv[0], role.argv, {**os.environ, **variables})


if __name__ == "__main__":
    main()
