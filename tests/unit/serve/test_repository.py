"""Models by name and version, and what a command line says of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.errors import UsageError
from slipstream.serve.refusals import Reason, RequestRefusedError
from slipstream.serve.repository import ModelSpec, parse_model_specs


def test_names_versions_and_shares_are_read():
    texts = ["dir/a.slip", "b-1.x=c.slip@12.5%", "a=d.bin@0%", "b-1.x=c.slip", "e"]
    assert parse_model_specs(texts) == [
        ModelSpec("a", "1", Path("dir/a.slip")),
        ModelSpec("b-1.x", "1", Path("c.slip"), 0.125),
        ModelSpec("a", "2", Path("d.bin"), 0.0),
        ModelSpec("b-1.x", "2", Path("c.slip")),
        ModelSpec("e", "1", Path("e")),
    ]


@pytest.mark.parametrize(
    "text", ["", "@10%", "a=", "a=@10%", "=x.slip", "a.slip@10", "a.slip@1.%", "a.slip@-1%"]
)
def test_what_cannot_be_read_is_said(text):
    with pytest.raises(UsageError, match=r"allowed: file\.slip, name=file\.slip@10%"):
        parse_model_specs([text])


def test_shares_of_a_name_are_all_of_its_requests_at_most():
    assert len(parse_model_specs(["a=x@50%", "a=y@50%", "b=x@100%"])) == 3
    words = "versions of 'a' have shares of 101% together; at most 100 %"
    with pytest.raises(UsageError, match=words):
        parse_model_specs(["a=x@50%", "a=y@51%", "b=x@100%"])


def loaded(models, *pairs):
    async def main():
        return [await models.load(*pair) for pair in pairs]

    return asyncio.run(main())


def chosen(models, count=4000):
    random.seed(5)
    return Counter(models.get("m").spec.version for _ in range(count))


def test_requests_without_a_version_go_by_shares(repository):
    models = repository("m=a@20%", "m=b", "m=c", "n=d")
    loaded(models, ("m", "1"), ("m", "2"), ("m", "3"), ("n", "1"))
    found = chosen(models)
    assert found["1"] == pytest.approx(800, abs=100)
    assert found["2"] == pytest.approx(1600, abs=130)
    assert sum(found.values()) == 4000


def test_a_share_of_nothing_gets_nothing_unless_nobody_has_more(repository):
    models = repository("m=a@0%", "m=b@0%", "m=c")
    loaded(models, ("m", "1"), ("m", "2"))
    assert chosen(models, 50) == {"2": 50}
    loaded(models, ("m", "3"))
    assert chosen(models, 50) == {"3": 50}


def test_the_only_version_that_is_ready_gets_all(repository):
    models = repository("m=a@1%", "m=b@99%")
    assert models.get("m") is None
    loaded(models, ("m", "1"))
    assert chosen(models, 50) == {"1": 50}
    assert models.get("m", "1").spec.path == Path("a")
    assert models.get("m", "2") is None
    assert models.versions("m") == ["1", "2"]


@pytest.mark.parametrize(
    ("asked", "reason", "words", "again"),
    [
        (("x" * 65, ""), Reason.UNKNOWN, f"there is no model {'x' * 64!r}; there are m, n", None),
        (("m", "v" * 65), Reason.UNKNOWN,
         f"the model 'm' has no version {'v' * 64!r}; it has 1, 2", None),
        (("m", "2"), Reason.UNAVAILABLE, "the model 'm' is not ready yet", 1.0),
        (("n", ""), Reason.UNAVAILABLE, "the model 'n' is not ready yet", 1.0),
    ],
)  # fmt: skip
def test_what_is_not_there_says_what_is(repository, asked, reason, words, again):
    models = repository("m=a", "m=b", "n=c")
    loaded(models, ("m", "1"))
    with pytest.raises(RequestRefusedError) as caught:
        models.find(*asked)
    error = caught.value
    assert (error.reason, str(error), error.retry_after) == (reason, words, again)


def test_it_is_ready_once_all_versions_are(repository):
    models = repository("m=a", "m=b")
    loaded(models, ("m", "1"))
    assert not models.is_ready
    loaded(models, ("m", "2"))
    assert models.is_ready
    assert models.find("m", "2").spec.version == "2"


def test_a_new_file_takes_over_and_the_old_one_is_let_go(repository, sums):
    async def main():
        models = repository("m=a.slip")
        old = await models.load("m", "1")
        with old.used():
            new = await models.load("m", "1")
            assert models.find("m") is new is not old
            await asyncio.sleep(0)
            assert sums.unloaded == []
        await models.close()
        assert sums.loaded == [("m/1/1", Path("a.slip")), ("m/1/2", Path("a.slip"))]
        assert sums.unloaded == ["m/1/1", "m/1/2"]
        assert sums.is_closed
        assert models.get("m") is None

    asyncio.run(main())


def test_a_request_has_as_many_rows_as_was_said(repository):
    (served,) = loaded(repository("m=a.slip"), ("m", "1"))
    assert served.signature.check({"x": np.zeros((4, 2), np.float32)}).rows == 4
    with pytest.raises(RequestRefusedError, match="with 1 to 4 rows"):
        served.signature.check({"x": np.zeros((5, 2), np.float32)})
