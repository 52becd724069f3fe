"""The forms of answers: the JSON that a model may return for each task, and how text is read as such.

A near miss is read as it is meant (a number for a list of one, ``"ADD"`` for ``add``); an item that cannot be
read is left out, and its neighbours stay.  ``answers`` interprets the content.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import takewhile
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError

from strandline.pipelines.models.contract import TaskName
from strandline.pipelines.models.loose_json import Found, bounded_int, find_values, spellings
from strandline.pipelines.text.common_words import speakers
from strandline.schemas.errors import UnusableAnswerError
from strandline.schemas.values.normal_form import folded

OperationName = Literal["add", "update", "invalidate", "duplicate"]
InstructedOperation = Literal["add", "update", "delete"]

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NUMBER = re.compile(r"[0-9]+")
_BETWEEN_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|[\s-]")
# A number with the word before it that a model adds, as in "n3" and "line 3".
_NAMED_NUMBER = re.compile(r"[^\W\d]{0,12}[\s#.:]{0,3}([0-9]{1,20})(?:\.0{1,4})?[.:)]?")

# Of a longer list the beginning is read: no task has so many facts, lines or topics.
MAX_LIST_ITEMS = 10_000
# How deep the forms below go: an object, its list, an object in it, its list, a number.
_MAX_FORM_LEVELS = 5
# Keys behind which a gateway or a model puts an answer as text.
_WRAPPERS = frozenset("arguments parameters input answer result output content response".split())
# Of so many values in one text the first that has the form is looked for.
_MAX_CANDIDATES = 200
_MAX_WRAPPING = 4

# Models' words for an operation; "no change" of a fact means that it says the same already.
_OPERATIONS = dict.fromkeys(("none", "noop", "no", "no op", "no change", "no changes", "keep"), "duplicate")
_OPERATIONS |= dict.fromkeys(("create", "insert", "new"), "add")
_ENDING = {"delete": "invalidate", "remove": "invalidate", "end": "invalidate"}
_DELETING = {"remove": "delete", "invalidate": "delete"}
# Read by their first word alone, as in "add_fact"; "delete_all" is no "delete", "no longer valid" no "no".
_HARMLESS = ("add", "update", "duplicate")
# Where an object has a text in the place of one.
_TEXTS = ("text", "content", "summary", "value")
# An update without a wording changes nothing.
_KEEPING = {word: "update" for word, op in _OPERATIONS.items() if op == "duplicate"}

_Answer = TypeVar("_Answer", bound=BaseModel)


def _number(value: object) -> object:
    value = _first(value)
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "null", "none")):
        return None
    if isinstance(value, str) and (named := _NAMED_NUMBER.fullmatch(value.strip())):
        return bounded_int(named[1])
    return value


def _numbers(value: object) -> list[int]:
    if isinstance(value, str):
        if not (texts := _NUMBER.findall(value)):
            raise ValueError("it holds no number")
        return [bounded_int(digits) for digits in texts[:MAX_LIST_ITEMS]]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        nested = (_numbers(item) for item in value[:MAX_LIST_ITEMS] if _holds_numbers(item))
        return [number for numbers in nested for number in numbers]
    whole = _whole(value)
    return [] if whole is None else [whole]


def _holds_numbers(value: object) -> bool:
    return not isinstance(value, str) or _NAMED_NUMBER.fullmatch(value.strip()) is not None


def _whole(value: object) -> int | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e18 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _words(value: object) -> list[str] | None:
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    return [item for item in items[:MAX_LIST_ITEMS] if isinstance(item, str)]


def _first(value: object) -> object:
    return value if not isinstance(value, list) else value[0] if value else None


def _phrase(value: object) -> str | None:
    first = _first(value)
    if isinstance(first, int) and not isinstance(first, bool):
        return str(first)
    return first if isinstance(first, str) else None


def _sentences(value: object) -> object:
    return " ".join(_words(value) or ()) if isinstance(value, list) else value


def _told(value: object) -> object:
    if isinstance(value, list):
        return _sentences([*map(_told, value)])
    if isinstance(value, dict):
        return next((value[key] for key in _TEXTS if isinstance(value.get(key), str)), value)
    return value


def _operation(synonyms: Mapping[str, str]) -> Callable[[object], object]:
    def read(value: object) -> object:
        words = re.sub(r"[_\W]+", " ", (_phrase(value) or "").lower()).strip()
        first = words.partition(" ")[0]
        name = synonyms.get(first, first)
        return name if name in _HARMLESS and first != "no" else synonyms.get(words, words)

    return read


_Number = Annotated[int, BeforeValidator(_number)]
_AnyNumber = Annotated[int | None, BeforeValidator(_number)]
_Numbers = Annotated[list[int], BeforeValidator(_numbers)]
_Words = Annotated[list[str] | None, BeforeValidator(_words)]
_Phrase = Annotated[str | None, BeforeValidator(_phrase)]
_Sentences = Annotated[str, BeforeValidator(_sentences)]
_Item = TypeVar("_Item")
# One wrong item is told of; each is looked at by itself then.
_Items = Annotated[list[_Item], FailFast()]


def _also(name: str, others: str) -> Any:
    """The names of a field, the first of which the schema has."""
    return Field(validation_alias=AliasChoices(name, *others.split()))


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


_MESSAGES = "message lines line sources source message_numbers message_ids line_numbers line_ids references"
_MESSAGES += " n number message_number message_id line_number line_id"
_OP, _CANDIDATE = "operation action event decision", "candidate_number candidate_id"


class FactAnswer(_Form):
    text: Annotated[
        _Sentences, _also("text", "fact content statement memory sentence description value fact_text")
    ]
    messages: Annotated[_Numbers, _also("messages", _MESSAGES)] = []
    topics: _Words = None
    said_by: _Phrase = None
    about_date: _Phrase = None


class ExtractAnswer(_Form):
    facts: _Items[FactAnswer]


class OperationAnswer(_Form):
    op: Annotated[OperationName, BeforeValidator(_operation(_OPERATIONS | _ENDING)), _also("op", _OP)]
    candidate: Annotated[_Number, _also("candidate", _CANDIDATE)]
    fact: _AnyNumber = None
    text: _Phrase = None


class MergeAnswer(_Form):
    operations: _Items[OperationAnswer]


class MergedFactAnswer(_Form):
    text: Annotated[_Sentences, Field(pattern=r"\S")]
    merged: _Numbers
    topics: _Words = None


class CondenseAnswer(_Form):
    facts: _Items[MergedFactAnswer]
    kept: _Numbers


class InstructedAnswer(_Form):
    op: Annotated[InstructedOperation, BeforeValidator(_operation(_OPERATIONS | _KEEPING | _DELETING))]
    fact: _AnyNumber = None
    text: _Phrase = None


class InstructAnswer(_Form):
    operations: _Items[InstructedAnswer]


class SummaryAnswer(_Form):
    summary: Annotated[str, BeforeValidator(_told), Field(pattern=r"\S")]
    topics: _Words = None


class ChooseAnswer(_Form):
    facts: _Numbers


FORMS: dict[TaskName, type[BaseModel]] = {
    "extract": ExtractAnswer,
    "merge": MergeAnswer,
    "condense": CondenseAnswer,
    "instruct": InstructAnswer,
    "summary": SummaryAnswer,
    "choose": ChooseAnswer,
}


@dataclass(frozen=True, slots=True)
class Reading(Generic[_Answer]):
    """An answer as it was read.

    Attributes:
        left_out: items of its list that could not be read.
        is_cut: the text ended within it; its complete items are there.
    """

    answer: _Answer
    left_out: int = 0
    is_cut: bool = False

    @property
    def is_empty_by_mistake(self) -> bool:
        """Whether there were items, and none could be read."""
        is_incomplete = self.left_out > 0 or self.is_cut
        return is_incomplete and not getattr(self.answer, list_name(type(self.answer)))


def answer_schema(name: TaskName) -> dict[str, Any]:
    """The JSON schema of a task's answer, in the subset that strict structured output takes."""
    return json.loads(_schema_text(name))  # type: ignore[no-any-return]


def read_answer(form: type[_Answer], text: str) -> Reading[_Answer]:
    """The first value in ``text`` that has the form, mended where its meaning is certain.

    Raises:
        UnusableAnswerError: no value has it; the sentence names the fields, never their content.
    """
    as_written, *others = spellings(text)
    try:
        return _read_spelled(form, as_written)
    except UnusableAnswerError:
        for other in others:
            with suppress(UnusableAnswerError):
                return _read_spelled(form, other)
        raise


def _read_spelled(form: type[_Answer], text: str) -> Reading[_Answer]:
    candidates = find_values(text)[:_MAX_CANDIDATES]
    problem, empty = "", None
    is_alone = len(candidates) == 1
    for place, candidate in enumerate(candidates, 1):
        try:
            reading = _read(form, candidate, is_alone)
        except _OtherFormError as error:
            problem = problem or str(error)
            continue
        if not _says_nothing(getattr(reading.answer, list_name(form))):
            return _with_more(reading, takewhile(lambda one: one.follows, candidates[place:]))
        if reading.is_empty_by_mistake:
            problem = "No item of the answer's list is complete and has the form asked for."
        else:
            empty = empty or reading
    if empty is not None:
        return empty
    if len(candidates) > 1 and _item_form(form) and all(map(_is_outermost_object, candidates)):  # one a line
        lines = Found([candidate.value for candidate in candidates], candidates[-1].is_cut)
        if not (reading := _read(form, lines, is_alone=True)).is_empty_by_mistake:
            return reading
    if not text.strip():
        raise UnusableAnswerError("The model's answer is empty.")
    raise UnusableAnswerError(problem or "The answer is not one complete JSON object.")


def _with_more(reading: Reading[_Answer], others: Iterable[Found]) -> Reading[_Answer]:
    """An answer with the lists of others, each item once, as several calls give them."""
    answer, left_out, is_cut = reading.answer, reading.left_out, reading.is_cut
    for other in others:
        with suppress(_OtherFormError):
            more = _read(type(answer), other, is_alone=False)
            both = {name: (value, getattr(more.answer, name)) for name, value in answer}
            lists = {
                name: list({repr(item): item for item in (*one, *two)}.values())[:MAX_LIST_ITEMS]
                for name, (one, two) in both.items()
                if isinstance(one, list) and isinstance(two, list)
            }
            answer = answer.model_copy(update=lists)
            left_out, is_cut = left_out + more.left_out, more.is_cut
    return Reading(answer, left_out, is_cut)


def _says_nothing(content: Any) -> bool:
    """Whether an answer's list or text is empty, or of placeholders alone, as an example of the form is."""
    if not isinstance(content, list):
        return isinstance(content, str) and is_placeholder(content)
    return all(isinstance(getattr(item, "text", None), str) and is_placeholder(item.text) for item in content)


class _OtherFormError(Exception):
    """A value does not have the form asked for; the sentence names the fields, never their content."""


def _read(form: type[_Answer], candidate: Found, is_alone: bool) -> Reading[_Answer]:
    listed, item = list_name(form), _item_form(form)
    fields = _fields(candidate, listed, item, is_alone)
    try:
        return Reading(form.model_validate(fields), is_cut=candidate.is_cut)
    except ValidationError as error:
        problem = error
    items = fields.get(listed)
    if item is None or not isinstance(items, list):
        raise _OtherFormError(_form_problem(problem))
    readable = [one for one in map(_item, items) if _has_form(item, one)]
    try:
        answer = form.model_validate({**fields, listed: readable})
    except ValidationError as error:
        raise _OtherFormError(_form_problem(error)) from None
    return Reading(answer, len(items) - len(readable), candidate.is_cut)


def _fields(candidate: Found, listed: str, item: type[BaseModel] | None, is_alone: bool) -> dict[str, Any]:
    """The fields of an answer, its list as a list, also if a model wrote one of these in its place:

    [{"text": …}, {"text": …}]        the list alone
    {"text": …}                       an item alone
    {"facts": null}, {}, []           nothing
    {"facts": "[{\\"text\\": …}]"}     the list as text
    {"facts": {"1": {"text": …}}}     each item by a name
    {"facts": {"text": …}}            one item for the list
    {"facts": "…"}                    one text for the list
    {"count": 1, "items": [{…}]}      the list by another name, next to words and numbers alone
    """
    is_bare = isinstance(candidate.value, list)
    value = _unwrapped(_readable(candidate.value, _MAX_FORM_LEVELS + _MAX_WRAPPING), listed)
    if item and is_alone and isinstance(value, dict) and not (listed in value or _has_form(item, value)):
        value = _sole_list(value, item) or value
    is_list = isinstance(value, list) and candidate.is_outermost
    if is_list and (any(map(_is_object, value)) or (value == [] and is_bare and is_alone)):
        value = {listed: value}
    if not isinstance(value, dict):
        raise _OtherFormError("The answer is not one complete JSON object.")
    if item is None:
        return value
    fields = {**value, listed: _of_text(value[listed])} if listed in value else value
    if listed not in fields and is_alone and candidate.is_outermost and _has_form(item, fields):
        return {listed: [fields]}
    if (listed in fields and fields[listed] is None) or (is_alone and candidate.is_outermost and not fields):
        return {**fields, listed: []}
    items = fields.get(listed)
    if isinstance(items, dict) and items and all(map(_is_object, items.values())):
        return {**fields, listed: list(items.values())}
    return {**fields, listed: [items]} if isinstance(items, (dict, str)) else fields


def _unwrapped(value: Any, listed: str) -> Any:
    """The outermost object with the form's key; the list in the place of one; else the value."""
    level = [value]
    for _ in range(_MAX_WRAPPING):
        level = [_with_plain_name(one, listed) for one in level]
        if holders := [one for one in level if isinstance(one, dict) and listed in one]:
            lists = [one[listed] for one in holders if isinstance(one[listed], list)]
            return holders[0] if len(lists) < 2 else {listed: [item for one in lists for item in one]}
        level = [inner for one in level for inner in _inner(one)]
    for _ in range(_MAX_WRAPPING):
        if isinstance(value, dict) and len(value) == 1:
            (value,) = value.values()
        elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
            (value,) = value
    return value


def _sole_list(value: dict[str, Any], item: type[BaseModel]) -> list[Any] | None:
    """The list of objects in an object whose other values are words and numbers; or items, each by a name."""
    if value and all(_is_object(one) and _has_form(item, one) for one in value.values()):
        return list(value.values())
    held = [one for one in value.values() if isinstance(one, (list, dict))]
    return held[0] if len(held) == 1 and isinstance(held[0], list) and any(map(_is_object, held[0])) else None


def _with_plain_name(value: Any, listed: str) -> Any:
    """An object whose list, or summary, has a longer name, such as "extracted_facts", by the plain one."""
    kind, other_texts = (str, _TEXTS) if listed == "summary" else (list, ("text",))
    if not isinstance(value, dict) or not value.keys().isdisjoint(other_texts):
        return value
    longer = [key for key in value if key.endswith(f"_{listed}") and isinstance(value[key], kind)]
    return value if listed in value or len(longer) != 1 else {**value, listed: value[longer[0]]}


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [_of_text(item) if key in _WRAPPERS else item for key, item in value.items()]
    return value if isinstance(value, list) else []


def _of_text(value: Any) -> Any:
    """The JSON in a text; the value if it holds none."""
    is_json = isinstance(value, str) and value.strip().startswith(("{", "["))
    held = find_values(value) if is_json else []
    return _readable(held[0].value, _MAX_FORM_LEVELS) if held else value


def _is_outermost_object(candidate: Found) -> bool:
    return candidate.is_outermost and isinstance(candidate.value, dict)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _item(value: object) -> object:
    if isinstance(value, dict) and len(value) == 1 and _is_object(inner := next(iter(value.values()))):
        return inner
    return {"text": value} if isinstance(value, str) else value


def _has_form(form: type[BaseModel], value: object) -> bool:
    try:
        form.model_validate(value)
    except ValidationError:
        return False
    return True


def _form_problem(error: ValidationError) -> str:
    problems = error.errors(include_input=False, include_url=False, include_context=False)[:5]
    listed = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'answer'}: {one['msg']}" for one in problems)
    return f"The answer does not have the form asked for: {listed}."


@cache
def list_name(form: type[BaseModel]) -> str:
    return next(iter(form.model_fields))


@cache
def _item_form(form: type[BaseModel]) -> type[BaseModel] | None:
    kinds = get_args(form.model_fields[list_name(form)].annotation)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def storable(text: str) -> str:
    """``text`` without NUL and lone surrogates, which Postgres cannot store and UTF-8 cannot encode."""
    return _UNSTORABLE.sub("", text)


def _readable(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_readable(item, levels - 1) for item in value[:MAX_LIST_ITEMS]] if levels > 1 else None
    if isinstance(value, dict):
        return _readable_object(value, levels) if levels > 1 else None
    return value


def _readable_object(value: dict[str, Any], levels: int) -> dict[str, Any]:
    keys = [_BETWEEN_WORDS.sub("_", storable(key).strip()).lower() for key in value]
    return {key: _readable(item, levels - 1) for key, item in zip(keys, value.values(), strict=True)}


@cache
def _schema_text(name: TaskName) -> str:
    schema = FORMS[name].model_json_schema()
    return json.dumps(_strict(schema, schema.get("$defs", {})))


def _strict(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Keep only what every server's strict mode knows; references are written out, all fields required."""
    if "$ref" in node:
        return _strict(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in node:
        return {"anyOf": [_strict(option, definitions) for option in node["anyOf"]]}
    kept: dict[str, Any] = {key: node[key] for key in ("type", "enum") if key in node}
    if "items" in node:
        kept["items"] = _strict(node["items"], definitions)
    if "properties" in node:
        kept["properties"] = {key: _strict(item, definitions) for key, item in node["properties"].items()}
        kept["required"] = list(node["properties"])
        kept["additionalProperties"] = False
    return kept


# The longest that is looked at: more says something.
_MAX_CHARACTERS = 120
_WORD = re.compile(r"n/a|\w[^\s.,;:!?()\"]*")
_TEMPLATE_SLOT = re.compile(r"<[^<>]+>|\{{1,3}[^{}]+\}{1,3}|\$[a-z_]+|\[\w{1,12}\]")
_AROUND = "<>[](){}«»„“”\"'`*_.…。।!?: \n\t-–—"
_JAPANESE_DENIALS = ("なし", "ない", "ません")


def is_placeholder(text: str) -> bool:
    """Whether a text says nothing: no letter and no digit, or only words of forms or for nothing."""
    if len(text) > _MAX_CHARACTERS:
        return not any(map(str.isalnum, text))
    plain = folded(text).strip(_AROUND)
    if not any(map(str.isalnum, plain)) or _TEMPLATE_SLOT.fullmatch(text.strip()):
        return True
    plain = (plain.lstrip(f"{_AROUND}#0123456789") or plain).replace("’", "'").replace(" / ", "/")
    forms, denying, empty, nouns, pieces, marks = _table()
    spoken = set(_WORD.findall(plain))
    words = spoken - speakers()
    is_of_nothing = bool(words & denying) and words <= empty and (words == spoken or bool(words & nouns))
    if is_of_nothing or plain.rstrip(f"{_AROUND}#0123456789") in forms:
        return True
    denies = any(mark in plain for mark in (*marks, *_JAPANESE_DENIALS))
    return denies and pieces.fullmatch(plain) is not None


@cache
def _table() -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str], re.Pattern[str], str]:
    file = resources.files(__package__) / "placeholders.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    denying = frozenset(table["denying"].split())
    pieces = re.compile(rf"(?:{'|'.join(table['unspaced'])}|\s)+")
    return (
        frozenset(table["forms"]),
        denying,
        denying.union(table["empty"].split(), table["nouns"].split()),
        frozenset(table["nouns"].split()),
        pieces,
        table["unspaced_denying"],
    )
