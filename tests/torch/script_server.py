"""Runs scripts on several ranks, forked from this process, which has imported torch once.

    echo '2 scripts/ddp.py' | python script_server.py [MODULE...]

The modules are imported once as well. Each line of standard input is a number of ranks and a
script. It is answered by one line of JSON: script, outcome (passed or failed), seconds, detail (the
end of what the ranks printed). A script finds what torchrun would give it: RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT, and there a store that outlives its process groups.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import IO, Any

from slipstream.cluster.launch.ports import find_free_port_pair

OUTPUT_TAIL = 6000
TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.02


def main() -> None:
    """Import what the scripts need, and serve standard input until it ends."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch.distributed as dist
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.tensor.parallel  # noqa: F401

    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a rank that collects garbage would copy all memory that it shares with this one
    for line in sys.stdin:
        count, script = line.split(maxsplit=1)
        port = find_free_port_pair()
        print(json.dumps(run_script(int(count), script.strip(), port, dist.TCPStore)), flush=True)


def run_script(count: int, script: str, port: int, make_store: Any) -> dict[str, Any]:
    """Run a script on `count` ranks, with a store at the port, and return the answer."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        children = [start_rank(rank, count, port, script, output) for rank in range(count)]
        # Made after the fork: it has threads.
        store = make_store("127.0.0.1", port, is_master=True, wait_for_workers=False)
        statuses = wait_all(children, started + TIMEOUT_SECONDS)
        del store
        detail = tail(output)
    failed = {rank: status for rank, status in enumerate(statuses) if status != 0}
    return {
        "name": f"{Path(script).stem} on {count} ranks",
        "outcome": "failed" if failed else "passed",
        "seconds": round(time.monotonic() - started, 2),
        "detail": f"exit status by rank: {failed}\n{detail}" if failed else "",
    }


def start_rank(rank: int, count: int, port: int, script: str, output: IO[bytes]) -> int:
    """Fork one rank and return its process number."""
    child = os.fork()
    if child:
        return child
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(count),
        LOCAL_WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    status = 1
    try:
        sys.argv = [script]
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
        status = 0
    except BaseException:  # noqa: BLE001  the top of a process
        print(f"rank {rank}:\n{traceback.format_exc()}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_all(children: list[int], deadline: float) -> list[int | None]:
    """Return the exit status of each child, None for those killed at the deadline.

    A child that fails gives the others ten more seconds: they may hang for want of it.
    """
    statuses: dict[int, int] = {}
    while len(statuses) < len(children) and time.monotonic() < deadline:
        for child in children:
            if child in statuses:
                continue
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                statuses[child] = os.waitstatus_to_exitcode(status)
                if status:
                    deadline = min(deadline, time.monotonic() + 10)
        time.sleep(POLL_SECONDS)
    for child in children:
        if child not in statuses:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return [statuses.get(child) for child in children]


def tail(output: IO[bytes]) -> str:
    """Return the end of the output of the ranks."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - OUTPUT_TAIL))
    return output.read().decode("utf-8", "replace")


if __name__ == "__main__":
    main()
