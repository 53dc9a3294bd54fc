"""HTML pages that show a forecast, or compare forecasts with measurements.

    from slipstream.forecast.report import forecast_page

    Path("report.html").write_text(forecast_page(result, {"model": "resnet50", "batch": 256}))

A page is one file that loads no other files, so a page can be read without a network. A page has
about a megabyte, most of which is Vega, the library that draws the charts.
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
