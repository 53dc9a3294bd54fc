"""A server that speaks AWS's protocol: moto's, from the environment that `make test` installs.

It boots no machine. It ignores ClientToken, has no prices, and its deletions take no time.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_until

from slipstream.cluster.launch.ports import find_free_port_pair

SERVER = Path(sys.prefix) / "s3" / "bin" / "moto_server"
# A type and an image that moto has.
INSTANCE_TYPE = "g4dn.xlarge"
IMAGE = "ami-785db401"


@contextmanager
def moto_server() -> Iterator[str]:
    """Start a server; yield its address."""
    port = find_free_port_pair()
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([SERVER, "-p", str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: _answers(url))
            yield url
        finally:
            server.kill()


def aws_environment(url: str) -> dict[str, str]:
    """Return the variables with which boto3 calls a server instead of AWS."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIexample",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
