"""One strict server and one kernel for the tests of a module; each test gets a fresh team in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.kernel_env import environment
from support.kernels import EVERY, INSTALLED, KERNELS
from support.live_kernel import Kernel, live_kernel
from support.strict_server import StrictServer


@pytest.fixture(scope="module")
def shared_server() -> Iterator[StrictServer]:
    with StrictServer() as server:
        yield server


@pytest.fixture(scope="module")
def shared_kernel(shared_server: StrictServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("kernel")
    with live_kernel(folder, environment(shared_server, folder / "home")) as kernel:
        yield kernel


@pytest.fixture
def server(shared_server: StrictServer) -> Iterator[StrictServer]:
    """The module's server, with nothing asked of it so far; at the end it has refused nothing."""
    shared_server.on_request = None
    for seen in (shared_server.requests, shared_server.bodies, shared_server.headers, shared_server.violations):
        seen.clear()
    yield shared_server
    assert shared_server.violations == []


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The ``ASTRION_HOME`` of the kernel in this test."""
    return tmp_path / "kernel-home"


@pytest.fixture
def kernel(shared_kernel: Kernel, server: StrictServer, home: Path) -> Iterator[Kernel]:
    """The module's kernel, with an empty namespace, the extension loaded afresh and a home of its own."""
    shared_kernel.forget()
    shared_kernel.ok(f"%reset -f\nimport os\nos.environ['ASTRION_HOME'] = {str(home)!r}\ndel os\n%load_ext astrion_nb")
    yield shared_kernel
    for cell in shared_kernel.unfinished:
        shared_kernel.interrupt()
        shared_kernel.finish(cell)
    shared_kernel.ok("%unload_ext astrion_nb")


@pytest.fixture(params=[pytest.param(name, marks=[] if name == INSTALLED else pytest.mark.slow) for name in KERNELS])
def each_kernel(
    request: pytest.FixtureRequest,
    kernel_python: Callable[[str], Path],
    server: StrictServer,
    home: Path,
    tmp_path: Path,
) -> Iterator[Kernel]:
    """A fresh kernel of every version that is tested, nothing loaded; the slow tests take those not installed."""
    with live_kernel(tmp_path / "kernel", environment(server, home), kernel_python(request.param)) as made:
        yield made


@pytest.fixture(params=[pytest.param(name, marks=[] if name == INSTALLED else pytest.mark.slow) for name in EVERY])
def every_kernel(
    request: pytest.FixtureRequest,
    kernel_python: Callable[[str], Path],
    server: StrictServer,
    home: Path,
    tmp_path: Path,
) -> Iterator[Kernel]:
    """As ``each_kernel``, and on every other Python too that the machine has."""
    with live_kernel(tmp_path / "kernel", environment(server, home), kernel_python(request.param)) as made:
        yield made
