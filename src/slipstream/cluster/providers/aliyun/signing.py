"""Alibaba Cloud's request signature, version 3 (ACS3-HMAC-SHA256).

The method is described at alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-
signature; a test computes the signature of the example there. The secret stays on this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import quote

from slipstream.settings import AliyunSettings

_ALGORITHM = "ACS3-HMAC-SHA256"
_EMPTY_BODY = hashlib.sha256(b"").hexdigest()


def canonical_query(parameters: Mapping[str, str]) -> str:
    """Return parameters as the query of a URL, sorted and percent-encoded as RFC 3986 says."""
    pairs = sorted(parameters.items())
    return "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in pairs)


def signed_headers(
    settings: AliyunSettings, host: str, operation: tuple[str, str], query: str
) -> dict[str, str]:
    """Return the headers of a POST request with an empty body.

    Args:
        settings: Settings with the access key.
        host: Host, with its port if it is in the URL.
        operation: Action and version of the service, such as ("RunInstances", "2014-05-26").
        query: Query of the URL, from `canonical_query`.
    """
    headers = {
        "host": host,
        "x-acs-action": operation[0],
        "x-acs-content-sha256": _EMPTY_BODY,
        "x-acs-date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "x-acs-signature-nonce": secrets.token_hex(16),
        "x-acs-version": operation[1],
    }
    if settings.security_token:
        headers["x-acs-security-token"] = settings.security_token
    signature = signature_of(headers, query, settings.key_secret)
    credential = f"Credential={settings.key_id},SignedHeaders={';'.join(sorted(headers))}"
    return {**headers, "authorization": f"{_ALGORITHM} {credential},Signature={signature}"}


def signature_of(headers: Mapping[str, str], query: str, key_secret: str) -> str:
    """Return the signature of a POST request with an empty body.

    Args:
        headers: Headers that are signed, with lower-case names.
        query: Query of the URL, from `canonical_query`.
        key_secret: Secret of the access key.
    """
    names = sorted(headers)
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    request = "\n".join(("POST", "/", query, lines, ";".join(names), _EMPTY_BODY))
    text = f"{_ALGORITHM}\n{hashlib.sha256(request.encode()).hexdigest()}"
    return hmac.new(key_secret.encode(), text.encode(), hashlib.sha256).hexdigest()
