"""The notice that a cloud takes a spot machine away, which the machine asks its cloud for.

AWS gives it two minutes before and recommends to ask every five seconds, see
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html;
Alibaba Cloud gives it five minutes before, see
https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata. Both give a token first.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timezone

from slipstream.errors import PeerError

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 2.0
NOT_FOUND = 404  # there is no notice
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# The service has a link-local address; a proxy cannot reach it.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataService:
    """The service that tells a machine about itself.

    Args:
        url: URL of the service, without a path.
        header: Name of the header with the token.
        path: Path of the notice.
    """

    url: str
    header: str
    path: str


SERVICES = {
    "aws": MetadataService(
        url="http://169.254.169.254",
        header="X-aws-ec2-metadata-token",
        path="/latest/meta-data/spot/instance-action",
    ),
    "aliyun": MetadataService(
        url="http://100.100.100.200",
        header="X-aliyun-ecs-metadata-token",
        path="/latest/meta-data/instance/spot/termination-time",
    ),
}


def find_notice(service: MetadataService) -> float | None:
    """Return the time in seconds since 1970 at which this machine is taken away; None if it stays.

    Raises:
        PeerError: the service does not answer.
    """
    try:
        token = _ask(service, "/latest/api/token", "PUT", {f"{service.header}-ttl-seconds": "60"})
        text = _ask(service, service.path, "GET", {service.header: token})
    except urllib.error.HTTPError as error:
        if error.code == NOT_FOUND:
            return None
        raise PeerError(f"{error.url} answers {error.code}") from error
    except OSError as error:
        raise PeerError(f"{service.url} gives no answer: {error}") from error
    found = _TIME.search(text)
    if found is None:
        return None
    time = datetime.strptime(found.group(), "%Y-%m-%dT%H:%M:%SZ")
    return time.replace(tzinfo=timezone.utc).timestamp()


def _ask(service: MetadataService, path: str, method: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(service.url + path, method=method, headers=headers)
    with _OPENER.open(request, timeout=ANSWER_SECONDS) as answer:
        return answer.read().decode()
