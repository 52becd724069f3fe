"""Words as full-text search sees them, computed here and stored, never by SQL over content.

Managed Postgres takes no stop-word files, and stored content may be encrypted; so text becomes
lexemes in Python, for stored rows and for queries by the same rules: NFKC, case folding, a Snowball
stemmer (of a word's own script), a stop list that includes question words, and character bigrams for
scripts that are written without spaces.

A word that people write in several ways has *variants*, in texts and queries alike: "José" is also "jose",
"5km" also "5" and "km", "v18.1" also "18.1", a telephone number also its digits in a row.  A text also holds
what may be a word of one character, so that a query of one character finds it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, wraps
from itertools import chain
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar, cast
from unicodedata import normalize  # noqa: TID251 - of one token, whose marks are few

import snowballstemmer  # type: ignore[import-untyped]

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.forking import renew_in_child
from strandline.schemas.values.normal_form import normal_form

P = ParamSpec("P")
T = TypeVar("T")
# Longer texts are read each time: facts are this short.
MAX_REMEMBERED_CHARACTERS = 1_000
# Postgres' own bounds on a tsvector.
MAX_POSITION = 16_383
MAX_POSITIONS_PER_LEXEME = 255
# Under its 1 MB for a whole value, with room for alignment.
MAX_VECTOR_BYTES = 900_000
MAX_TOKEN_CHARACTERS = 200  # at most 800 bytes, of the 2046 that a lexeme may have
MAX_STEMMED_CHARACTERS = 40

# Scripts without spaces between words: Han, kana, Thai, Lao, Myanmar, Khmer; and Hangul, for its suffixes.
_UNSPACED = (
    "\u3005\u3007\u3040-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\u1100-\u11ff\u3131-\u318e\uac00-\ud7ff\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u1049\u1780-\u17d3"
    "\U00020000-\U0003ffff"
)
# A word of one character: an ideograph anywhere, a Hangul syllable where only suffixes follow.
_SINGLE = re.compile(
    "[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    "|(?<![\uac00-\ud7a3])[\uac00-\ud7a3]"
)
_UNSPACED_CHARACTERS = re.compile(rf"[{_UNSPACED}]")
# English rules leave words of these scripts as they are: first and last letter, and whose rules fit.
_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u052f", "russian"),
    ("\u0620", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
)
# Vowel signs and points that belong inside a word, though re's \w leaves them out.
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u0610-\u061a\u064b-\u065f\u0670"
_MARKS += "\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0980-\u0d7f\u200c\u200d"
_LETTERS = rf"(?:[^\W_{_UNSPACED}]+|[{_MARKS}])+"
# Not of an unspaced script: its digits end a word, and each of many words would look through them all.
_DIGIT = rf"[^\D{_UNSPACED}]"
_TOKEN = re.compile(
    rf"([{_UNSPACED}]+)"
    rf"|([Vv]?{_DIGIT}+(?:[.,]{_DIGIT}+)+(?![\w{_MARKS}]))"
    # A word; or emoji and other pictures, without the tones of skin.
    rf"|({_LETTERS}(?:'{_LETTERS})*|[\u2600-\u27bf\U0001f300-\U0001f3fa\U0001f400-\U0001faff])"
)
# Digits in groups, as telephone numbers are written; so long that dates and amounts are seldom meant.
_GROUPS = re.compile(r"(?<![\w.,])\+?\d{1,4}(?:[ ./()-]{1,2}\d{2,5}){2,5}(?![\w.,]\d)", re.ASCII)
_FEWEST_DIGITS, _MOST_DIGITS, _DIGITS_OF_DATE = 7, 15, 8
_YEAR = re.compile(r"(?:19|20)\d\d")
_PARTS = re.compile(r"\d+|[^\W\d_]+")
# Other commas divide fractions, as much of Europe writes them.
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
# Names that are also stop words, as names are written.
_NAMES = frozenset({"Will", "May", "IT", "US", "WHO"})
# Letters that no mark is taken off from, but that are written without.
_PLAIN_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)
_WITH_PLAIN_FORM = re.compile("[\u00c0-\u024f\u0370-\u03ff\u0451\u1e00-\u1fff\u0300-\u036f]")
_APOSTROPHES = re.compile("[\u2018\u2019\u02bc]")
_UNSEEN = re.compile("[\u00ad\u200b]")


def is_mostly_unspaced(text: str) -> bool:
    """Whether most letters of a text are of scripts that are written without spaces, or of Hangul."""
    unspaced = len(_UNSPACED_CHARACTERS.findall(text))
    return unspaced > 0 and 2 * unspaced > sum(map(str.isalpha, text))


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as running text."""
    return frozenset(text.split())


_ENGLISH_STOP_WORDS = word_set(
    """
    a an the this that these those some any each every either neither such own same other another both all
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her
    hers herself it its itself they them their theirs themselves one ones someone something anyone anything
    am is are was were be been being do does did doing done have has had having will would shall should can
    could may might must ought
    and or but nor so if then than because while although though unless until
    of at by for with about against between into through during before after above below to from up down in
    out on off over under again further once here there upon onto within without toward towards
    what which who whom whose when where why how whether
    not no only just too very also even ever yet still quite rather really
    as like well oh yeah yes ok okay hey hi hello wow
    i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll it's it'd it'll
    we're we've we'd we'll they're they've they'd they'll let's
    that's there's here's what's who's where's when's why's how's
    isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't
    won't wouldn't can't cannot couldn't shouldn't mustn't s t d ll m re ve
    """
)

STOP_WORDS = MappingProxyType({"english": _ENGLISH_STOP_WORDS})
"""Stop words by language; a language without an entry has none."""


class _Stemmers:
    """One stemmer per language, each for one thread at a time, as it has a buffer."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin without stemmers: in a forked child, another thread may have been at work with one."""
        self._lock = threading.Lock()
        self._of: dict[str, snowballstemmer.basestemmer.BaseStemmer] = {}

    def stem(self, token: str, language: str) -> str:
        with self._lock:
            stemmer = self._of.get(language)
            if stemmer is None:
                stemmer = self._of[language] = snowballstemmer.stemmer(language)
            stemmed: str = stemmer.stemWord(token)
            return stemmed


_stemmers = _Stemmers()
renew_in_child(_stemmers.renew)


def lexemes(text: str, *, language: str = "english") -> list[tuple[str, int]]:
    """Lexemes of ``text`` in order, each with its position (from 1; stop words count as places).

    A character that may be a word has the position of its bigram.  ``language`` is a
    Snowball algorithm's name, such as ``german``; with ``english``, words of other scripts have their own
    rules.

    Raises:
        ConfigurationError: no stemmer exists for ``language``.
    """
    return [
        (lexeme, position)
        for position, (forms, singles) in enumerate(_words(text, language), start=1)
        for lexeme in (*_stems(forms, language), *singles)
    ]


def length_of(positioned: Iterable[tuple[str, int]]) -> int:
    """A document's length for BM25: of its ``lexemes``, the places that they stand at."""
    return len({position for _, position in positioned})


def query_lexemes(text: str, *, language: str = "english") -> list[str]:
    """The distinct lexemes of a query, in order of first mention; empty when it is all stop words."""
    return list(dict.fromkeys(chain.from_iterable(words_of_query(text, language=language))))


def words_of_query(text: str, *, language: str = "english") -> list[tuple[str, ...]]:
    """The distinct words of a query, in order of first mention, each with the lexemes of its variants."""
    words = dict.fromkeys(forms for forms, _singles in _words(text, language) if forms)
    return list(dict.fromkeys(_stems(forms, language) for forms in words))


def indexed_lexemes(text: str) -> list[str]:
    """The distinct lexemes by which a short text is found, single characters among them."""
    return list(dict.fromkeys(lexeme for lexeme, _ in lexemes(text)))


def to_tsvector_text(positioned: Iterable[tuple[str, int]]) -> str:
    """``lexemes`` of a text as a literal for ``::tsvector``: quoted, with positions, within Postgres' bounds.

    Of a very long text, those first met are kept, up to about 900 kB.
    """
    places: dict[str, list[int]] = {}
    size = 0
    for lexeme, position in positioned:
        if lexeme not in places:
            cost = len(lexeme.encode()) + 8
            if size + cost > MAX_VECTOR_BYTES:
                continue
            size += cost
            places[lexeme] = []
        at = places[lexeme]
        if len(at) < MAX_POSITIONS_PER_LEXEME and position <= MAX_POSITION and size < MAX_VECTOR_BYTES:
            size += 2
            at.append(position)
    return " ".join(f"{_quoted(lexeme)}{_places(at)}" for lexeme, at in places.items())


def check_language(language: str) -> None:
    """Raise ConfigurationError, naming the choices, unless there is a stemmer for ``language``."""
    if language not in _LANGUAGES:
        raise ConfigurationError(
            f"No stemmer exists for the language {quote(language)};"
            f" choose one of {', '.join(sorted(_LANGUAGES))}."
        )


_LANGUAGES = frozenset(snowballstemmer.algorithms())


# The forms of a word in small letters, first as it is written, none of a stop word; and what may be words of
# one character in it.
_Word = tuple[tuple[str, ...], Sequence[str]]


def _words(text: str, language: str) -> Iterator[_Word]:
    check_language(language)
    stop = STOP_WORDS.get(language, frozenset())
    plain = text if text.isascii() else _UNSEEN.sub("", _APOSTROPHES.sub("'", normal_form(text)))
    is_question = plain.rstrip().endswith("?")
    for place, (run, number, word) in enumerate(_TOKEN.findall(plain)):
        if run:
            yield from _bigrams(normal_form(run.casefold()))
            continue
        written = (number or word)[:MAX_TOKEN_CHARACTERS]
        token = written.lower() if written.isascii() else normal_form(written.casefold())
        if number:
            token = _THOUSANDS.sub("", token)
            plain_number = token.lstrip("v").replace(",", ".")
            yield (token, plain_number) if plain_number != token else (token,), ()
        elif token not in stop:
            # Most are letters alone.
            yield (token,) if token.isascii() and token.isalpha() else (token, *_variants(token)), ()
        else:
            # At the beginning of a question it is a verb.
            is_verb = is_question and place == 0 and plain.startswith(written)
            yield (token,) if written in _NAMES and not is_verb else (), ()
    for group in _GROUPS.findall(plain):
        yield from _digits(group)


def _variants(token: str) -> Sequence[str]:
    bare = token if token.isascii() else _without_accents(token)
    parts = _PARTS.findall(bare) if not (bare.isalpha() or bare.isdigit()) and "'" not in bare else []
    return [one for one in (bare, *(parts if len(parts) == 2 else ())) if one not in (token, "")]


def _without_accents(token: str) -> str:
    """Of Latin and Greek letters, and without the dots of a Russian one; other scripts need their marks."""
    if not _WITH_PLAIN_FORM.search(token):
        return token
    bare = [one for one in normalize("NFD", token) if not "\u0300" <= one <= "\u036f"]
    return normalize("NFC", "".join(bare)).translate(_PLAIN_LETTERS)


def _digits(groups: str) -> Iterator[_Word]:
    parts = _PARTS.findall(groups)
    rows = ["".join(parts[first:]) for first in range(len(parts))]
    if len(rows[0]) == _DIGITS_OF_DATE and any(map(_YEAR.match, parts)):
        return
    if len(rows[0]) <= _MOST_DIGITS and (fit := [row for row in rows if len(row) >= _FEWEST_DIGITS]):
        yield tuple(fit), ()


def _bigrams(run: str) -> Iterator[_Word]:
    if len(run) == 1:
        yield (run,), ()
        return
    single = {match.start() for match in _SINGLE.finditer(run)}
    last = len(run) - 2
    for index in range(last + 1):
        places = (index, index + 1) if index == last else (index,)
        yield (run[index : index + 2],), [run[place] for place in places if place in single]


# Conversations repeat their words, so the cache keeps the lock of the stemmers off the usual path.
@lru_cache(maxsize=8_192)
def _stems(forms: tuple[str, ...], language: str) -> tuple[str, ...]:
    return tuple([_stem(form, language) for form in forms])


_forgetting: list[Callable[[], None]] = []


def remembered(read: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """``read``, once for each short text: a decision on facts asks for the same many times."""
    kept = lru_cache(maxsize=512)(read)
    _forgetting.append(kept.cache_clear)
    once = cast("Callable[Concatenate[str, P], T]", kept)

    @wraps(read)
    def remember(text: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = once if len(text) <= MAX_REMEMBERED_CHARACTERS else read
        return asked(text, *args, **kwargs)

    return remember


def forget_texts() -> None:
    """Empty the caches of short texts: none is kept beyond a turn of work."""
    for forget in _forgetting:
        forget()


def forget_words() -> None:
    """Empty the caches of words and of short texts: some may be of erased users."""
    _stems.cache_clear()
    forget_texts()


def _stem(token: str, language: str) -> str:
    if len(token) > MAX_STEMMED_CHARACTERS:
        return token
    return _stemmers.stem(token, _language_of(token, language)) or token


def _language_of(token: str, language: str) -> str:
    if language != "english" or token.isascii():
        return language
    return next((name for first, last, name in _SCRIPTS if first <= token[0] <= last), language)


def _quoted(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _places(at: list[int]) -> str:
    # A lexeme whose every place lies beyond the last position is still found: it is kept at that position.
    return ":" + ",".join(map(str, at or (MAX_POSITION,)))
