"""Content parts as typed values, beside OpenAI's own dicts.

Each value is also the mapping that it represents: it is stored and sent as that mapping, and equals it.  So
everything that takes a content part takes either form, and reads return dicts.
"""

from __future__ import annotations

from abc import abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.schemas.errors import InvalidMessageError


class ContentPart(Mapping[str, Any]):
    """The base of the typed parts: a mapping with a ``type``, as OpenAI's chat API takes it."""

    __slots__ = ()

    @abstractmethod
    def to_openai(self) -> dict[str, Any]:
        """The part as a dict."""

    def __getitem__(self, key: str) -> Any:
        return self.to_openai()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_openai())

    def __len__(self) -> int:
        return len(self.to_openai())


@dataclass(frozen=True, slots=True, eq=False)
class TextPart(ContentPart):
    """Text."""

    text: str

    def to_openai(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True, eq=False)
class ImagePart(ContentPart):
    """An image, by URL, which may be a ``data:`` URL; ``detail`` is ``low``, ``high`` or ``auto``."""

    url: str = field(repr=False)
    detail: str | None = None

    def __post_init__(self) -> None:
        _check_text("ImagePart.url", self.url)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, *, detail: str | None = None) -> ImagePart:
        """An image part from the image itself, such as a file's bytes and ``image/png``."""
        return cls(_data_url("ImagePart", data, media_type), detail)

    def to_openai(self) -> dict[str, Any]:
        detail = {} if self.detail is None else {"detail": self.detail}
        return {"type": "image_url", "image_url": {"url": self.url, **detail}}


@dataclass(frozen=True, slots=True, eq=False)
class AudioPart(ContentPart):
    """Recorded speech or sound: its bytes and their ``format``, such as ``wav`` or ``mp3``."""

    data: bytes = field(repr=False)
    format: str

    def __post_init__(self) -> None:
        _check_bytes("AudioPart.data", self.data)
        _check_text("AudioPart.format", self.format)

    def to_openai(self) -> dict[str, Any]:
        return {
            "type": "input_audio",
            "input_audio": {"data": _encode_data(self.data), "format": self.format},
        }


@dataclass(frozen=True, slots=True, eq=False)
class VideoPart(ContentPart):
    """A video, by URL; OpenAI does not accept videos, other servers of its protocol take ``video_url``."""

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        _check_text("VideoPart.url", self.url)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str) -> VideoPart:
        """A video part from the video itself, such as a file's bytes and ``video/mp4``."""
        return cls(_data_url("VideoPart", data, media_type))

    def to_openai(self) -> dict[str, Any]:
        return {"type": "video_url", "video_url": {"url": self.url}}


@dataclass(frozen=True, slots=True, eq=False)
class DocumentPart(ContentPart):
    """A document: its bytes with a file name and media type, or the id of a file that the provider has.

    Raises:
        InvalidMessageError: it has neither ``data`` nor ``file_id``, or both.
    """

    data: bytes | None = field(default=None, repr=False)
    filename: str | None = None
    media_type: str = "application/pdf"
    file_id: str | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.file_id is None):
            raise InvalidMessageError("DocumentPart", "takes either data, with a filename, or file_id")
        if self.data is not None:
            _check_bytes("DocumentPart.data", self.data)

    def to_openai(self) -> dict[str, Any]:
        if self.data is None:
            return {"type": "file", "file": {"file_id": self.file_id}}
        url = _data_url("DocumentPart", self.data, self.media_type)
        return {"type": "file", "file": {"filename": self.filename or "document", "file_data": url}}


def _data_url(what: str, data: bytes, media_type: str) -> str:
    _check_bytes(f"{what}.data", data)
    _check_text(f"{what}.media_type", media_type)
    return f"data:{media_type};base64,{_encode_data(data)}"


def _encode_data(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _check_text(field_name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidMessageError(
            field_name, f"must be a string that is not empty, not {type(value).__name__}"
        )


def _check_bytes(field_name: str, value: object) -> None:
    if not isinstance(value, (bytes, bytearray)):
        raise InvalidMessageError(field_name, f"must be bytes, not {type(value).__name__}")


def check_parts(content: object, path: str) -> None:
    """Raise InvalidMessageError, which names ``path``, unless ``content`` is a list of content parts."""
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise InvalidMessageError(
            path, f"must be text or a list of content parts, not {type(content).__name__}"
        )
    for index, part in enumerate(content):
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise InvalidMessageError(
                f"{path}[{index}]", "must be an object with a 'type', such as {'type': 'text'}"
            )
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise InvalidMessageError(f"{path}[{index}].text", "must be a string")
