"""What a refusal means, and that its text gives nothing away."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from astrion_nb.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelBroken,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnreachable,
    RoleFileError,
    RunFailed,
)
from astrion_nb.llm.faults import from_status, in_stream, retry_after, scrub
from astrion_nb.printable import clean


def error(message: str, code: Any = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, error("Incorrect API key", "invalid_api_key"), ModelRefused),
        (402, error("Insufficient Balance"), ModelRefused),
        (403, "Forbidden", ModelRefused),
        (404, error("The model `x` does not exist", "model_not_found"), ModelRefused),
        (400, error("Unsupported parameter"), ModelRefused),
        (422, {"detail": "bad field"}, ModelRefused),
        (301, "", ModelRefused),
        (429, error("Rate limit reached", "rate_limit_exceeded"), ModelBusy),
        (429, error("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), ModelRefused),
        (408, "", ModelUnreachable),
        (504, "<html>Gateway Time-out</html>", ModelUnreachable),
        (500, error("server had an error"), ModelBroken),
        (502, "<html>Bad gateway</html>", ModelBroken),
        (503, error("overloaded"), ModelBroken),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ModelBroken),
        (400, error("The response was filtered", "content_filter"), ContentFiltered),
        (400, error("triggering Azure OpenAI's content management policy"), ContentFiltered),
    ],
)
def test_every_status_has_its_error(status: int, body: Any, expected: type[ModelError]) -> None:
    found = from_status(status, body, where="http://h/v1")
    assert type(found) is expected
    assert found.status == status
    assert "http://h/v1" in str(found)
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    "body",
    [
        error("This model's maximum context length is 8192 tokens. However, …", "context_length_exceeded"),
        error("Input is too long for requested model."),
        error("prompt is too long: 210000 tokens > 200000 maximum"),
        error("the request exceeds the available context size, try increasing it", 400, "exceed_context_size_error"),
        error("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        error("This endpoint's maximum context length is 32768 tokens."),
        {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400},
        "Please reduce the length of the messages or completion.",
    ],
)
def test_a_prompt_that_is_too_long_is_known_in_every_wording(body: Any) -> None:
    assert type(from_status(400, body)) is ContextOverflow


def test_a_busy_endpoint_passes_on_its_wait() -> None:
    assert from_status(429, "", {"retry-after": "2"}).retry_after == 2
    assert from_status(503, "", {"retry-after": "1.5"}).retry_after == 1.5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": formatdate(1_000_030, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(999_000, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_the_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after({"date": formatdate(1_000_000, usegmt=True), **headers}) == seconds


def test_a_date_counts_from_the_endpoints_own_clock() -> None:
    headers = {"date": formatdate(5_000, usegmt=True), "retry-after": formatdate(5_007, usegmt=True)}
    assert retry_after(headers) == 7.0
    del headers["date"]
    assert retry_after(headers) == 0.0, "without that clock ours counts, which is later by years"


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_value_of_the_header_is_a_wait_or_none(value: str) -> None:
    wait = retry_after({"date": formatdate(0, usegmt=True), "retry-after": value})
    assert wait is None or wait >= 0


def test_an_error_inside_a_stream_is_told_from_a_chunk() -> None:
    assert in_stream({"choices": [], "error": None}) is None
    assert type(in_stream(error("overloaded", 503))) is ModelBroken
    assert type(in_stream(error("slow down", "rate_limit_exceeded"))) is ModelBusy
    assert type(in_stream(error("x", "context_length_exceeded"))) is ContextOverflow
    assert type(in_stream({"error": "something"})) is ModelBroken
    assert type(in_stream({"object": "error", "message": "bad", "code": 400})) is ModelRefused


CANARY = "sk-canary-0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {CANARY}.",
        f"Incorrect API key provided: {CANARY[:8]}*********{CANARY[-4:]}.",
        f"headers: {{'Authorization': 'Bearer {CANARY}', 'x': 1}}",
        f"authorization: Bearer {CANARY}\r\nhost: h",
        f"x-api-key: {CANARY}",
        f"cannot reach https://user:{CANARY}@host/v1",
        f"cannot reach https://{CANARY}@host/v1",
    ],
)
def test_no_credential_survives_in_an_error_text(text: str) -> None:
    for found in (scrub(text, [CANARY]), scrub(text), str(from_status(401, error(text), secrets=[CANARY]))):
        assert CANARY not in found
        assert "0123456789" not in found
        assert CANARY[-4:] not in found


@given(st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=8, max_size=60))
@settings(max_examples=200, deadline=None)
def test_a_known_key_never_appears_whatever_it_looks_like(key: str) -> None:
    assume(key not in "[hidden]")
    assert key not in scrub(f"refused for {key} at https://u:{key}@h/ with Bearer {key}", [key])


def test_half_a_surrogate_pair_in_an_explanation_is_replaced_and_a_whole_one_kept() -> None:
    assert scrub("bad \ud800 thing \ud83d\ude00") == "bad \ufffd thing \U0001f600"


@given(st.text(st.characters(codec=None)))
def test_every_error_of_ours_says_what_utf8_can_hold(said: str) -> None:
    for error in (ModelRefused(said), RoleFileError(said, file="a.md"), RunFailed(said)):
        whole = said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert clean(whole) in clean(str(error)), "what cannot be shown is replaced, the rest is there"
        "".join((str(error), repr(error), *error._render_traceback_())).encode()


def test_a_long_explanation_is_cut() -> None:
    assert len(scrub("x " * 5000)) <= 400


@pytest.mark.parametrize(
    "word", ["y", "<", "bearer ", "://a", "authorization: ", " \n", "insufficient", "sk-", "<script "]
)
@pytest.mark.parametrize("status", [400, 429])
def test_an_explanation_of_megabytes_takes_no_time_whatever_it_repeats(word: str, status: int) -> None:
    said = word * (4_000_000 // len(word))
    began = time.process_time()
    error = from_status(status, {"error": {"message": said, "code": said}}, secrets=["hidden-value"])
    in_stream({"error": {"message": said, "code": said}})
    assert time.process_time() - began < 1.0
    assert len(str(error)) < 600


def test_a_key_that_stands_where_a_long_explanation_is_cut_is_not_shown_in_part() -> None:
    for before in range(19_970, 20_001):
        assert "sw0rd" not in str(from_status(400, {"error": {"message": " " * before + "https://me:pa5sw0rd@host"}}))
        said = "x" + " " * before + "known-secret-sw0rd-sw0rd"
        assert "sw0rd" not in str(from_status(400, {"error": {"message": said}}, secrets=["known-secret-sw0rd-sw0rd"]))
