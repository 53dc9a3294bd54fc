"""FastGPU's functions that make groups of machines, or return those that exist."""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from slipstream.cluster.control.own_address import own_network
from slipstream.cluster.engines.ssh_host import SshHost
from slipstream.cluster.groups.group_session import GroupSession
from slipstream.cluster.groups.machine_group import MachineGroup
from slipstream.cluster.providers.boot import SHARED_FOLDER
from slipstream.cluster.providers.choice import cloud_provider
from slipstream.cluster.providers.protocol import ClusterRequest, Provider
from slipstream.errors import UsageError
from slipstream.fastgpu.fastgpu_globals import state
from slipstream.fastgpu.job import LOGS, FastGpuJob, FastGpuRun
from slipstream.fastgpu.task import FastGpuTask
from slipstream.settings import home_folder
from slipstream.settings.fastgpu import fastgpu_settings
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from typing_extensions import Unpack

INSTALL_SECONDS = 3600.0
SHORT_SECONDS = 5.0

_FOLDER = """\
set -e
sudo=; test "$(id -u)" = 0 || sudo="sudo -n"
if mountpoint -q {shared}; then $sudo ln -sfn {shared} /fastgpu
else $sudo mkdir -p /fastgpu; fi
test -w /fastgpu || $sudo chmod 1777 /fastgpu
mkdir -p {logs}
"""

_INSTALL = """\
set -e
done=~/.slipstream/installed-{digest}
test ! -e $done || exit 0
mkdir -p ~/.slipstream; cd
cat > .slipstream/install.sh
bash -e .slipstream/install.sh
touch $done
"""


class JobOptions(TypedDict, total=False):
    """The options of `make_job` beside the names and the number of machines; all have defaults.

    Args:
        instance_type: Provider's name of the type of machine; required for a new group.
        image_name: Name of the image (default: the newest Ubuntu).
        image_type: Text that the name of the image contains, such as "Ubuntu".
        install_script: Lines for bash that run once on each machine.
        spot: Whether machines may be taken away for a lower price (default False).
        disable_nas: Whether there is no network file system at /fastgpu (default False).
        zone_id: Name of the zone.
        vpc_name: Name of a virtual network that exists.
        system_disk_size: Size of the system disk in GiB (default 100).
        disk_size: ncluster's name for `system_disk_size`.
        data_disk_size: Size of a further disk in GiB (default 0, or ALIYUN_DATA_DISK_SIZE).
        skip_setup: Whether the install script is skipped (default False).
        confirm_cost: Whether nobody is asked for the cost (default False).
        deadline: Time after which the machines end themselves, such as "8h" (default "24h").
        open_to: Address that may use ssh, such as "203.0.113.7/32" (default: this computer's).
        create_resources: ncluster's option, which has no effect: what is missing is created.
        is_chief: ncluster's option, which has no effect.
    """

    instance_type: str
    image_name: str
    image_type: str
    install_script: str
    spot: bool
    disable_nas: bool
    zone_id: str
    vpc_name: str
    system_disk_size: int
    disk_size: int
    data_disk_size: int
    skip_setup: bool
    confirm_cost: bool
    deadline: str
    open_to: str
    create_resources: bool
    is_chief: bool


class ScriptView:
    """A view of a creation for scripts: lines on stderr."""

    def stage_begins(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Print a stage that usually takes long."""
        if expected_seconds is not None and expected_seconds > SHORT_SECONDS:
            self.note(f"{name}: usually {expected_seconds:.0f} s")

    def stage_ends(self, name: str, host: str, seconds: float) -> None:
        """Print how long a stage took."""
        self.note(f"{name}: {seconds:.1f} s")

    def note(self, text: str) -> None:
        """Print a remark."""
        print(text, file=sys.stderr, flush=True)


def set_backend(name: str) -> None:
    """Choose the provider of all groups that are made from now on: aliyun (the default) or aws."""
    state.backend = name


def get_region() -> str:
    """Return the region in which groups are made."""
    return cloud_provider(state.backend).region


def make_job(
    name: str = "", run_name: str = "", num_tasks: int = 1, **options: Unpack[JobOptions]
) -> FastGpuJob:
    """Create a group of machines, or return the one of this name.

    Args:
        name: Name of the group: lower-case letters, digits and hyphens.
        run_name: Name of the folder for logs (default "": the name).
        num_tasks: Number of machines (default 1).
        options: Options of the machines; see `JobOptions`.

    Raises:
        UsageError: an option is not known, or the group exists with other machines.
        QuotaError: the provider has no such machine left.
    """
    unknown = set(options) - set(JobOptions.__annotations__)
    if unknown:
        raise UsageError(
            f"make_job has no options {', '.join(sorted(unknown))}; it has:"
            f" {', '.join(JobOptions.__annotations__)}"
        )
    group = find_group_of(name, num_tasks, options)
    machines = group.up(ScriptView())
    group.on_all(lambda host: _set_up(host, options))
    tasks = [FastGpuTask(group, machine, run_name or group.name) for machine in machines]
    return FastGpuJob(group, tasks)


def make_task(name: str = "", run_name: str = "", **options: Unpack[JobOptions]) -> FastGpuTask:
    """Create one machine, or return the one of this name; see `make_job`."""
    return make_job(name, run_name, 1, **options).tasks[0]


def make_run(name: str) -> FastGpuRun:
    """Return a run, to which jobs can be added."""
    return FastGpuRun(name)


def find_group_of(name: str, num_tasks: int, options: Mapping[str, object]) -> MachineGroup:
    """Return the group of a job, after asking for the cost if it is new.

    Args:
        name: Name of the group.
        num_tasks: Number of machines.
        options: Options of `make_job`.

    Raises:
        UsageError: the cost was not confirmed.
    """
    from slipstream.cli.cluster.cost import confirm_cost

    provider = cloud_provider(state.backend)
    group = GroupSession(home_folder()).ask(provider, _request(provider, name, num_tasks, options))
    if not group.exists():
        estimate = group.estimate()
        group.keep_estimate(estimate)
        is_confirmed = options.get("confirm_cost") or fastgpu_settings().is_cost_confirmed
        if not is_confirmed and not confirm_cost(estimate):
            raise UsageError("the cost was not confirmed, so nothing was created")
    return group


def own_address() -> str:
    """Return the address that may use ssh: FASTGPU_OPEN_TO, or the one that the internet sees."""
    return fastgpu_settings().open_to or own_network()


def _request(
    provider: Provider, name: str, num_tasks: int, options: Mapping[str, object]
) -> ClusterRequest:
    from slipstream.cli.cluster.machines import checked_name

    def text(*names: str, default: str = "") -> str:
        return next((str(options[name]) for name in names if options.get(name)), default)

    if not text("instance_type"):
        raise UsageError("instance_type is missing; name a type, such as ecs.gn6i-c4g1.xlarge")
    disables_nas = bool(options.get("disable_nas", state.disable_nas))
    deadline = parse_duration(text("deadline", default="24h"), "deadline")
    data_disk = text("data_disk_size", default=str(fastgpu_settings().data_disk_gib))
    return ClusterRequest(
        name=checked_name(name),
        num_machines=num_tasks,
        instance_type=text("instance_type"),
        public_key="",
        open_to=(text("open_to") or own_address(),),
        deadline_at=time.time() + deadline,
        image=text("image_name") or _image_of_type(provider, text("image_type")),
        is_spot=bool(options.get("spot")),
        system_disk_gib=int(text("system_disk_size", "disk_size", default="100")),
        data_disk_gib=int(data_disk),
        zone=text("zone_id"),
        network=text("vpc_name"),
        shared_folder=not disables_nas,
        as_root=True,  # scripts for FastGPU use /root and install packages
    )


def _image_of_type(provider: Provider, image_type: str) -> str:
    """Return the newest image whose name contains the type, or "" for no type."""
    if not image_type:
        return ""
    found = provider.images(image_type.lower())
    if not found:
        raise UsageError(
            f"{provider.name} has no image of type {image_type!r} in {provider.region}; list them"
            " with: python -m slipstream.fastgpu queryimage"
        )
    return found[0][0]


def _set_up(host: SshHost, options: Mapping[str, object]) -> None:
    """Make /fastgpu, and run the install script once."""
    script = _FOLDER.format(shared=SHARED_FOLDER, logs=LOGS)
    host.run(script, what="making /fastgpu")
    install = str(options.get("install_script", ""))
    if install and not (options.get("skip_setup") or state.skip_setup):
        digest = hashlib.sha256(install.encode()).hexdigest()[:12]
        script = _INSTALL.format(digest=shlex.quote(digest))
        host.run(script, what="the install script", text=install, seconds=INSTALL_SECONDS)
