"""One request over HTTP, and its answer."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit


def exchange(
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, str]:
    """Send a request; return the status and the text of the answer.

    Args:
        method: Method, such as "GET".
        url: URL with the scheme http or https.
        body: Body of the request, perhaps empty.
        headers: Headers of the request.
        seconds: Time limit in seconds for each step.
        tls: Settings of TLS for https (default None: those of this machine).

    Raises:
        OSError: the server cannot be reached, or its answer is no HTTP.
    """
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=seconds, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        connection.request(method, path, body or None, dict(headers))
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except http.client.HTTPException as error:
        raise ConnectionError(f"the answer is no HTTP: {error!r}") from error
    finally:
        connection.close()
