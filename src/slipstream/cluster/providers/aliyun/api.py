"""Calls of Alibaba Cloud's API: one way in, where calls are signed, counted and repeated.

The official SDK is 29 packages for what are a POST request and a signature here.
"""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from slipstream.cluster.outside import outside
from slipstream.cluster.providers.aliyun.errors import is_throttled, translated
from slipstream.cluster.providers.aliyun.signing import canonical_query, signed_headers
from slipstream.errors import ConfigError
from slipstream.settings import AliyunSettings

VERSIONS = {"ecs": "2014-05-26", "vpc": "2016-04-28", "nas": "2017-06-26"}
PAGE_SIZE = 50
_TIMEOUT_SECONDS = 60.0
# Pauses grow from 0.2 s, each with a random part: eight tries take 25 to 50 s.
_MAX_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.2


class AliyunApi:
    """The services of one region.

    Args:
        settings: Access key, region and endpoint.
    """

    def __init__(self, settings: AliyunSettings) -> None:
        self._settings = settings

    @property
    def region(self) -> str:
        """Name of the region."""
        return self._settings.region

    @property
    def settings(self) -> AliyunSettings:
        """Settings of the access."""
        return self._settings

    def call(self, service: str, action: str, **parameters: Any) -> Mapping[str, Any]:
        """Return the answer of one call, which is repeated with pauses if there are too many.

        Args:
            service: Name of the service: "ecs", "vpc" or "nas".
            action: Name of the action, such as "RunInstances".
            parameters: Parameters; lists and mappings in them become numbered and dotted names.

        Raises:
            BusyError: the call must be repeated later.
            GoneError: the resource does not exist.
            UsageError: the request can never be fulfilled.
            ConfigError: access key, clock, permissions or address are wrong.
            QuotaError: a quota is used up, or no such machine is left.
        """
        query = canonical_query(dict(_flat({"RegionId": self.region, **parameters})))
        with outside(f"{service}.{action}"):
            status, answer = self._patiently(service, action, query)
        if status < 400:
            return answer
        code, message = str(answer.get("Code", status)), str(answer.get("Message", ""))
        raise translated(f"{service}.{action}", code, message)

    def items(self, service: str, action: str, *path: str, **parameters: Any) -> list[Any]:
        """Return the items of all pages of a list.

        Args:
            service: Name of the service.
            action: Name of the action.
            path: Names of the fields that lead to the items.
            parameters: Parameters.
        """
        found: list[Any] = []
        page_number = 1
        while True:
            pages = {"PageNumber": page_number, "PageSize": PAGE_SIZE}
            page = self.call(service, action, **parameters, **pages)
            items: Any = page
            for name in path:
                items = items[name]
            found += items
            if not items or len(found) >= page["TotalCount"]:
                return found
            page_number += 1

    def _patiently(self, service: str, action: str, query: str) -> tuple[int, Mapping[str, Any]]:
        """Send a request, again with growing pauses while there are too many."""
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(_MAX_ATTEMPTS - 1):
            status, answer = self._post(service, action, query)
            if status < 400 or not is_throttled(str(answer.get("Code", ""))):
                return status, answer
            time.sleep(pause * (0.5 + random.random() / 2))
            pause *= 2
        return self._post(service, action, query)

    def _post(self, service: str, action: str, query: str) -> tuple[int, Mapping[str, Any]]:
        """Send one request; return its status and answer."""
        base = self._settings.endpoint or f"https://{service}.{self.region}.aliyuncs.com"
        host = urlsplit(base).netloc
        headers = signed_headers(self._settings, host, (action, VERSIONS[service]), query)
        request = urllib.request.Request(f"{base}/?{query}", b"", headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _error_answer(error.read())
        except (OSError, http.client.HTTPException) as error:
            raise ConfigError(
                f"{service}.{action}: {base} cannot be reached: {error}; check the network and"
                " ALIYUN_DEFAULT_REGION"
            ) from error


def _error_answer(body: bytes) -> Mapping[str, Any]:
    try:
        return json.loads(body)
    except ValueError:
        return {"Message": body[:200].decode(errors="replace")}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield parameters as Alibaba Cloud writes them, such as "Tag.1.Key" and "SystemDisk.Size"."""
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[str, Any]", value).items())
    elif isinstance(value, (list, tuple)):
        pairs = [(str(number), item) for number, item in enumerate(cast("list[Any]", value), 1)]
    elif value in ("", None):
        return
    else:
        yield name, str(value).lower() if isinstance(value, bool) else str(value)
        return
    for key, item in pairs:
        yield from _flat(item, f"{name}.{key}" if name else key)
