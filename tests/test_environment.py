"""The environment of the tests: closed to the person's settings and to the network."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support import environment

from astrion_nb.home import Home


def test_the_home_is_new_and_not_the_persons() -> None:
    home = Home()
    assert not home.base.exists()
    assert home.root == Path(os.environ["ASTRION_HOME"])
    outer = environment.OUTER.get("HOME")
    assert outer is None or not home.root.is_relative_to(outer)
    assert Path.home() != Path(outer or "/")


def test_no_key_or_setting_of_the_person_is_seen() -> None:
    foreign = [name for name in os.environ if name.startswith(("OPENAI_", "ASTRION_"))]
    assert set(foreign) <= {"ASTRION_HOME", "ASTRION_CACHE", "ASTRION_OFFLINE", "ASTRION_GOLDEN"}


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_connections_leave_the_machine_no_more_than_without_network(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as outgoing, pytest.raises(OSError, match="tests have no network"):
        outgoing.connect((address, 80))


def test_names_outside_do_not_resolve() -> None:
    with pytest.raises(urllib.error.URLError, match=r"tests have no network: example\.org"):
        urllib.request.urlopen("http://example.org/", timeout=5)


def test_this_machine_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
        server.accept()[0].close()


def test_what_a_test_does_to_the_environment_is_undone() -> None:
    os.environ["ASTRION_MODEL"] = "before"
    with environment.kept(ASTRION_WAIT="1"):
        os.environ["ASTRION_MODEL"] = "within"
        os.environ["ASTRION_LANGUAGE"] = "zh"
        del os.environ["ASTRION_HOME"]
        assert os.environ["ASTRION_WAIT"] == "1"
    assert os.environ["ASTRION_MODEL"] == "before"
    assert "ASTRION_HOME" in os.environ
    assert not {"ASTRION_WAIT", "ASTRION_LANGUAGE"} & os.environ.keys()
