"""Who may ask: tokens, and addresses of this machine."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")

from slipstream.errors import ConfigError
from slipstream.serve.access import Tokens, field_of, is_loopback, read_tokens
from slipstream.serve.refusals import Reason, RequestRefusedError

FIRST, SECOND = "a" * 16, "b" * 17
WORDS = "a token is needed: Authorization: Bearer TOKEN"


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# ours\n\n  {FIRST}  \n#{'c' * 16}\n{SECOND}\n")
    return read_tokens(path)


def test_a_file_has_a_token_a_line_of_16_characters_or_more(tokens):
    assert tokens == Tokens((FIRST.encode(), SECOND.encode()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{'a' * 15}\n{SECOND}", "has a token of fewer than 16 characters$"),
        (f"{SECOND}\n{'a' * 15}", "has a token of fewer than 16 characters$"),
        ("\n# nothing\n", "has no token; write one per line, each of 16 characters or more$"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_tokens(tmp_path / "tokens")


def test_bytes_that_are_no_text_are_no_tokens(tmp_path):
    (tmp_path / "tokens").write_bytes(b"\xff" * 20)
    with pytest.raises(ConfigError, match="cannot be read as tokens"):
        read_tokens(tmp_path / "tokens")


@pytest.mark.parametrize("field", [f"Bearer {FIRST}", f"bearer {SECOND}", f"BEARER   {FIRST}  "])
def test_each_token_lets_in(tokens, field):
    tokens.check(field)


@pytest.mark.parametrize(
    "field",
    ["", FIRST, f"Basic {FIRST}", f"Bearer{FIRST}", f"Bearer {FIRST[:-1]}", f"Bearer {SECOND}b",
     "Bearer ", "Bearer \udcff", f"Bearer {FIRST} {SECOND}"],
)  # fmt: skip
def test_nothing_else_lets_in(tokens, field):
    with pytest.raises(RequestRefusedError, match=f"^{WORDS}$") as caught:
        tokens.check(field)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.UNAUTHENTICATED, None)


def test_without_tokens_everybody_may_ask():
    assert Tokens().allowed == ()
    Tokens().check("")


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.255.0.9", True), ("::1", True),
        ("128.0.0.1", False), ("0.0.0.0", False), ("::", False), ("localhost.example", False),
        ("", False),
    ],
)  # fmt: skip
def test_addresses_of_this_machine_are_known(host, is_local):
    assert is_loopback(host) is is_local


def test_a_field_of_a_header_is_the_first_of_its_name():
    fields = [(b"host", b"x"), (b"authorization", b"\xe9"), (b"authorization", b"b")]
    assert field_of(fields, b"authorization") == "é"
    assert field_of(fields, b"cookie") == ""
