"""The two clouds as the tests of providers see them: a server each, and how to make it refuse."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aliyun_server import aliyun_environment, aliyun_server, steer
from fake_aws_prices import price_list
from moto_server import IMAGE, INSTANCE_TYPE, aws_environment, moto_server
from refusing_proxy import refusing_proxy

from slipstream.cluster.providers import ClusterRequest, Pace, cloud_provider
from slipstream.cluster.providers.cloud_provider import CloudProvider
from slipstream.cluster.records import ResourceLedger, Store

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me"
PACE = Pace(poll_seconds=0.02, settle_seconds=0.0, limit_seconds=30.0)
HOUR = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudSite:
    """One cloud.

    Args:
        name: Name of the provider.
        instance_type: Type of machine that it has.
        image: Image that it has; "" if it has the default.
        environment: Variables with which our client calls it.
        refuse: Function that makes the next calls of an action fail, so often, with a code.
        requests: Function that returns all that it was sent, as text.
        secret: Secret of the access key.
    """

    name: str
    instance_type: str
    image: str
    environment: dict[str, str]
    refuse: Callable[[str, str, int], None]
    requests: Callable[[], str]
    secret: str

    def provider(self, **options: Any) -> CloudProvider:
        return cloud_provider(self.name, pace=PACE, **options)

    def request(self, name: str, **changes: Any) -> ClusterRequest:
        request = ClusterRequest(
            name=name,
            num_machines=2,
            instance_type=self.instance_type,
            public_key=PUBLIC_KEY,
            open_to=("192.0.2.1/32",),
            deadline_at=time.time() + HOUR,
            image=self.image,
        )
        return replace(request, **changes)


@contextmanager
def aws_site() -> Iterator[CloudSite]:
    """Yield moto's server as AWS."""
    with price_list() as prices, moto_server() as url, refusing_proxy(url) as proxy:
        environment = {**aws_environment(proxy.url), "AWS_ENDPOINT_URL_PRICING": prices}
        yield CloudSite(
            name="aws",
            instance_type=INSTANCE_TYPE,
            image=IMAGE,
            environment=environment,
            refuse=proxy.refuse,
            requests=lambda: "\n".join(proxy.bodies),
            secret=environment["AWS_SECRET_ACCESS_KEY"],
        )


@contextmanager
def aliyun_site() -> Iterator[CloudSite]:
    """Yield the fake as Alibaba Cloud."""
    with aliyun_server() as url:
        environment = aliyun_environment(url)

        def refuse(action: str, code: str, times: int = 1) -> None:
            steer(url, "fault", action=action, code=code, times=times)

        yield CloudSite(
            name="aliyun",
            instance_type="ecs.gn6i-c4g1.xlarge",
            image="",
            environment=environment,
            refuse=refuse,
            requests=lambda: str(steer(url, "requests")),
            secret=environment["ALIYUN_ACCESS_KEY_SECRET"],
        )


@contextmanager
def environment_of(site: CloudSite) -> Iterator[None]:
    """Set the variables of a cloud in this process for the time of the block."""
    before = dict(os.environ)
    os.environ.update(site.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def open_ledger(home: Path) -> Iterator[ResourceLedger]:
    """Yield a ledger in a folder."""
    store = Store(home)
    try:
        yield ResourceLedger(store)
    finally:
        store.close()
