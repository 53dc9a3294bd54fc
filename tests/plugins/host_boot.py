"""The root file system of a test's host, and the script that boots the host into it.

The script is process 1 of new namespaces (mounts, processes, host name, network, shared memory). It
makes a root of its own, in which the machine's programs are readable and all else belongs to the
host. When process 1 is killed, the kernel kills all processes of the host and forgets its mounts.
"""

import os
import shlex
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
USER, UID = "trainer", 30000
HOME = f"/home/{USER}"
PRIVATE = ("etc", "home", "opt", "root", "run", "srv", "tmp", "var")
BASH = "/bin/bash"


@dataclass(frozen=True, kw_only=True)
class Disk:
    """What a host keeps while it is off, and what it shares.

    Attributes:
        folder: Folder that holds the host's own folders.
        home_bytes: Size of a file system in memory at /home, which a test can fill and which
            loses its content at a boot; without it, /home is a folder on the machine's disk.
        shared: Folders of the machine that the host mounts, by their path in the host.
    """

    folder: Path
    home_bytes: int | None = None
    shared: Mapping[str, Path] = field(default_factory=dict[str, Path])

    def at(self, path: str | Path) -> Path:
        """Return where the machine sees a path of the host, outside of shared folders."""
        relative = Path(path).relative_to("/")
        assert relative.parts[0] in PRIVATE, f"{path} is the same on all hosts"
        return self.folder / relative

    def install(self) -> None:
        """Make the folders of a new host with a user, who has no rights but in the home."""
        for name in PRIVATE[1:]:
            (self.folder / name).mkdir(parents=True)
        shutil.copytree("/etc", self.folder / "etc", symlinks=True)
        for path in (Path("tmp"), Path("var/tmp"), Path("var/log"), Path("var/cache")):
            (self.folder / path).mkdir(exist_ok=True)
        for path in ("tmp", "var/tmp"):
            (self.folder / path).chmod(0o1777)
        (self.folder / "var/run").symlink_to("/run")
        Path(self.folder / "root").chmod(0o755)  # a Python that users call may lie in it
        add_line(self.at("/etc/passwd"), f"{USER}:x:{UID}:{UID}::{HOME}:{BASH}")
        add_line(self.at("/etc/shadow"), f"{USER}:*:20000:0:99999:7:::")
        add_line(self.at("/etc/group"), f"{USER}:x:{UID}:")
        self.make_home()

    def make_home(self) -> None:
        """Make the user's home with a cache."""
        for path in (HOME, f"{HOME}/.ssh", f"{HOME}/.cache"):
            self.at(path).mkdir(exist_ok=True)
            os.chown(self.at(path), UID, UID)
        self.at(f"{HOME}/.ssh").chmod(0o700)


def add_line(path: Path, line: str) -> None:
    """Add a line to a file of /etc."""
    with path.open("a") as file:
        file.write(f"{line}\n")


def readable_paths() -> list[Path]:
    """Return what of the machine a host reads besides /usr: the repository and its Python."""
    paths = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve()}
    outside = [path for path in paths if not path.is_relative_to("/usr")]
    return sorted(path for path in outside if not any(other in path.parents for other in outside))


def boot_script(disk: Disk, name: str, services: Iterable[str]) -> str:
    """Return the script of process 1, which starts the command lines of services."""
    return "\n".join(
        (
            "set -e",
            *mount_lines(disk),
            f"hostname {name}",
            "ip link set lo up",
            "mkdir -p /run/sshd",
            *(service_line(service) for service in services),
            "touch /run/booted",
            "sleep infinity &",  # the host lives on without its sshd
            "wait",
        )
    )


def service_line(service: str) -> str:
    """Return the line of a shell that starts a service in the background."""
    return f"setsid {service} < /dev/null >> /var/log/services 2>&1 &"


def mount_lines(disk: Disk) -> Iterator[str]:
    """Yield the commands that make the root file system and move into it."""
    root = shlex.quote(str(disk.folder / "rootfs"))
    yield "mount --make-rprivate /"
    yield f"mkdir -p {root} && mount -t tmpfs -o mode=755,size=1m root {root}"
    yield f"cd {root} && mkdir old proc sys dev mnt media"
    for path in sorted(Path("/").iterdir()):
        if path.is_symlink() and path.name.startswith(("bin", "lib", "sbin")):
            yield f"ln -s {path.readlink()} {path.name}"
        elif path.name.startswith(("bin", "lib", "sbin", "usr")):
            yield from bound(path, path.name, "ro")
    for name in PRIVATE:
        yield from bound(disk.folder / name, name)
    if disk.home_bytes is not None:
        yield f"mount -t tmpfs -o mode=755,size={disk.home_bytes} home home"
        yield f"cp -a {shlex.quote(str(disk.folder))}/home/. home/"
    for path in readable_paths():
        yield from bound(path, str(path.relative_to("/")), "ro")
    for inside, folder in disk.shared.items():
        yield from bound(folder, inside.lstrip("/"))
    yield from device_lines(disk)
    yield "pivot_root . old && cd / && umount -l /old && rmdir /old"


def bound(outside: Path, inside: str, mode: str = "rw") -> Iterator[str]:
    """Yield the commands that show a file or folder of the machine at a path of the new root."""
    source, target = shlex.quote(str(outside)), shlex.quote(inside)
    if outside.is_dir():
        yield f"mkdir -p {target}"
    else:
        yield f"mkdir -p $(dirname {target}) && touch {target}"
    yield f"mount --bind {source} {target}"
    if mode == "ro":
        yield f"mount -o remount,bind,ro {target}"


def device_lines(disk: Disk) -> Iterator[str]:
    """Yield the commands that mount what the kernel shows, with shared memory of the host's own."""
    boot_id = disk.folder / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    yield "mount -t proc proc proc"
    yield f"mount --bind {shlex.quote(str(boot_id))} proc/sys/kernel/random/boot_id"
    yield "mount -t sysfs sysfs sys"
    yield "if [ -d sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup sys/fs/cgroup; fi"
    yield "mount --rbind /dev dev"
    yield "mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts dev/pts"
    yield "mount -t tmpfs -o mode=1777 shm dev/shm"
