"""The HTTP service of a process: its application, made of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.wiring.runtime import runtime_for

if TYPE_CHECKING:
    from fastapi import FastAPI

    from strandline.service.gate.mcp import MakeTools

NEEDED = "strandline serve needs FastAPI and uvicorn: pip install 'strandline[service]'."
_PACKAGES = ("fastapi", "uvicorn", "starlette", "httptools", "uvloop")


def build_service(settings: Settings) -> FastAPI:
    """The service on the configured servers; makes no connection yet.

    Raises:
        ConfigurationError: the extra ``service`` is not installed, or the key of receipts cannot be read.
    """
    try:
        from strandline.service.app import make_app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise ConfigurationError(NEEDED) from None
    return make_app(runtime_for(settings), _tools_if_installed())


def _tools_if_installed() -> MakeTools | None:
    try:
        from strandline.producers.tools.mcp_http import HttpTools
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        return None
    return HttpTools
