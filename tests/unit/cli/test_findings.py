"""What the doctor says about the host that the tests run on, and about settings that are wrong."""

import importlib.util
import os
import platform
import resource
from pathlib import Path

import numpy as np
import pytest

from slipstream.cli.findings import Finding, find_everything, software
from slipstream.cli.findings.host import engine_findings, host_findings
from slipstream.cli.findings.network import CONGESTION, network_findings


def found(name: str, environ: dict[str, str] | None = None, peer: str | None = None) -> Finding:
    """Return the finding of a name; the frameworks are looked for last, which takes a second."""
    groups = (
        host_findings,
        lambda: network_findings(environ or {}, peer),
        lambda: engine_findings(environ or {}),
        lambda: software.framework_findings(has_gpus=False),
    )
    return next(each for group in groups for each in group() if each.name == name)


def test_it_sees_the_python_and_the_cores_that_it_runs_on() -> None:
    assert found("Python").text.startswith(platform.python_version())
    assert f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores" in found("processor").text


def test_it_sees_installed_frameworks_without_importing_them() -> None:
    assert found("numpy").text == np.__version__
    assert found("mxnet").state == "absent"
    assert ", without CUDA, " in found("torch").text or ", CUDA " in found("torch").text


@pytest.mark.parametrize(("cuda", "state"), [(None, "wrong"), ("12.8", "ok")])
def test_torch_without_cuda_is_wrong_where_there_are_gpus(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, state: str
) -> None:
    monkeypatch.setattr(software, "cuda_of_torch", lambda: cuda)
    torch = software.framework_findings(has_gpus=True)[0]
    assert (torch.name, torch.state, bool(torch.remedy)) == ("torch", state, cuda is None)
    assert software.framework_findings(has_gpus=False)[0].state == "ok"


def test_it_sees_the_limits_of_a_process() -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found("limits").text.endswith(f" of locked memory, {files} open files")


def test_it_sees_frameworks_that_packages_of_other_names_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (found("tensorflow").state == "ok") == (
        importlib.util.find_spec("tensorflow") is not None
    )
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert found("mxnet").text == "of unknown version"
    about = tmp_path / "mxnet_mkl-1.9.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: mxnet-mkl\nVersion: 1.9.1\n")
    (about / "top_level.txt").write_text("mxnet\n")
    assert found("mxnet").text == "1.9.1"


def test_the_interface_is_the_one_of_the_route_to_the_peer() -> None:
    finding = found("interface", peer="127.0.0.1")
    assert finding.text.startswith("lo (127.0.0.1)")
    assert found("interface", peer="::1").text.startswith("lo (::1)")


def test_bbr_is_advised_against() -> None:
    bbr = found("congestion control", {"SLIPSTREAM_CONGESTION": "bbr"})
    assert "SLIPSTREAM_CONGESTION=cubic" in bbr.remedy
    cubic = found("congestion control", {"SLIPSTREAM_CONGESTION": "cubic"})
    assert (cubic.text, cubic.remedy) == ("cubic", "")
    assert found("congestion control").text == CONGESTION.read_text().strip()


@pytest.mark.parametrize(("interfaces", "state"), [("lo", "ok"), ("=no", "wrong"), ("^", "wrong")])
def test_settings_that_leave_no_interface_are_wrong(interfaces: str, state: str) -> None:
    finding = found("interface", {"SLIPSTREAM_IFACE": interfaces}, "127.0.0.1")
    assert finding.state == state


def test_the_reason_for_the_interface_is_shown() -> None:
    assert found("interface", peer="127.0.0.1").text.endswith("route to 127.0.0.1")
    finding = found("interface", {"SLIPSTREAM_IFACE": "=lo"})
    assert finding.text == "lo (127.0.0.1): SLIPSTREAM_IFACE==lo"


def test_a_peer_without_an_address_is_wrong() -> None:
    assert found("interface", peer="no-such-host.invalid").state == "wrong"


def test_a_setting_that_is_not_allowed_is_named() -> None:
    finding = found("settings", {"SLIPSTREAM_STREAMS": "many"})
    assert finding.state == "wrong"
    assert "SLIPSTREAM_STREAMS is 'many'" in finding.text


def test_whatever_is_wrong_has_a_remedy_or_says_what_is_allowed() -> None:
    findings = find_everything({"SLIPSTREAM_STREAMS": "many"}, None)
    names = [finding.name for finding in findings]
    assert len(set(names)) == len(names)
    assert {"Python", "interface", "settings", "torch"} <= set(names)
    for finding in findings:
        assert finding.state != "wrong" or finding.remedy or "allowed" in finding.text
