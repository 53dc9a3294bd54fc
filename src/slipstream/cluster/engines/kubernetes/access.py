"""The access to a Kubernetes cluster: from a kubeconfig, or from the service account of a pod."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from slipstream.cluster.outside import outside
from slipstream.errors import ConfigError
from slipstream.settings.engines import kubeconfig_path, kubernetes_service

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PLUGIN_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesAccess:
    """The access to one cluster.

    Args:
        server: URL of the API server.
        tls: Settings of TLS, or None (the default) for a server without it.
        token: Bearer token, or "" (the default).
    """

    server: str
    tls: ssl.SSLContext | None = None
    token: str = field(default="", repr=False)


def read_access(context: str) -> KubernetesAccess:
    """Return the access to a cluster.

    Args:
        context: Name of the context in the kubeconfig; "" for the current one, or, in a pod without
            a kubeconfig, for the cluster of the pod.

    Raises:
        ConfigError: there is no kubeconfig, or it lacks something.
    """
    path = kubeconfig_path()
    if not path.exists() and not context and kubernetes_service():
        tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
        token = (SERVICE_ACCOUNT / "token").read_text().strip()
        return KubernetesAccess(server=kubernetes_service(), tls=tls, token=token)
    try:
        config = cast("dict[str, Any]", yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except OSError as error:
        raise ConfigError(
            f"the kubeconfig {path} cannot be read: {error.strerror}; set KUBECONFIG"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the kubeconfig {path} is no YAML: {error}") from error
    name = context or str(config.get("current-context", ""))
    chosen = _named(config, "contexts", "context", name, path)
    cluster = _named(config, "clusters", "cluster", str(chosen.get("cluster")), path)
    user = _named(config, "users", "user", str(chosen.get("user")), path)
    server = str(cluster.get("server", ""))
    tls = _tls(cluster, user, path.parent) if server.startswith("https:") else None
    return KubernetesAccess(server=server.rstrip("/"), tls=tls, token=_token(user, path.parent))


def _named(
    config: Mapping[str, Any], table: str, kind: str, name: str, path: Path
) -> dict[str, Any]:
    entries: list[dict[str, Any]] = config.get(table) or []
    for entry in entries:
        if entry.get("name") == name:
            return entry.get(kind) or {}
    names = ", ".join(str(entry.get("name")) for entry in entries) or "none"
    raise ConfigError(f"the kubeconfig {path} has no {kind} {name!r}; it has: {names}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority or None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _content(user, "client-certificate", folder)
    if certificate:
        # OpenSSL reads a chain from files only.
        with tempfile.NamedTemporaryFile("w", prefix="slipstream-") as file:
            file.write(certificate + "\n" + _content(user, "client-key", folder))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(table: Mapping[str, Any], name: str, folder: Path) -> str:
    """Return the content of a file that a kubeconfig names or contains, or ""."""
    if data := table.get(f"{name}-data"):
        return base64.b64decode(str(data)).decode()
    return (folder / str(table[name])).read_text() if table.get(name) else ""


def _token(user: Mapping[str, Any], folder: Path) -> str:
    if user.get("token"):
        return str(user["token"])
    if user.get("tokenFile"):
        return (folder / str(user["tokenFile"])).read_text().strip()
    return _token_of_plugin(user["exec"]) if user.get("exec") else ""


def _token_of_plugin(plugin: Mapping[str, Any]) -> str:
    """Return the token that a credential plugin prints, as those of clouds do."""
    argv = [str(plugin["command"]), *(str(word) for word in plugin.get("args") or ())]
    variables = {entry["name"]: entry["value"] for entry in plugin.get("env") or ()}
    words = [f"{name}={value}" for name, value in variables.items()]
    with outside(f"kubernetes credentials by {argv[0]}"):
        try:
            done = subprocess.run(
                ["env", *words, *argv],
                capture_output=True,
                text=True,
                timeout=PLUGIN_SECONDS,
                check=True,
            )
            return str(json.loads(done.stdout)["status"]["token"])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            raise ConfigError(
                f"the credential plugin {argv[0]} of the kubeconfig gives no token: {error}"
            ) from error
