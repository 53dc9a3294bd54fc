"""Runs those tests of PyTorch's own distributed suite that its standard input names.

The suite ships in PyTorch's wheel as `torch.testing._internal.distributed.distributed_test`. It
decides by the variable BACKEND which tests make sense; this server says "gloo" (or what
`--seen-as` says), and maps that name to the backend under test where groups are made. PyTorch
starts the ranks of each test as fresh interpreters, at several seconds each; here they are forked
from this process, which has imported torch and has started no thread.

    printf 'test_all_reduce_sum\n' | python suite_server.py --backend slipstream --world-size 3

`--list` prints the names of all tests, one a line. Otherwise each name that is read is answered
by one line of JSON: name, outcome (passed, failed or skipped), seconds, detail.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import os
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

OUTPUT_TAIL = 6000
RANK_TIMEOUT_SECONDS = 120


def main() -> None:
    """Read the command line, loads the suite and serve standard input until it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="slipstream")
    parser.add_argument("--seen-as", default="gloo", choices=["gloo", "mpi"])
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torch_suite_") as folder:
        set_environment(options.seen_as, options.world_size, Path(folder))
        suite = load_suite(options.seen_as, options.backend)
        if options.list:
            print("\n".join(unittest.defaultTestLoader.getTestCaseNames(suite)))
        else:
            serve(suite, Path(folder))


def set_environment(seen_as: str, world_size: int, folder: Path) -> None:
    """Set the variables that the suite reads at import; torch must not be imported yet."""
    os.environ.update(
        BACKEND=seen_as,
        WORLD_SIZE=str(world_size),
        # One test runs only with a file as the meeting place; no other reads this.
        INIT_METHOD=f"file://{folder}/shared_init_file",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(RANK_TIMEOUT_SECONDS),
        # Ranks share few cores, and a forked child cannot use its parent's OpenMP threads.
        OMP_NUM_THREADS="1",
        TMPDIR=str(folder),
    )
    tempfile.tempdir = str(folder)


def load_suite(seen_as: str, backend: str) -> type[unittest.TestCase]:
    """Import the suite and return its test case, whose ranks are forked and use `backend`."""
    import torch.multiprocessing
    from torch.testing._internal.distributed import distributed_test

    fork = torch.multiprocessing.get_context("fork")
    base: Any = distributed_test.TestDistBackend
    tests: Any = distributed_test.DistributedTest._DistTestBase

    class Suite(base, tests):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(fork.Process)

    if backend != seen_as:
        map_backend(seen_as, backend)
        # Lists of backends whose profiler ranges the suite looks at.
        distributed_test.PROFILING_SUPPORTED_BACKENDS.append(backend)
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(backend)
    Suite.setUpClass()
    return Suite


def map_backend(seen_as: str, backend: str) -> None:
    """Make groups of `backend` if `seen_as` is requested; their own name stays true."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    for name in ("init_process_group", "new_group"):
        wrapped = with_backend(getattr(distributed_c10d, name), {seen_as: backend})
        setattr(distributed_c10d, name, wrapped)
        setattr(dist, name, wrapped)


def with_backend(function: Callable[..., Any], names: dict[str, str]) -> Callable[..., Any]:
    """Return `function` with its argument `backend` replaced as `names` says."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        asked = bound.arguments.get("backend")
        if asked is not None:
            bound.arguments["backend"] = names.get(asked, asked)
        return function(*bound.args, **bound.kwargs)

    return wrapper


def serve(suite: type[unittest.TestCase], folder: Path) -> None:
    """Answer each name on standard input; the output of tests goes to a file, then to `detail`."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.set_inheritable(answers.fileno(), False)
    with (folder / "output").open("w+b", buffering=0) as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        for line in sys.stdin:
            name = line.strip()
            output.seek(0)
            output.truncate()
            answer = run_test(suite, name)
            if answer["outcome"] == "failed":
                answer["detail"] += tail(output)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def run_test(suite: type[unittest.TestCase], name: str) -> dict[str, Any]:
    """Run one test in forked ranks and return name, outcome, seconds and detail."""
    result = unittest.TestResult()
    started = time.monotonic()
    suite(name).run(result)
    seconds = round(time.monotonic() - started, 2)
    bad = result.failures + result.errors
    if bad:
        outcome, detail = "failed", bad[0][1]
    elif result.skipped:
        outcome, detail = "skipped", result.skipped[0][1]
    else:
        outcome, detail = "passed", ""
    return {"name": name, "outcome": outcome, "seconds": seconds, "detail": detail}


def tail(output: IO[bytes]) -> str:
    """Return the end of the output of the ranks with a heading, or nothing."""
    sys.stdout.flush()
    sys.stderr.flush()
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - OUTPUT_TAIL))
    text = output.read().decode("utf-8", "replace")
    return f"\n--- output of the ranks (end) ---\n{text}" if text else ""


if __name__ == "__main__":
    main()
