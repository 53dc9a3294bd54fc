"""The script that a machine runs at its first boot: it arms the deadline and mounts storage.

A timer of systemd compares the clock with a file every minute and at each boot, so the deadline
holds without the client, over restarts, and can be set later by writing the file. The script has no
secret: everyone on the machine can read it.
"""

from __future__ import annotations

import math

DEADLINE_FILE = "/etc/slipstream-deadline"
SHARED_FOLDER = "/mnt/shared"
DATA_FOLDER = "/mnt/data"

_DEADLINE = """\
cat > /usr/local/sbin/slipstream-deadline <<'END'
#!/bin/sh
[ "$(date +%s)" -lt "$(cat {file})" ] || shutdown -P now
END
chmod 755 /usr/local/sbin/slipstream-deadline
cat > /etc/systemd/system/slipstream-deadline.service <<'END'
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/slipstream-deadline
END
cat > /etc/systemd/system/slipstream-deadline.timer <<'END'
[Timer]
OnBootSec=30
OnUnitActiveSec=60
[Install]
WantedBy=timers.target
END
systemctl daemon-reload
systemctl enable --now slipstream-deadline.timer
"""

# Machines may have fast local disks too, which are empty as well, so the size decides. The system
# disk has partitions.
_DATA_DISK = """\
disk=$(lsblk -bdpno NAME,SIZE,TYPE | while read -r name size type; do
  [ "$type" = disk ] && [ "$size" -eq BYTES ] && [ -z "$(lsblk -dno FSTYPE "$name")" ] \\
    && [ "$(lsblk -no NAME "$name" | wc -l)" -eq 1 ] && echo "$name" && break
done)
if [ -n "$disk" ]; then
  mkfs.ext4 -q "$disk" && mkdir -p FOLDER && mount "$disk" FOLDER && chmod 1777 FOLDER
  echo "$disk FOLDER ext4 defaults,nofail 0 2" >> /etc/fstab
fi
"""

_SHARED = """\
command -v mount.nfs4 \\
  || { apt-get update -q && apt-get install -qy nfs-common; } || yum install -qy nfs-utils
mkdir -p FOLDER
echo "SOURCE FOLDER nfs4 OPTIONS,_netdev,nofail 0 0" >> /etc/fstab
for attempt in $(seq 60); do mount FOLDER && break; sleep 5; done
chmod 1777 FOLDER
"""

# Images let root in with a command only that names their user.
_ROOT = """\
mkdir -p /root/.ssh && chmod 700 /root/.ssh
install -m 600 ~USER/.ssh/authorized_keys /root/.ssh/authorized_keys
"""

# Images for deep learning have a driver already; for others this takes some minutes.
_DRIVER = """\
command -v nvidia-smi || {
  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy ubuntu-drivers-common \\
    && ubuntu-drivers install --gpgpu && modprobe nvidia
}
"""


def boot_script(
    deadline_at: float,
    *,
    shared_source: str = "",
    nfs_options: str = "",
    data_disk_gib: int = 0,
    gpu_driver: bool = False,
    root_like: str = "",
) -> str:
    """Return the script of the first boot.

    Args:
        deadline_at: Time in seconds since 1970 at which the machine powers itself off.
        shared_source: Host and path of a network file system to mount at /mnt/shared, in the form
            "host:/" (default "": none).
        nfs_options: Mount options of it, with commas (default "").
        data_disk_gib: Size in GiB of an empty disk that is formatted and mounted at /mnt/data
            (default 0: none).
        gpu_driver: Whether NVIDIA's driver is installed if it is missing (default False).
        root_like: User of the image whose ssh keys root accepts too (default "": none).
    """
    lines = [
        "#!/bin/sh",
        f"echo {math.ceil(deadline_at)} > {DEADLINE_FILE}",
        _DEADLINE.format(file=DEADLINE_FILE),
    ]
    if root_like:
        lines.append(_ROOT.replace("USER", root_like))
    if data_disk_gib:
        disk = _DATA_DISK.replace("BYTES", str(data_disk_gib * 2**30))
        lines.append(disk.replace("FOLDER", DATA_FOLDER))
    if shared_source:
        shared = _SHARED.replace("FOLDER", SHARED_FOLDER).replace("SOURCE", shared_source)
        lines.append(shared.replace("OPTIONS", nfs_options or "defaults"))
    if gpu_driver:
        lines.append(_DRIVER)
    return "\n".join(lines)


def extension_command(deadline_at: float) -> str:
    """Return the shell command that sets a later deadline on a machine.

    Args:
        deadline_at: Time in seconds since 1970 at which the machine powers itself off.
    """
    return f"echo {math.ceil(deadline_at)} | sudo tee {DEADLINE_FILE} >/dev/null"
