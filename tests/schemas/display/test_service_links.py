"""What Kubernetes sets for a Service is no setting, whatever the Service is called."""

from __future__ import annotations

import pytest

from strandline.schemas.display.service_links import service_links
from strandline.schemas.misspelt_settings import unknown_settings
from strandline.schemas.settings import load_settings


def links_of(service: str, host: str, port: str) -> dict[str, str]:
    """The variables of a Service, as the kubelet makes them."""
    prefix = service.upper().replace("-", "_")
    url = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
    numbered = f"{prefix}_PORT_{port}_TCP"
    return {
        f"{prefix}_SERVICE_HOST": host,
        f"{prefix}_SERVICE_PORT": port,
        f"{prefix}_SERVICE_PORT_HTTP": port,
        f"{prefix}_PORT": url,
        numbered: url,
        f"{numbered}_PROTO": "tcp",
        f"{numbered}_PORT": port,
        f"{numbered}_ADDR": host,
    }


@pytest.mark.parametrize("service", ["strandline", "strandline-service", "strandline-worker", "redis"])
@pytest.mark.parametrize("host", ["10.96.0.17", "fd07::11"])
def test_a_service_sets_nothing_and_is_not_warned_of(
    service: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = links_of(service, host, "9999")
    for name, value in links.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.service_host, settings.service_port) == ("127.0.0.1", 8420)
    assert service_links(links) == links.keys()
    assert list(unknown_settings(links)) == []


def test_what_is_set_in_spite_of_a_link_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in links_of("strandline", "10.96.0.17", "9999").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STRANDLINE_SERVICE_HOST", "0.0.0.0")  # noqa: S104
    settings = load_settings()
    assert (settings.service_host, settings.service_port) == ("0.0.0.0", 8420)  # noqa: S104
