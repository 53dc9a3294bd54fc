"""Print docs/settings.md."""

from slipstream.settings.page import settings_page

print(settings_page(), end="")
