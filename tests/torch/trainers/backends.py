"""What the scripts of this folder share."""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from slipstream.cluster.launch.agent import find_free_port_pair


def same_on_both(run: Callable[[str], dict[str, Any]]) -> None:
    """Check that gloo and Slipstream give the same bits, and that there are any results.

    Args:
        run: trains over the backend that it is given, and returns results by name. No group is
            left behind.
    """
    wanted = run("gloo")
    assert not dist.is_initialized()
    choose_another_store()
    found = run("slipstream")
    assert wanted.keys() == found.keys()
    for name, result in wanted.items():
        print(f"comparing {name}")
        torch.testing.assert_close(found[name], result, rtol=0, atol=0)


def choose_another_store() -> None:
    """Let later groups meet at another store, which rank 0 has.

    Trainers make groups of gloo beside ours. Where such a group finds in the store the addresses of
    an earlier one of the same name, it calls ports that nobody listens at.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False)
    if os.environ["RANK"] == "0":
        store.set("another port", str(find_free_port_pair()))
    os.environ["MASTER_PORT"] = store.get("another port").decode()
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
