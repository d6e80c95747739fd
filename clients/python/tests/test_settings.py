"""Where the server is."""

from __future__ import annotations

import pytest

from contextd import ConfigurationError
from contextd._core.settings import parse_url, settings


@pytest.mark.parametrize(
    ("url", "targets", "tls"),
    [
        ("http://localhost", ["dns:///localhost:7070"], False),
        ("http://localhost:1234/", ["dns:///localhost:1234"], False),
        ("https://contextd.example.com", ["dns:///contextd.example.com:443"], True),
        ("http://a:1,b:2", ["dns:///a:1", "dns:///b:2"], False),
        ("https://a,https://b:8443", ["dns:///a:443", "dns:///b:8443"], True),
        ("http://[::1]:7070", ["dns:///[::1]:7070"], False),
        ("dns:///contextd:7070", ["dns:///contextd:7070"], False),
        ("https+dns:///contextd:7070", ["dns:///contextd:7070"], True),
    ],
)
def test_urls(url: str, targets: list[str], tls: bool) -> None:
    assert parse_url(url) == (tuple(targets), tls)


@pytest.mark.parametrize(
    "url", ["localhost:7070", "grpc://a", "http://", "http://a:port", "http://a/path", "http://u@a"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=url.split("//")[-1] or "names a host"):
        parse_url(url)


def test_arguments_win_over_variables() -> None:
    env = {"CONTEXTD_URL": "http://env:1", "CONTEXTD_API_KEY": "env-key", "CONTEXTD_CA_FILE": ""}
    assert settings(env).targets == ("dns:///env:1",)
    assert settings(env).api_key == "env-key"
    found = settings(env, url="http://arg:2", api_key="arg-key")
    assert (found.targets, found.api_key, found.ca_file) == (("dns:///arg:2",), "arg-key", None)
    assert settings({}).targets == ("dns:///127.0.0.1:7070",)


def test_a_certificate_takes_a_key_and_an_https_url() -> None:
    with pytest.raises(ConfigurationError, match="key_file"):
        settings({}, url="https://a", cert_file="c.pem")
    with pytest.raises(ConfigurationError, match="https"):
        settings({}, url="http://a", ca_file="ca.pem")


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(settings({}, api_key="secret"))


@pytest.mark.parametrize("key", ["secret-key\n", "secret-key\r\n", " secret-key ", "\tsecret-key"])
def test_white_space_around_a_key_is_left_out(key: str) -> None:
    assert settings({}, api_key=key).api_key == "secret-key"
    assert settings({"CONTEXTD_API_KEY": key}).api_key == "secret-key"
    assert settings({"CONTEXTD_API_KEY": "\n"}).api_key is None


@pytest.mark.parametrize("key", ["secret\nkey", "secret key", "sécret-key", "secret\0key"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="position") as caught:
        settings({}, api_key=key)
    assert not any(part in str(caught.value) for part in ("ecret", key))


def test_the_address_of_the_command_line_is_read_where_no_url_is_given() -> None:
    assert settings({"CONTEXTD_ADDRESS": "10.0.0.1:7070"}).targets == ("dns:///10.0.0.1:7070",)
    assert settings({"CONTEXTD_ADDRESS": "https://a"}).targets == ("dns:///a:443",)
    assert settings({"CONTEXTD_URL": "http://b", "CONTEXTD_ADDRESS": "c:1"}).targets == ("dns:///b:7070",)
