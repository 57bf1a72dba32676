"""Real HTTP servers that say byte for byte what a test wants, also what no honest server says."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Route = Callable[[str], Iterable[bytes]]


def answer(body: bytes | str = b"", status: int = 200, **headers: str) -> list[bytes]:
    """Return a whole answer; ``content_type`` stands for ``Content-Type``."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Said"]
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    named = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(data)), **named}
    lines += [f"{name}: {value}" for name, value in named.items() if value]
    return ["\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8"), data]


def redirect(to: str, status: int = 302) -> list[bytes]:
    return answer("moved", status, location=to)


@dataclass
class WebServer:
    """A server on this machine, and what it has been asked.

    Parameters
    ----------
    routes : dict
        Path to a function that takes the request's text and yields bytes; ``*`` for every other path.
    """

    routes: dict[str, Route]
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    requests: list[str] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    connections: int = 0

    @property
    def at(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self.at}"


@contextlib.contextmanager
def serving(
    routes: dict[str, Route], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[WebServer]:
    """Serve until the end of the block."""
    told = WebServer(routes, host, tls=tls)
    over = threading.Event()
    if tls is not None:
        tls.sni_callback = lambda sock, name, context: told.names.append(name)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            told.connections += 1
            connection: Any = self.request
            connection.settimeout(5)
            with contextlib.suppress(OSError), contextlib.ExitStack() as open_:
                if tls is not None:
                    connection = open_.enter_context(tls.wrap_socket(connection, server_side=True))
                text = _request(connection)
                told.requests.append(text)
                path = text.split(" ")[1].partition("?")[0] if " " in text else ""
                for part in told.routes.get(path, told.routes.get("*", lambda _: answer("none", 404)))(text):
                    if over.is_set():
                        break
                    connection.sendall(part)
                if tls is not None:
                    connection.unwrap().close()

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    with Server((host, 0), Handler) as server:
        told.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield told
        finally:
            over.set()
            server.shutdown()
            thread.join()


def _request(connection: socket.socket) -> str:
    data = b""
    while b"\r\n\r\n" not in data and not data.startswith(b"\x16"):  # TLS where none is spoken
        part = connection.recv(1 << 16)
        if not part:
            break
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(1 << 16)
    return (head + b"\r\n\r\n" + body).decode("latin-1")


def certified(folder: Path, name: str, *, names: str, days: int = 2, authority: Path | None = None) -> ssl.SSLContext:
    """Return a server's TLS with a certificate for ``names``, by an authority that lies in a folder."""
    key, cert, request = (folder / f"{name}.{end}" for end in ("key", "pem", "csr"))
    more = folder / f"{name}.ext"
    more.write_text(f"subjectAltName={names}\n")
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-subj", f"/CN={name}"]
    if authority is None:
        _openssl([*new, "-x509", "-days", str(days), "-addext", f"subjectAltName={names}", "-out", str(cert)])
    else:
        _openssl([*new, "-out", str(request)])
        sign = ["openssl", "x509", "-req", "-in", str(request), "-CA", str(authority), "-extfile", str(more)]
        sign += ["-CAkey", str(authority.with_suffix(".key")), "-CAcreateserial", "-days", str(days), "-out", str(cert)]
        _openssl(sign)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def authority(folder: Path) -> Path:
    """Make an authority; returns its certificate's file."""
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority"]
    _openssl([*line, "-keyout", str(folder / "authority.key"), "-out", str(folder / "authority.pem")])
    return folder / "authority.pem"


def _openssl(line: list[str]) -> None:
    subprocess.run(line, check=True, capture_output=True)
