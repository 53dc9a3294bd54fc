"""The boot script really runs, in a mount namespace whose system folders are empty."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from slipstream.cluster.providers.boot import DEADLINE_FILE, boot_script, extension_command

# Folders of a host that the script writes to, and programs that it calls.
FOLDERS = ("/usr/local/sbin", "/etc", "/mnt", "/root")
LOGGED = ("shutdown", "systemctl", "mount", "mkfs.ext4", "ubuntu-drivers", "modprobe")
STUB = '#!/bin/sh\necho "$(basename "$0") $*" >> {log}\n'


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


class Host:
    """A host that logs what changes its power and its services."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        (folder / "bin").mkdir()
        for name in LOGGED:
            self.program(name, STUB.format(log=self.log))
        self.program("sudo", '#!/bin/sh\nexec "$@"\n')
        for name in ("mount.nfs4", "apt-get", "yum"):
            self.program(name, "#!/bin/sh\n")
        for path in FOLDERS:
            (folder / "root" / path[1:]).mkdir(parents=True)
        (folder / "root/etc/systemd/system").mkdir(parents=True)

    def program(self, name: str, text: str) -> None:
        """Put a program in the place of the system's."""
        program = self.folder / "bin" / name
        program.write_text(text)
        program.chmod(0o755)

    def run(self, script: str) -> None:
        """Run a script with folders of its own in the place of the system's."""
        binds = [f"mount --bind {self.folder}/root{path} {path}" for path in FOLDERS]
        path = self.folder / "script"
        path.write_text(script)
        shell = f"PATH={self.folder}/bin:$PATH sh {path}"
        subprocess.run(
            ["unshare", "--mount", "sh", "-ec", "; ".join([*binds, shell])], check=True, timeout=60
        )

    def logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@pytest.mark.root
def test_the_timer_is_armed_and_ends_the_machine_at_the_deadline(host: Host) -> None:
    host.run(boot_script(time.time() + 3600.0))
    assert "systemctl enable --now slipstream-deadline.timer" in host.logged()
    timer = host.folder / "root/etc/systemd/system/slipstream-deadline.timer"
    assert "OnUnitActiveSec=60" in timer.read_text()
    host.run("/usr/local/sbin/slipstream-deadline")
    assert "shutdown" not in host.logged()
    host.run(f"echo {int(time.time())} > {DEADLINE_FILE}; /usr/local/sbin/slipstream-deadline")
    assert "shutdown -P now" in host.logged()


@pytest.mark.root
def test_a_deadline_is_extended_by_one_command(host: Host) -> None:
    host.run(boot_script(time.time() - 1.0))
    host.run(extension_command(time.time() + 3600.0))
    host.run("/usr/local/sbin/slipstream-deadline")
    assert "shutdown" not in host.logged()


@pytest.mark.root
def test_a_shared_folder_is_mounted(host: Host) -> None:
    host.run(boot_script(time.time() + 60.0, shared_source="10.0.0.9:/", nfs_options="hard"))
    table = (host.folder / "root/etc/fstab").read_text()
    assert table == "10.0.0.9:/ /mnt/shared nfs4 hard,_netdev,nofail 0 0\n"
    assert "mount /mnt/shared" in host.logged()


@pytest.mark.root
def test_root_is_let_in_with_the_keys_of_the_user(host: Host) -> None:
    root = host.folder / "root"
    (root / "etc/passwd").write_text("ubuntu:x:1000:1000::/mnt/ubuntu:/bin/sh\n")
    (root / "mnt/ubuntu/.ssh").mkdir(parents=True)
    (root / "mnt/ubuntu/.ssh/authorized_keys").write_text("ssh-ed25519 AAAA me\n")
    (root / "root/.ssh").mkdir()
    (root / "root/.ssh/authorized_keys").write_text('command="echo log in as ubuntu" ssh-ed25519\n')
    host.run(boot_script(time.time() + 60.0, root_like="ubuntu"))
    keys = root / "root/.ssh/authorized_keys"
    assert keys.read_text() == "ssh-ed25519 AAAA me\n"
    assert keys.stat().st_mode & 0o777 == 0o600


# A system disk with a partition, an empty local disk of another size, and the data disk.
DISKS = """#!/bin/sh
case "$*" in
  "-bdpno NAME,SIZE,TYPE")
    echo "/dev/a 107374182400 disk"; echo "/dev/b 1000 disk"; echo "/dev/c 107374182400 disk" ;;
  "-no NAME /dev/a") echo a; echo a1 ;;
  "-no NAME "*) echo disk ;;
esac
"""


@pytest.mark.root
def test_the_data_disk_is_found_by_its_size_and_mounted(host: Host) -> None:
    host.program("lsblk", DISKS)
    host.run(boot_script(time.time() + 60.0, data_disk_gib=100))
    table = (host.folder / "root/etc/fstab").read_text()
    assert table == "/dev/c /mnt/data ext4 defaults,nofail 0 2\n"
    assert "mkfs.ext4 -q /dev/c\nmount /dev/c /mnt/data\n" in host.logged()


@pytest.mark.root
def test_a_driver_is_installed_if_none_is_there(host: Host) -> None:
    host.run(boot_script(time.time() + 60.0, gpu_driver=True))
    assert "ubuntu-drivers install --gpgpu" in host.logged()
    assert "modprobe nvidia" in host.logged()


def test_every_form_is_a_shell_script() -> None:
    script = boot_script(1.0, shared_source="host:/", data_disk_gib=100, gpu_driver=True)
    done = subprocess.run(["sh", "-n"], input=script, text=True, check=False, timeout=60)
    assert done.returncode == 0
