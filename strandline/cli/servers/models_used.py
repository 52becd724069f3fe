"""Which models the settings choose, in words; the local stand-ins are announced as such."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.pipelines.models.local.text_model import LOCAL_EMBEDDERS
from strandline.pipelines.models.local.text_model import MODEL as LOCAL_TEXT_MODEL
from strandline.schemas.model_roles import TEXT_ROLES
from strandline.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class ModelsUsed:
    """The models by name."""

    text: str
    embedding: str
    text_is_local: bool
    embedding_is_local: bool

    @property
    def announcement(self) -> str:
        """One line about them."""
        if self.text_is_local and self.embedding_is_local:
            return (
                f"local stand-ins: {self.text} picks sentences as facts and summary, {self.embedding} embeds"
                " (set OPENAI_API_KEY or OPENAI_BASE_URL for real models)"
            )
        text = f"{self.text} (local stand-in)" if self.text_is_local else self.text
        embedding = f"{self.embedding} (local)" if self.embedding_is_local else self.embedding
        return f"{text} for facts and summary, {embedding} for vectors"


def models_used(settings: Settings) -> ModelsUsed:
    """What workers with these settings use."""
    text_is_local = {settings.backend(role) for role in TEXT_ROLES} == {"local"}
    embedder = settings.backend("embedding")
    embedding_is_local = embedder in LOCAL_EMBEDDERS
    served = dict.fromkeys(
        LOCAL_TEXT_MODEL if settings.backend(role) == "local" else str(settings.text_role(role).of.model)
        for role in TEXT_ROLES
    )
    others = "no model" if embedder == "none" else settings.embedding_model
    return ModelsUsed(
        text=" and ".join(served),
        embedding=LOCAL_EMBEDDERS[embedder][0] if embedding_is_local else others,
        text_is_local=text_is_local,
        embedding_is_local=embedding_is_local,
    )
