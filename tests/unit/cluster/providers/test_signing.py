"""Signatures of requests to Alibaba Cloud, compared with the example of its documentation."""

from __future__ import annotations

from slipstream.cluster.providers.aliyun.signing import (
    canonical_query,
    signature_of,
    signed_headers,
)
from slipstream.settings import AliyunSettings

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_signature_is_that_of_the_documentation() -> None:
    # alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature
    headers = {
        "host": "ecs.cn-shanghai.aliyuncs.com",
        "x-acs-action": "RunInstances",
        "x-acs-content-sha256": EMPTY,
        "x-acs-date": "2023-10-26T10:22:32Z",
        "x-acs-signature-nonce": "3156853299f313e23d1673dc12e1703d",
        "x-acs-version": "2014-05-26",
    }
    image = "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"
    query = canonical_query({"RegionId": "cn-shanghai", "ImageId": image})
    signature = signature_of(headers, query, "YourAccessKeySecret")
    assert signature == "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"


def test_a_query_is_sorted_and_encoded() -> None:
    assert canonical_query({"b": "a b*~/", "a": "ä"}) == "a=%C3%A4&b=a%20b%2A~%2F"


def test_headers_have_the_key_and_no_secret() -> None:
    settings = AliyunSettings(
        key_id="LTAI", key_secret="hidden", region="cn-hangzhou", security_token="temporary"
    )
    operation = ("RunInstances", "2014-05-26")
    headers = signed_headers(settings, "ecs.aliyuncs.com", operation, "a=b")
    assert "Credential=LTAI," in headers["authorization"]
    assert "x-acs-security-token" in headers["authorization"]
    assert "hidden" not in str(headers)
    assert "hidden" not in repr(settings)
    assert "temporary" not in repr(settings)
    nonce = "x-acs-signature-nonce"
    assert headers[nonce] != signed_headers(settings, "host", operation, "a=b")[nonce]
