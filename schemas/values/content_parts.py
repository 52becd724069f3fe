"""Content parts as typed values, as an alternative to OpenAI's dicts.

Each value is also the mapping that it represents: it is stored and sent as that mapping, and equals it.
Every parameter for a content part takes either form, and reads return dicts.

Pictures, sound and files come in base64: in parts of any type, in fields of other libraries, or in a tool's
text.  A payload is found by its form, counted by an estimate, and shown by a mark.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from strandline.schemas.display.field_paths import below
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.forms.tool_calls import is_thinking, tool_parts

# The kinds of data, by the word that types of parts and names of fields have for it.
_KINDS: Mapping[str, str] = {
    "image": "image", "picture": "image", "photo": "image", "screenshot": "image", "audio": "audio",
    "sound": "audio", "voice": "audio", "video": "video", "document": "document", "file": "document",
    "attachment": "document",
}  # fmt: skip
_NAME = re.compile(
    rf"(?:input|output|generated|computer)?({'|'.join(_KINDS)})s?"
    r"(?:url|uri|id|data|base64|file|generationcall)*"
)
MARKS: Mapping[str, str] = {
    "image": "[picture]",
    "audio": "[sound]",
    "video": "[video]",
    "document": "[document]",
    "data": "[data]",
}
# Shorter runs are left: a name or a number may have the letters of base64.
MIN_PAYLOAD_CHARACTERS = 256
_MIN_LINE = 40
# Longer lines need not be of one length.
_LONG_LINE = 60
_LETTER = r"[A-Za-z0-9+/_-]"
# As JSON, a URL and HTML may write +, / and =; the numbers are bounds, so that a search takes linear time.
_ESCAPED = r"(?:\\{1,8}(?:/|u00(?:2[bBfF]|3[dD]))|%(?:2[BbFf]|3[Dd])|&#(?:43|47|61|x2[BbFf]|x3[Dd]);)"
_LINE = rf"(?=(?:{_LETTER}|{_ESCAPED}){{{_MIN_LINE}}})(?:{_LETTER}++|{_ESCAPED})++"
# Between lines: an indent, quotes, marks of a comment, anything but letters; or a line's number or name.
# A comma only before a short line, since longer ones are values of their own.
_BREAK = (
    r"(?:(?:\\{1,8}[nrt]|[^A-Za-z0-9+/_,-]|[+/_-](?![A-Za-z0-9])){1,48}+"
    r"|(?:\\{1,8}[nr]|[\r\n])[\w.:/\t -]{1,24}?[ :,\t]++)"
)
_NEXT_LINE = rf"{_BREAK}(?:,{_BREAK}(?={_LETTER}{{{_MIN_LINE},255}}+(?!{_LETTER})))?{_LINE}"
_PAYLOAD = re.compile(
    rf"(?<!{_LETTER})(?:"
    rf"(?:data:([a-z]+)\\*/[\w.+-]++(?:;[\w.=-]++)*?;base64,\s{{0,99}})?"
    rf"({_LINE}(?:{_NEXT_LINE})*+(?:{_BREAK}{_LETTER}+=)?=*)"
    rf"|data:([a-z]+)/[^\s\"'()<>\\]{{200,}}+)"
)
_LINES = re.compile(rf"(?:{_LETTER}++|{_ESCAPED})++")
_WORDS = re.compile(r"(?<![a-z])[a-z]{5,20}(?![a-z])")
_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z]).*[0-9]", re.DOTALL)
# The first bytes of well-known formats.
_BEGINNINGS = {"iVBORw": "image", "/9j/": "image", "R0lGOD": "image", "JVBERi": "document", "SUQz": "audio"}
_MEDIA_TYPES = ("media_type", "mime_type", "mimeType", "mediaType", "contentType")
_DATA_FIELDS = (
    "data",
    "url",
    "uri",
    "fileUri",
    "file_uri",
    "file_id",
    "file_data",
    "base64",
    "blob",
    "bytes",
)
_NAMES = ("filename", "file_name", "title", "name", "document_name", "displayName", "display_name")
# With one of these a mapping in a field that is named for a kind stands for data; a voice has a name as well.
_HELD = (*_DATA_FIELDS, "id")
_FIELDS_OF = {"document": (*_HELD, *_NAMES), "audio": (*_HELD, "transcript")}
_SPOKEN = ("text", "refusal")
# What a program printed, beside the files that it made.
_PRINTED = ("stdout", "stderr")
_OUTPUTS = ("output", "outputs", "result", "results", "content", "response")
_CAPTIONS = (
    "alt", "alt_text", "altText", "caption", "context", "description", "revised_prompt", "transcript",
    "transcription",
)  # fmt: skip
# In a part of an adapter, which holds what its library has and a message lacks: nobody reads it.
KEPT = "strandline_kept"
# Fields of parts in which an adapter keeps what its library wrote: of a part that is no data its words may be
# another speaker's, such as a system's.
_KEEPING = frozenset({"item", "openai_agents", "pydantic_ai"})
_OTHERS = ("instruction", "system", "user")
# No words: what only its maker reads, and what is said of words elsewhere.
_OPAQUE = re.compile(
    "signature|encrypted|metadata|annotation|citation|logprobs|^cache|^provider_?(?:details|data|options)",
    re.IGNORECASE,
)
_NO_WORDS = re.compile(
    rf"{_OPAQUE.pattern}|(?:^|_)ids?$|(?-i:Ids?$)|kind$|type$|^stat(?:e|us)$", re.IGNORECASE
)
_EMPTY: tuple[object, ...] = (None, "", {}, [])
_URL_SAFE = str.maketrans("-_", "+/")
# Anthropic's, that of MCP, the AI SDK's, Bedrock's.
_SOURCES = ("source", "resource", "data", "document", "file", "file_data")
# What a model gives a tool: the line of its call has it.
_INPUTS = ("input", "args", "arguments")


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
        if is_part(part):
            continue
        where = below(path, index)
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise InvalidMessageError(where, "must be an object with a 'type', such as {'type': 'text'}")
        raise InvalidMessageError(below(where, "text"), "must be a string")


def is_part(part: object) -> bool:
    """Whether it can be a content part: an object with a type, and with text if that is its type."""
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return False
    return part["type"] != "text" or isinstance(part.get("text"), str)


def without_payloads(text: str) -> str:
    """The text with a mark in the place of data in base64, and of data: URLs."""
    return split_payloads(text)[0]


def split_payloads(text: str) -> tuple[str, list[str]]:
    """The text with marks in the place of its payloads, and the kinds of these."""
    if not _may_hold_payload(text):
        return text, []
    kinds: list[str] = []

    def mark(match: re.Match[str]) -> str:
        media, body, other = match.groups()
        if not (media or other or _is_base64(body)):
            return match[0]
        kinds.append(_kind_of_media(media or other) if media or other else _kind_by_beginning(body))
        return MARKS[kinds[-1]]

    return _PAYLOAD.sub(mark, text), kinds


def _is_base64(run: str) -> bool:
    """Whether a run of lines is data: long, of mixed letters without words, mostly in lines of one length."""
    lines = [line for line in _LINES.findall(run) if len(line) >= _MIN_LINE]
    letters, lengths = "".join(lines), Counter(map(len, lines))
    words = sum(map(len, _WORDS.findall(letters)))
    return (
        len(letters) >= MIN_PAYLOAD_CHARACTERS
        and _MIXED.match(letters) is not None
        and 4 * words < len(letters)
        and (max(lengths) >= _LONG_LINE or 2 * max(lengths.values()) >= lengths.total())
    )


def is_payload(text: str) -> bool:
    """Whether a text is data and nothing else."""
    return text[:1] != "[" and without_payloads(text) in MARKS.values()


def kind_of(part: Mapping[str, Any]) -> str | None:
    """The kind of data that a part stands for, by its type or its media type; None: of none."""
    kind = _kind_by_name(part["type"])
    if part["type"].lower().removesuffix("s") in _KINDS and not _holds_data(part):
        kind = None  # a word of a tool's own JSON
    if kind not in (None, "document"):
        return kind
    if next(_outputs(part, but=("source", "resource")), None) is not None:
        return None  # a result, or a file given as text
    if media_type := _media_type(part):
        return _kind_of_media(media_type.partition("/")[0])
    return kind


def _holds_data(part: Mapping[str, Any]) -> bool:
    fields = (field for place in _places(part) for field in place.items())
    return any(
        key in _DATA_FIELDS or key == "source" or _kind_by_name(key)
        for key, value in fields
        if isinstance(value, (str, Mapping)) and value
    )


def _outputs(part: Mapping[str, Any], but: Sequence[str] = ()) -> Iterator[object]:
    places = _places(part, but)
    return (place[key] for place in places for key in _OUTPUTS if place.get(key) is not None)


def _kind_by_name(name: str) -> str | None:
    match = _NAME.fullmatch(name.replace("_", "").replace("-", "").lower())
    return _KINDS[match[1]] if match else None


def _media_type(part: Mapping[str, Any]) -> str:
    for place in _places(part):
        data = [place[key] for key in _DATA_FIELDS if isinstance(place.get(key), str)]
        names = [place[key] for key in _MEDIA_TYPES if isinstance(place.get(key), str)] if data else []
        names += [one[5:100].partition(";")[0] for one in data if one.startswith("data:")]
        if names:
            return str(names[0])
    return ""


def part_text(part: Mapping[str, Any]) -> str:
    """A content part as text: its own, or a mark, name and captions; the same of parts in it."""
    lines = [line for line in _lines(part) if line]
    return "\n".join(lines or _values_beside(part, ()))


def named_text(part: Mapping[str, Any]) -> str:
    """A part as text, for a library or an API that lacks such parts: its words, or at least its type.

    Empty for a thought, and for a part that an adapter keeps for its own library.
    """
    if is_thinking(part) or KEPT in part:
        return ""
    if part["type"] == "text":
        return str(part["text"])
    if _keeps_others(part):
        part = {key: value for key, value in part.items() if key not in _KEEPING}
    return without_payloads(part_text(part)) or f"[{part['type']}]"


def _keeps_others(part: Mapping[str, Any]) -> bool:
    kept = [part[key] for key in _KEEPING if isinstance(part.get(key), Mapping)]
    return any("role" in one or str(one.get("part_kind")).startswith(_OTHERS) for one in kept)


def _values_beside(part: Mapping[str, Any], read_ids: Collection[int]) -> Iterator[str]:
    """The values of a part but for the said ones, as its type and JSON; its ids only if nothing is said."""
    if is_thinking(part) or KEPT in part or (not read_ids and any(one for _, one in tool_parts([part]))):
        return
    values = _plain_values({**part, "type": ""}, read_ids, _NO_WORDS if read_ids else _OPAQUE)
    if values not in _EMPTY:
        shown = values if isinstance(values, str) else json.dumps(values, ensure_ascii=False, default=str)
        yield f"[{part['type']}] {shown}"


def _plain_values(value: Any, read_ids: Collection[int], but: re.Pattern[str]) -> Any:
    """A value without fields that are empty, said or of some names; of a field alone its value."""
    if isinstance(value, Mapping):
        named = [(str(key), item) for key, item in value.items() if id(item) not in read_ids]
        fields = {key: _plain_values(item, read_ids, but) for key, item in named if not but.search(key)}
        fields = {key: item for key, item in fields.items() if item not in _EMPTY}
        return next(iter(fields.values())) if len(fields) == 1 else fields
    return [_plain_values(item, read_ids, but) for item in value] if isinstance(value, list) else value


def source_text(part: Mapping[str, Any]) -> str:
    """The text of a document that is given as text; empty for other parts."""
    for key in _SOURCES:
        source = part.get(key)
        if not isinstance(source, Mapping):
            continue
        is_given = source.get("type") in ("text", "content")
        if value := (is_given and source.get("data")) or source.get("content") or source.get("text"):
            return "\n".join(_readable(value))
        if text := source_text(source):
            return text
        if key == "data" and source.keys().isdisjoint(("type", *_DATA_FIELDS)):
            return json.dumps(source, ensure_ascii=False, default=str)  # a record
    return next(filter(None, _texts_in_data(part)), "")


def _texts_in_data(part: Mapping[str, Any]) -> Iterator[str]:
    media_type = _media_type(part)
    if media_type and not media_type.startswith("text/"):
        return
    for data in _texts(part, ("file_data", "data", "base64", "blob", "url")):
        if data.startswith("data:"):
            head, _, body = data.partition(",")
            yield _text_in_base64(body) if head.endswith(";base64") else unquote(body)
    for data in _texts(part, ("file_data", "data")):
        if (" " in data or data[:1] in "{[") and not data.startswith("data:") and not is_payload(data):
            yield data
    for data in _texts(part, ("file_data", "data", "base64", "blob") if media_type else ()):
        if not data.startswith("data:"):
            yield _text_in_base64(data) or ("" if is_payload(data) else data)


def _text_in_base64(data: str) -> str:
    """The text that is given in base64, of any alphabet and in lines of any length; empty if none is."""
    with suppress(ValueError):
        octets = b64decode("".join(data.split()).translate(_URL_SAFE), validate=True)
        return octets.decode().replace("\x00", "")
    return ""


def spoken_text(extra: Mapping[str, Any]) -> str:
    """The text of further fields: a refusal, sound, pictures and files."""
    lines: list[str] = []
    for name, value in extra.items():
        if name in ("refusal", "tool_plan") and isinstance(value, str):
            lines.append(value)
        for one in value if isinstance(value, list) else [value] if isinstance(value, Mapping) else ():
            part = one if isinstance(one, Mapping) else {"url": one}
            if "type" in part or _media_type(part):
                part = {"type": name, **part}
                lines += _lines(part) if is_part(part) and kind_of(part) else ()
            elif (kind := _kind_by_name(name)) and any(part.get(key) for key in _FIELDS_OF.get(kind, _HELD)):
                lines += (_mark(kind, part), *(captions(part) if name == "audio" else ()))
    return "\n".join(lines)


def _lines(part: Mapping[str, Any]) -> Iterator[str]:
    if is_thinking(part) or KEPT in part:
        return
    ((_, tool),) = tool_parts([part])
    text = next((part[key] for key in _SPOKEN if isinstance(part.get(key), str)), None)
    if text is not None and part["type"] == "text":
        yield text
        return  # no model is shown its further fields
    beside = [*captions(part)]
    if kind := text is None and kind_of(part):
        yield _mark(kind, part)
        yield from filter(None, (source_text(part),))
    else:
        output = tool.value if tool and tool.is_result else next(_outputs(part), None)
        printed = [part[key] for key in _PRINTED if part.get(key) and isinstance(part[key], str)]
        texts = [] if text is None else [text]
        texts = texts or [*printed, *([*_readable(output)] or _texts(part, _SPOKEN))]
        if (texts or beside) and not (tool or any(_texts(part, ("transcript",)))):
            yield from _values_beside(part, {id(one) for one in (output, *texts, *beside)})
        yield from texts
    yield from beside


def _mark(kind: str, part: Mapping[str, Any]) -> str:
    name = next(_texts(part, _NAMES), "") or _file_of_url(part)
    return f"{MARKS[kind]} {name}".rstrip()


def captions(part: Mapping[str, Any]) -> Iterator[str]:
    """The texts that stand with a picture, sound or file."""
    return _texts(part, _CAPTIONS)


def beside_texts(part: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a picture, sound or file that an API which takes it has no field for."""
    lists = (line for value in _outputs(part) if isinstance(value, list) for line in _readable(value))
    return filter(None, map(without_payloads, (*_texts(part, ("text", "content", *_CAPTIONS)), *lists)))


def _readable(value: object) -> Iterator[str]:
    """The lines of a result: a text, parts, or JSON, of which a single value stands for its object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _readable(item)
    elif isinstance(value, Mapping):
        fields = {key: item for key, item in value.items() if key != "type"}
        lines = [*_lines(value)] if is_part(value) else []
        if lines or is_thinking(value):
            yield from lines
        elif len(fields) == 1:
            # Of a part, its outputs were read for its lines.
            is_read = is_part(value) and next(_outputs(value), None) is not None
            yield from () if is_read else _readable(next(iter(fields.values())))
        elif fields:
            yield json.dumps(fields, ensure_ascii=False, default=str)
    elif value is not None:
        yield json.dumps(value, default=str)


def _texts(part: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[str]:
    for place in _places(part):
        yield from (place[key] for key in keys if isinstance(place.get(key), str))


def _places(part: Mapping[str, Any], but: Sequence[str] = ()) -> Iterator[Mapping[str, Any]]:
    yield part
    but = (*_INPUTS, *but)
    yield from (value for key, value in part.items() if isinstance(value, Mapping) and key not in but)


def _file_of_url(part: Mapping[str, Any]) -> str:
    """The name of the file that a part's URL names, without what may be secret in it."""
    values = (value for place in _places(part) for value in place.values() if isinstance(value, str))
    url = next((value for value in values if value.startswith("http")), "")
    try:
        return urlsplit(url).path.rpartition("/")[2]
    except ValueError:
        return ""


def _may_hold_payload(text: str) -> bool:
    """Whether words as long as a line of base64 stand in it, which prose lacks, and enough of them."""
    start = 0
    while start + _MIN_LINE <= len(text):
        end = start + _MIN_LINE
        if (blank := text.rfind(" ", start, end)) < 0:
            words = text[start:].split()
            return sum([len(word) for word in words if len(word) >= _MIN_LINE]) >= MIN_PAYLOAD_CHARACTERS
        start = blank + 1
    return False


def _kind_of_media(name: str) -> str:
    return name if name in ("image", "audio", "video") else "document"


def _kind_by_beginning(payload: str) -> str:
    return next((kind for start, kind in _BEGINNINGS.items() if payload.startswith(start)), "data")
