"""Requests over HTTP, and their answers."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 20


class HttpStatusError(Exception):
    """An answer with another status than 200.

    Args:
        status: Status of the answer.
        text: Text of the answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


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
    with connected(url, seconds=seconds, tls=tls) as connection:
        connection.request(method, path_of(url), body or None, dict(headers))
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")


def download(
    url: str, headers: Mapping[str, str], *, seconds: float, tls: ssl.SSLContext | None = None
) -> Iterator[bytes]:
    """Send a GET; yield the body of the answer in chunks.

    Args:
        url: URL with the scheme http or https.
        headers: Headers of the request.
        seconds: Time limit in seconds for each step.
        tls: Settings of TLS for https (default None: those of this machine).

    Raises:
        OSError: the server cannot be reached, or the answer is not whole.
        HttpStatusError: the status of the answer is not 200.
    """
    with connected(url, seconds=seconds, tls=tls) as connection:
        connection.request("GET", path_of(url), headers=dict(headers))
        response = connection.getresponse()
        if response.status != 200:
            raise HttpStatusError(response.status, response.read().decode(errors="replace"))
        while chunk := response.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def connected(
    url: str, *, seconds: float, tls: ssl.SSLContext | None
) -> Generator[http.client.HTTPConnection]:
    """Return a connection to the server of a URL for a `with` block.

    Args:
        url: URL with the scheme http or https.
        seconds: Time limit in seconds for each step.
        tls: Settings of TLS for https; None for those of this machine.

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
    try:
        yield connection
    except http.client.HTTPException as error:
        raise ConnectionError(f"the answer is no HTTP: {error!r}") from error
    finally:
        connection.close()


def path_of(url: str) -> str:
    """Return the path of a URL with its query."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
