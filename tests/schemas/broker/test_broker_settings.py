"""The settings of a broker: its kind, and the name that its certificate is checked for."""

from __future__ import annotations

import pytest

from strandline.schemas.broker.settings import BrokerKind, broker_kind, tls_options


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://127.0.0.1/0", "redis"),
        ("rediss://:secret@cache:6380/1", "redis"),
        ("redis+socket:///run/redis.sock", "redis"),
        ("amqp://guest@127.0.0.1//", "rabbitmq"),
        ("AMQPS://one/live;amqps://two/live", "rabbitmq"),
        ("sqs://", "other"),
        ("nonsense", "other"),
    ],
)
def test_the_scheme_says_what_kind_of_broker_it_is(url: str, kind: BrokerKind) -> None:
    assert broker_kind(url) == kind


def test_a_certificate_is_checked_for_the_name_of_an_only_host() -> None:
    assert tls_options("amqps://user:secret@Broker.example:5671//") == {"server_hostname": "broker.example"}
    assert tls_options("amqps://one;amqps://two") is None
    assert tls_options("amqp://broker.example//") is None
