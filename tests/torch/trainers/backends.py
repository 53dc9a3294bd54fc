"""What the scripts of this folder share."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def same_on_both(run: Callable[[str], dict[str, Any]]) -> None:
    """Checks that gloo and Slipstream give the same bits, and that there is something to compare.

    Args:
        run: trains over the backend that it is given, and returns results by name. No group is
            left behind.
    """
    wanted = run("gloo")
    assert not dist.is_initialized()
    found = run("slipstream")
    assert wanted.keys() == found.keys()
    for name, result in wanted.items():
        print(f"comparing {name}")
        torch.testing.assert_close(found[name], result, rtol=0, atol=0)
