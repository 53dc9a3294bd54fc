"""Prices of AWS: on demand from its Price List API, spot from the history of EC2."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from slipstream.cluster.providers.aws.api import AwsApi
from slipstream.errors import SlipstreamError

SOURCE = "AWS's Price List and the present spot prices"
# An answer without prices costs more than a few tries for them.
_ATTEMPTS = 2


class AwsPrices:
    """The prices in one region, for Linux, in US dollars for one hour.

    Args:
        api: Clients of the region.
    """

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._price_list = AwsApi(api.region, max_attempts=_ATTEMPTS)

    def on_demand(self, instance_type: str = "") -> tuple[dict[str, float], str]:
        """Return the prices by type, and where they come from or why they are not known.

        Args:
            instance_type: Type whose price is asked for (default "": all types of the region).
        """
        values = {
            "regionCode": self._api.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            **({"instanceType": instance_type} if instance_type else {}),
        }
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in values.items()
        ]
        try:
            texts = self._price_list.items(
                "pricing", "GetProducts", "PriceList", ServiceCode="AmazonEC2", Filters=filters
            )
        except SlipstreamError as error:
            return {}, f"the prices are not known: {error}"
        return dict(map(_type_and_price, map(json.loads, texts))), SOURCE

    def spot(self, instance_types: Sequence[str]) -> dict[str, float]:
        """Return the lowest present price of each type over the zones of the region."""
        lowest: dict[str, float] = {}
        history = self._api.items(
            "ec2",
            "DescribeSpotPriceHistory",
            "SpotPriceHistory",
            InstanceTypes=list(instance_types),
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.now(timezone.utc),
        )
        for item in history:
            price, name = float(item["SpotPrice"]), item["InstanceType"]
            lowest[name] = min(price, lowest.get(name, price))
        return lowest


def _type_and_price(product: Mapping[str, Any]) -> tuple[str, float]:
    name = product["product"]["attributes"]["instanceType"]
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    return name, float(dimension["pricePerUnit"]["USD"])
