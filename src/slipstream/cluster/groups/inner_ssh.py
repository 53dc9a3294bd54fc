"""The set-up of a machine of a group: its tools, and ssh between the machines of the group.

Programs such as mpirun start themselves on the other machines, so these accept a key that was made
for the group. It is no key of the user.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from slipstream.cluster.engines.ssh_host import SshHost

INSTALL_SECONDS = 600.0

_SCRIPT = """\
set -e
umask 077
missing=
for tool in tmux rsync; do command -v $tool > /dev/null || missing="$missing $tool"; done
if test -n "$missing"; then
  sudo=; test "$(id -u)" = 0 || sudo="sudo -n"
  if command -v apt-get > /dev/null; then
    $sudo apt-get update -q; $sudo apt-get install -qy $missing
  else
    $sudo yum install -qy $missing
  fi
fi
mkdir -p ~/.ssh; cd ~/.ssh
touch config authorized_keys
cat > slipstream_key.new; mv slipstream_key.new slipstream_key
grep -qxF {public} authorized_keys || echo {public} >> authorized_keys
cat > slipstream.config <<'END'
Host {addresses}
  IdentityFile ~/.ssh/slipstream_key
  StrictHostKeyChecking accept-new
  LogLevel ERROR
END
if ! grep -qxF 'Include slipstream.config' config; then
  {{ echo 'Include slipstream.config'; cat config; }} > config.new
  mv config.new config
fi
"""


def set_up_machine(host: SshHost, addresses: Sequence[str], keys: tuple[str, str]) -> None:
    """Install tmux and rsync if they are missing, and let the machines of a group reach this one.

    Args:
        host: Machine.
        addresses: Addresses of all machines of the group among themselves.
        keys: Private and public key of the group.

    Raises:
        CommandFailedError: a tool cannot be installed.
    """
    private, public = keys
    script = _SCRIPT.format(
        public=shlex.quote(f"{public.strip()} slipstream"), addresses=" ".join(addresses)
    )
    host.run(script, what="setting up the machine", text=private, seconds=INSTALL_SECONDS)
