"""A Celery application that ignores the host's variables for Celery.

Celery lets its own variables override an application's settings (``CELERY_BROKER_URL`` and its like), takes
settings from modules that they name, and runs Django's start where ``DJANGO_SETTINGS_MODULE`` is set.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader

from strandline.schemas.broker.settings import client_url


class OwnLoader(AppLoader):  # type: ignore[misc]  # Celery carries no types
    """A loader that reads no module which ``CELERY_CONFIG_MODULE`` names."""

    def read_configuration(self, env: str = "") -> dict[str, Any]:
        """Nothing: all settings are given to the application."""
        return {}


class OwnCelery(Celery):  # type: ignore[misc]
    """Celery's application for one broker URL, not the current one of the process."""

    builtin_fixups = frozenset[str]()
    backend_cls = "disabled"

    def __init__(self, name: str, broker_url: str) -> None:
        self._own_url = client_url(broker_url)
        loader = f"{OwnLoader.__module__}:{OwnLoader.__qualname__}"
        super().__init__(name, broker=self._own_url, loader=loader, set_as_current=False)

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        """As Celery's, to the broker that this application was made for."""
        return super().connection_for_read(url or self._own_url, **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        """As Celery's, to the broker that this application was made for."""
        return super().connection_for_write(url or self._own_url, **options)
