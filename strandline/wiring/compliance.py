"""The compliance hook of the application, as the settings name and bound it."""

from __future__ import annotations

from strandline.pipelines.own_code.places import load_function
from strandline.producers.audit.compliance import Compliance
from strandline.schemas.settings import Settings

ENTRY_POINT_GROUP = "strandline.compliance"


def compliance_of(settings: Settings) -> Compliance | None:
    """The hook that ``STRANDLINE_COMPLIANCE`` names; None if it names none.

    Raises:
        ConfigurationError: it cannot be imported, or cannot be called.
    """
    if not settings.compliance:
        return None
    hook = load_function(settings.compliance, setting="STRANDLINE_COMPLIANCE", group=ENTRY_POINT_GROUP)
    return Compliance(
        hook, settings.compliance, settings.compliance_timeout_seconds, settings.compliance_failure
    )
