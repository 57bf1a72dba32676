"""What an endpoint's refusal means: status, code and words in, a :class:`ModelError` out.

Pure; knows no SDK and no socket. Error texts come from a third party and are shown, stored and sent
to models, so every one of them is scrubbed here: no key, no header, no user info of a URL.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

from ..errors import (
    ContentFiltered,
    ContextOverflow,
    ModelBroken,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnreachable,
)
from ..messages import replace_surrogates

_LONGEST = 400
_WORDS = 100
_LOOKED_AT = 20_000
"""Characters of an explanation that any pattern looks at: some take time with the square of the length."""
_HIDDEN = "[hidden]"

_USER_INFO = re.compile(r"(?<=://)[^\s/@]+@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_KEY = re.compile(r"\b(?:sk|pk|rk|gsk|xai|key|api)[-_][A-Za-z0-9_*-]{8,}")
_HEADER = re.compile(r"(?i)(['\"]?(?:authorization|x-api-key|api-key|cookie)['\"]?\s*[:=]\s*)[^\r\n,}]+")

_TAG = re.compile(r"<(?:script|style)\b.*?(?:</(?:script|style)>|$)|<[^>]*(?:>|$)", re.IGNORECASE | re.DOTALL)

# The wordings of OpenAI, vLLM, llama.cpp, Anthropic, Google, Mistral, DeepSeek and their proxies.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|context length|context window|context size|maximum context"
    r"|prompt is too long|input is too long|too many (?:input )?tokens|input token count"
    r"|reduce the length of the (?:messages|prompt|input)|max_model_len",
    re.IGNORECASE,
)
_FILTER = re.compile(r"content_filter|content_policy|content management policy|data_inspection_failed", re.IGNORECASE)
_QUOTA = re.compile(
    r"insufficient_quota|insufficient.{0,12}balance|exceeded your current quota|billing|arrears|credit balance",
    re.IGNORECASE,
)


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text in one line, cut, without anything that looks like a credential or that UTF-8 cannot hold.

    Parameters
    ----------
    text : str
    secrets : iterable of str
        Values that must not appear, whatever they look like.
    """
    text = replace_surrogates(text)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:
            text = text.replace(secret, _HIDDEN)
    text = _head(text)
    text = _USER_INFO.sub("", text)
    text = _HEADER.sub(rf"\1{_HIDDEN}", text)
    text = _BEARER.sub(rf"\1 {_HIDDEN}", text)
    text = _KEY.sub(_HIDDEN, text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _head(text: str) -> str:
    """Return what patterns look at of a text, without a word that the cut goes through: it may be half a key."""
    cut = text[:_LOOKED_AT]
    if len(cut) == len(text) or cut[-1].isspace():
        return cut
    word = cut.rsplit(None, 1)[-1]
    return cut if len(word) > _LONGEST else cut[: -len(word)]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an endpoint asks to wait, or ``None``.

    Reads ``retry-after-ms``, and ``retry-after`` as seconds or as an HTTP date (counted from the
    response's own ``date``, so that a wrong local clock does no harm). ``headers`` ignores case or
    has lower-case names.
    """
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return max(0.0, millis / 1000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return max(0.0, seconds)
    until = _date(value)
    if until is None:
        return None
    sent = _date(headers.get("date"))
    return max(0.0, until - (time.time() if sent is None else sent))


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if number == number and number != float("inf") else None


def _date(value: str | None) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() if value else None
    except (ValueError, OverflowError):
        return None


def error_words(body: object) -> tuple[str, str, int | None]:
    """Return message, code and status (when the body tells one) of an error body in any common form."""
    if isinstance(body, Mapping) and isinstance(body.get("error"), (Mapping, str)):
        body = body["error"]
    if not isinstance(body, Mapping):
        return str(body or ""), "", None
    code = body.get("code")
    status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else None
    words = [str(value) for value in (code, body.get("type")) if value]
    inner = body.get("innererror") or body.get("inner_error")
    if isinstance(inner, Mapping) and inner.get("code"):
        words.append(str(inner["code"]))
    message = body.get("message") or body.get("detail") or ""
    return str(message) if isinstance(message, str) else repr(message), " ".join(words), status


def from_status(
    status: int, body: object, headers: Mapping[str, str] | None = None, *, where: str = "", secrets: Iterable[str] = ()
) -> ModelError:
    """Return the error for an HTTP status, or for an error object inside a stream.

    Parameters
    ----------
    status : int
    body : object
        Parsed JSON of the response, or its text.
    headers : mapping, optional
        Only the wait that they ask for is used.
    where : str
        Name of the endpoint for the message.
    secrets : iterable of str
        Values that must not appear in the message.
    """
    message, codes, _ = error_words(body)
    said = scrub(f"{message} ({codes})" if message and codes else message or codes or "no explanation", secrets)
    known = f"{_head(codes)} {_head(message)}"
    wait = retry_after(headers or {})
    at = f" at {where}" if where else ""
    if status in (400, 413, 422, 500) and _OVERFLOW.search(known):
        return ContextOverflow(f"the prompt is longer than the model's context{at}: {said}", status=status)
    if status < 500 and _FILTER.search(known):
        return ContentFiltered(f"the provider withheld the answer{at}: {said}", status=status)
    if status == 429:
        if _QUOTA.search(known):
            return ModelRefused(f"the account has no quota left{at}: {said}; check plan and billing", status=status)
        return ModelBusy(f"too many requests{at}: {said}", status=status, retry_after=wait)
    if status in (408, 504):
        return ModelUnreachable(f"no answer in time{at} (status {status}): {said}", status=status, retry_after=wait)
    if status >= 500:
        return ModelBroken(f"the endpoint failed{at} (status {status}): {said}", status=status, retry_after=wait)
    advice = {
        401: "; check the API key",
        402: "; check plan and billing",
        403: "; check what the key may do",
        404: "; check base_url and the model's name",
    }.get(status, "; check base_url" if 300 <= status < 400 else "")
    return ModelRefused(f"the request was refused{at} (status {status}): {said}{advice}", status=status)


def in_stream(event: Mapping[str, object], *, where: str = "", secrets: Iterable[str] = ()) -> ModelError | None:
    """Return the error that an event of a stream stands for, or ``None`` when it is none."""
    if not event.get("error") and event.get("object") != "error":
        return None
    _, codes, status = error_words(event)
    codes = _head(codes)
    if status is None:
        status = 429 if "rate_limit" in codes else 400 if _OVERFLOW.search(codes) or _FILTER.search(codes) else 500
    return from_status(status, event, where=where, secrets=secrets)


def no_completion(content_type: str, head: bytes, *, where: str = "", secrets: Iterable[str] = ()) -> ModelError | None:
    """Return the error for a response of status 200 that holds nothing of an answer; ``None`` for events without any.

    Parameters
    ----------
    content_type : str
    head : bytes
        How the body begins.
    where, secrets
        As for :func:`from_status`.
    """
    kind = content_type.partition(";")[0].strip().lower() or "no content type"
    if not head.strip() or kind == "text/event-stream":
        return None
    text = head.decode("utf-8", "replace")
    words = scrub(_TAG.sub(" ", text), secrets) or scrub(text, secrets)
    words = words if len(words) <= _WORDS else words[: _WORDS - 1] + "…"
    return ModelRefused(
        f"{where or 'the endpoint'} answered with {kind} that is no completion: {words}; check base_url "
        "(it often ends in /v1) and what stands between"
    )
