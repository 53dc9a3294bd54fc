"""Wrong usage of `slipstream serve` and of `serve.run` is said in a line."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli import usage_error

pytest.importorskip("starlette")

from slipstream import serve
from slipstream.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "other machines reach 0.0.0.0: add --token-file"),
        (["--tls-cert", "cert.pem"], "one of --tls-cert and --tls-key is missing"),
        (["--token-file", "none"], "none cannot be read as tokens"),
        (["--token-file", "short"], "has a token of fewer than 16 characters"),
        (["--token-file", "empty"], "has no token"),
        (["--access-log", "/dev/null/log"], "/dev/null/log cannot be written: /dev/null is no"),
        (["--host", "192.0.2.1", "--everybody"], "cannot be listened on"),
        (["a=other.slip@120%"], "have shares of 120% together"),
        (["@"], "the model is '@'; allowed: file.slip"),
        (["--replicas", "0"], "--replicas is '0'; allowed: a number from 1, or MIN:MAX"),
        (["--replicas", "3:1"], "--replicas is '3:1'; allowed: a number from 1, or MIN:MAX"),
        (["--replicas", "0:1", "--target-latency", "9"], "the latency is '9'; allowed: a number"),
        (["--replicas", "0:1", "--idle", "0s"], "idle_seconds 0.0"),
        (["-H", "a,a"], "-H is 'a,a'; allowed: different hosts"),
        (["-H", "a:2"], "-H is 'a:2'; allowed: different hosts"),
    ],
)
def test_wrong_usage_is_said_in_a_line(
    packages: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "empty").write_text("\n# nothing\n")
    monkeypatch.chdir(tmp_path)
    ports = ("--port", "0", "--grpc-port", "-1")
    assert words in usage_error("serve", str(packages["double"]), *ports, *arguments)


@pytest.mark.parametrize(
    ("option", "other"), [("--port", "--grpc-port"), ("--grpc-port", "--port")]
)
def test_a_port_that_is_taken_is_named(packages: dict[str, Path], option: str, other: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = usage_error("serve", str(packages["double"]), option, port, other, "0")
    assert f"127.0.0.1:{port} cannot be listened on: Address already in use" in said


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [((), {}, "no model is named"), (("a.slip",), {"ports": 1}, "no option 'ports'; options are")],
)
def test_options_from_python_are_checked(
    models: tuple[str, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        serve.run(*models, **options)


@pytest.mark.multiprocess
def test_what_is_no_package_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.slip").write_bytes(b"bad")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("slipstream")), "serve", "bad.slip", "--port", "0"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "bad.slip" in done.stderr
    assert "Traceback" not in done.stderr
