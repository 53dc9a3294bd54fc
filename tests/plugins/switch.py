"""The network between the hosts of a test."""

import subprocess

from sshd import command

# What is started dies with the process (to be exact, the thread) that started it.
WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


class Switch:
    """A network namespace with a bridge, which lives as long as a process in it."""

    def __init__(self) -> None:
        line = ("unshare", "--net", "sh", "-c", "ip link add switch type bridge && echo && cat")
        self.process = subprocess.Popen(
            [*WITH_US, *line], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.read(1), "no namespace or no bridge"
        self.set("link set switch up")

    def set(self, *lines: str) -> None:
        """Run lines of `ip` at the switch."""
        configure(self.process.pid, *lines)

    def plug_in(self, name: str, pid: int, address: str) -> None:
        """Connect the network namespace of a process, and give it an address."""
        # A rebooted host has the same hardware address, which others may still remember.
        hardware = "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
        self.set(
            f"link add {name} type veth peer name eth0 address {hardware} netns {pid}",
            f"link set {name} master switch up",
        )
        configure(pid, f"address add {address}/24 dev eth0", "link set eth0 up")

    def unplug(self, name: str) -> None:
        """Take a host's interface away: sockets that still want to send would keep it for long."""
        self.set(f"link delete {name}")

    def close(self) -> None:
        """End the network."""
        self.process.kill()
        self.process.communicate()


def configure(pid: int, *lines: str) -> None:
    """Run lines of `ip` in the network namespace of a process."""
    command(f"nsenter --target {pid} --net ip -batch -", text="\n".join(lines) + "\n")
