"""The environment variables that name clusters of Kubernetes and Ray, under their tools' names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def kubeconfig_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the kubeconfig, the first one if there are several.

    Args:
        environ: Environment variables (default: this process's environment).
    """
    listed = environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(listed) if listed else Path.home() / ".kube" / "config"


def kubernetes_service(environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the API server for a process in a pod; "" outside of Kubernetes.

    Args:
        environ: Environment variables (default: this process's environment).
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:{environ.get('KUBERNETES_SERVICE_PORT', '443')}" if host else ""


def ray_address(environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the dashboard of the Ray cluster, or "".

    Args:
        environ: Environment variables (default: this process's environment).
    """
    return environ.get("RAY_API_SERVER_ADDRESS", "") or environ.get("RAY_ADDRESS", "")


def ray_token(environ: Mapping[str, str] = os.environ) -> str:
    """Return the token for the Ray cluster, or "" if there is none.

    Args:
        environ: Environment variables (default: this process's environment).
    """
    if token := environ.get("RAY_AUTH_TOKEN", ""):
        return token
    listed = environ.get("RAY_AUTH_TOKEN_PATH", "")
    path = Path(listed) if listed else Path.home() / ".ray" / "auth_token"
    return path.read_text().strip() if path.is_file() else ""
