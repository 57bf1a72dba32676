"""Bodies that never end, from a server on a socket: each is one error, in bounded time and memory."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.asking import ask

from astrion_nb.errors import ModelBroken, ModelBusy, ModelError, ModelRefused
from astrion_nb.llm.openai import OpenAIModel

pytestmark = pytest.mark.faults


def failure(head: bytes, piece: bytes, pause: float, *, begin: bytes = b"") -> tuple[ModelError, int]:
    """Ask an endpoint that answers without an end; returns the error and the bytes that were sent."""

    async def main() -> tuple[ModelError, int]:
        sent = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 " + head + b"\r\nretry-after: 2\r\ntransfer-encoding: chunked\r\n\r\n")
            try:
                for part in (begin, *[piece] * 100_000):
                    if part:
                        writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
                    sent += len(part)
                    await asyncio.sleep(pause)
            except ConnectionError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        model = OpenAIModel("test", model="m", base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-test-key-123456")
        try:
            async with asyncio.timeout(20):
                with pytest.raises(ModelError) as caught:
                    await ask(model)
        finally:
            await model.close()
            server.close()
        return caught.value, sent

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "expected"), [(b"400", ModelRefused), (b"429", ModelBusy), (b"503", ModelBroken)], ids=str
)
@pytest.mark.parametrize(("piece", "pause"), [(b"z", 0.02), (b"z" * 65_536, 0.0)], ids=["drips", "pours"])
def test_a_refusal_whose_explanation_never_ends_is_the_refusal_that_its_status_says(
    status: bytes, expected: type[ModelError], piece: bytes, pause: float
) -> None:
    began = time.monotonic()
    error, sent = failure(status + b" X\r\ncontent-type: application/json", piece, pause)
    assert type(error) is expected
    assert "zzz" in str(error)
    assert len(str(error)) < 600
    assert time.monotonic() - began < 8
    assert sent < 20_000_000
    if isinstance(error, ModelBusy):
        assert error.retry_after == 2.0


def test_a_line_of_a_stream_that_never_ends_is_a_broken_answer() -> None:
    error, sent = failure(b"200 OK\r\ncontent-type: text/event-stream", b"z" * 65_536, 0.0, begin=b"data: ")
    assert type(error) is ModelBroken
    assert "more than 16 MB" in str(error)
    assert "\n" not in str(error)
    assert sent < 60_000_000
