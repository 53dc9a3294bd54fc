"""NO_COLOR, of which only a value that is not empty counts."""

import pytest

from slipstream.settings.terminal import has_styles


@pytest.mark.parametrize(
    ("environ", "expected"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)]
)
def test_text_is_styled_unless_the_user_wants_none(environ: dict[str, str], expected: bool) -> None:
    assert has_styles(environ) == expected
