"""What a forecast found, and how far forecasts were off, as pages for a browser.

    from slipstream.forecast.report import forecast_page

    Path("report.html").write_text(forecast_page(result, {"model": "resnet50", "batch": 256}))

A page is one file that loads nothing: no network is needed to read it. It has about a megabyte, of
which most is Vega, which draws the charts.
"""

from __future__ import annotations

from slipstream.errors import UnsupportedError

try:
    from slipstream.forecast.report.forecast import forecast_page as forecast_page
    from slipstream.forecast.report.validation import validation_page as validation_page
except ModuleNotFoundError as error:
    if (error.name or "").startswith("slipstream"):
        raise
    raise UnsupportedError(
        f"the report needs the package {error.name}; pip install 'slipstream[forecast]'"
    ) from error

__all__ = ["forecast_page", "validation_page"]
