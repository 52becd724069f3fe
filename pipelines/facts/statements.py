"""Statements as code understands them: the words that one keeps, adds, denies or shares with another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, groupby, product

from strandline.pipelines.facts.kinds import kin_in, kinds_of, words_of_kinds
from strandline.pipelines.text.common_words import (
    SCRIPTS_WITHOUT_CASE,
    joining_words,
    language_of,
    negation_of,
    opposites,
    pattern,
    qualifiers_of,
    speakers,
    weak_words,
)
from strandline.pipelines.text.lexemes import lexemes, query_lexemes, remembered
from strandline.pipelines.text.numbers import in_digits, is_miscounted, numbers_in
from strandline.schemas.values.normal_form import folded, normal_form

# How much of a part's telling words a sentence must hold: all of three, all but one of four.
KEPT_SHARE = 0.75
# Words of one stem share this much of their beginning, and differ by no more at their ends.
_STEM, _ENDING = 4, 4
# A word this long that begins another is a part of it, as languages that write words together make them.
_COMPOUNDED = 8
# Smaller numbers alone tie nothing together: ages of children and days of months meet by chance.
_TELLING_NUMBER = 32

# Languages that deny at the end of a clause, so that the words before are denied.
_DENYING_LAST = frozenset({"japanese", "korean", "turkish", "hindi", "german"})

# Languages that tell by endings who does what, and so need no order.
_INFLECTING = frozenset({"russian", "cyrillic", "polish", "turkish", "finnish", "greek", "korean"})
# A verb in Arabic is he's or she's.
_ARABIC_PERSON = re.compile(r"(?<!\w)[يت](?=\w{2})|(?<=\w{2})ت(?!\w)")

# How often, or of how many: what says nothing of it may be of any.
_FREQUENCIES = frozenset({"always", "often", "sometimes"})
# So near before a wish stands what denies it.
_DENIED_WITHIN = 16
_FORM = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_CASED_NAME = re.compile(r"(?:^|(?<=[\w,;:)'’] )|(?<=[\w]['’]))(?=[^\W\d_])\w+")
_FOREIGN_NAME = re.compile(
    r"[\u30a1-\u30fa\u30fc]{2,}|(?<![a-z\u00df-\u024f])[a-z]{2,}(?![a-z\u00df-\u024f])"
)
_WEEKDAY = re.compile("[월화수목금토일]요일|[月火水木金土日]曜|(?:星期|礼拜|周)[一二三四五六日天]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_CHARACTER = re.compile("[\u3041-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\u0e01-\u0e4e]")
# Endings and joiners where no blanks are, and characters that are in too many words to tell anything.
_SINGLE = "\u3041-\u30fa\u3400-\u4dbf\u4e00-\u9fff\u0e01-\u0e4e"
_TOKEN = re.compile(f"[{_SINGLE}]|[^\\W_{_SINGLE}]+")
_MAX_END_WORDS = 4
_CONTENT = re.compile("[\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\u0e01-\u0e4e]")
_PARTICLES = frozenset("和与跟及并且也的了是在有而はがをにでとものへやだのは은는이가을를에의로와과도고며다")
_COMMON_CHARACTERS = _PARTICLES | frozenset(
    "一二三两个個只会要去来到不没无新现年月日人大小上下中好想说用喜欢住家开始每天又再"
)
_JOINING_PHRASES = re.compile(
    "という|である|です|ます|ている|こと|이라는|입니다|名叫|名为|并且|而且|以及|และ|แต่|(?<!\\S)(?:και|που|αλλά|είναι|और|लेकिन|है)(?!\\w)"
)
_CURRENCIES = str.maketrans(
    dict(zip("$€£¥₽", " dollar , euro , pound , yen , ruble ".split(","), strict=True))
)
# "A+", "-2.5"; no hyphen, and no dash.
_SIGN = re.compile(r"(?<=\b[ABO])[-\u2212](?!\w)|(?<![^\s(])[-+\u2212](?=\d)|(?<=\w)\+(?!\w)")
_ELISION = re.compile(r"(?<!\w)(?:[cdjlmnst]|un|qu|dell?|all|nell|sull|dall)'(?=\w\w)")


def holds_all_of(text: str, parts: Sequence[str]) -> bool:
    """Whether ``text`` says and denies all of the parts: words, some of each clause, numbers and names."""
    is_same = not is_denied_otherwise(text, parts) and not is_miscounted(text, parts)
    return is_same and all(_holds(text, part) for part in parts)


def _holds(text: str, part: str) -> bool:
    words = _words(text)
    if not numbers_in(part) <= numbers_in(text) or not all(has_name(name, text) for name in names_in(part)):
        return False
    if len(_tokens(text)) == len(_tokens(part)) and differ_in_part(text, part):
        return False
    if is_turned(text, part):
        return False
    own_words = telling_words(part) or _words(part)
    kept = _words_kept(own_words, words)
    clauses = [telling_words(clause) for clause in pattern("clause").split(part)]
    times = Counter(word for clause in clauses for word in clause)
    own = ({word for word in clause if times[word] == 1} for clause in clauses)
    return len(kept) >= KEPT_SHARE * len(own_words) > 0 and all(not clause or clause & kept for clause in own)


def says_all_of(text: str, other: str) -> bool:
    """Whether ``text`` has every telling word of another statement."""
    return _share(telling_words(other) or _words(other), _words(text)) == 1


def adds_to(text: str, parts: Sequence[str]) -> set[str]:
    """The words of ``text`` that no part has, without mere joining words."""
    plain, language = _plain(" ".join(parts)), language_of(text)
    spoken = numbers_in(plain)
    characters = set(plain) | _PARTICLES
    # As they stand too: "like" is a stop word, "likes" is none.
    known = joining_words(language).union(
        re.findall(r"\w+", plain), *(query_lexemes(_plain(part)) for part in parts)
    )
    stems = _stems(known)
    # In German every noun has a capital.
    named = set() if language == "german" else set(query_lexemes(" ".join(names_in(text))))
    return {
        word
        for word in query_lexemes(_JOINING_PHRASES.sub(" ", _plain(text)))
        if word not in known
        and not (numbers_in(word) and numbers_in(word) <= spoken)
        and not (_CHARACTER.search(word) and _is_joint(word, characters))
        and (word in named or not _is_known(word, known, stems))
    }


def _is_joint(word: str, characters: set[str]) -> bool:
    """Whether a pair of characters only joins known ones: ideographs, or with a particle."""
    return set(word) <= characters and (all(map(_HAN.match, word)) or bool(_PARTICLES & set(word)))


def are_exchanged(text: str, parts: Sequence[str]) -> bool:
    """Whether a text gives a person the words of another: "Tom is in Rome, and Eva in Porto"."""
    people = [(name, set(query_lexemes(part))) for part in parts if (name := leading_name(part))]
    for (name, own), (other, its) in combinations(people, 2):
        whose = groupby(word in own for word, _place in lexemes(text) if (word in own) != (word in its))
        if name != other and len([*whose]) == 3:
            return True
    return False


def is_turned(one: str, other: str) -> bool:
    """Whether two words have changed places: "Tom owes Eva 5 euros", "from Rome to Porto", "older than".

    Of characters several are a word; where endings tell who does what, people have changed theirs.
    """
    if _are_inflected_otherwise(one, other):
        return True
    if language_of(one) in _INFLECTING:
        return False
    left, right = _in_order(one), _in_order(other)
    begun = next(_equal_until(left, right))
    ended = next(_equal_until(left[begun:][::-1], right[begun:][::-1]))
    left, right = left[begun : len(left) - ended], right[begun : len(right) - ended]
    little, listed = joining_words(language_of(one)) - speakers(), pattern("listed")
    # Vowel signs are no letters to ``re``.
    has_parts = _CHARACTER.search(one) or language_of(one) == "hindi"
    lengths = range(1, _MAX_END_WORDS + 1 if has_parts else 2)
    for first, last in product(lengths, repeat=2):
        moved, between = (left[-last:], left[:first]), left[first:-last]
        if between and between != ["是"] and right == [*moved[0], *between, *moved[1]]:
            return little.isdisjoint((*moved[0], *moved[1])) and not any(map(listed.fullmatch, between))
    return False


def _are_inflected_otherwise(one: str, other: str) -> bool:
    """Whether two people have other endings: "Анна должна Борису", "Борис должен Анне"."""
    if {"partner"} & kinds_of(one) & kinds_of(other) or pattern("together").search(folded(one)):
        return False
    ended, begun = _cases(one) - _cases(other), _cases(other) - _cases(one)
    if any(a != b and c != d and {(a, d), (b, c)} <= begun for (a, c), (b, d) in combinations(ended, 2)):
        return True
    if language_of(one) not in _INFLECTING:
        return False
    left, right = _people(one), _people(other)
    pairs = ((a, b, next(_equal_until(a, b))) for a, b in product(left - right, right - left))
    alike = [(a, b) for a, b, same in pairs if same >= max(2, min(len(a), len(b)) - 2)]
    return min(len({a for a, _b in alike}), len({b for _a, b in alike})) > 1


@remembered
def _cases(text: str) -> set[tuple[str, int | None]]:
    nouns = pattern("cases", language_of(text)).finditer(folded(text))
    return {(noun[1], noun.lastindex) for noun in nouns}


def _people(text: str) -> set[str]:
    return {folded(w) for w in _FORM.findall(normal_form(text)) if w[0].isupper() or folded(w) in speakers()}


@remembered
def _in_order(text: str) -> list[str]:
    """The words of a text, without the article of a speaker."""
    words, articles = _TOKEN.findall(_ARABIC_PERSON.sub("", _plain(text))), joining_words(language_of(text))
    return [
        word
        for word, after in zip(words, [*words[1:], ""], strict=False)
        if after not in speakers() or word not in articles
    ]


@remembered
def is_negated(text: str) -> bool:
    return negation_of(text).search(_plain(text)) is not None


def is_denied_otherwise(text: str, parts: Sequence[str]) -> bool:
    """Whether a text denies though no part does, or the reverse; or denies the words that a part affirms."""
    if is_negated(text) != any(map(is_negated, parts)) or _opposed_words(text, " ".join(parts)):
        return True
    if not is_negated(text):
        return False
    denied, affirmed = _denials(text), [_denials(part) for part in parts]
    spoken = {word: set().union(*(one.get(word, ()) for one in affirmed)) for word in denied}
    return any(
        len(spoken[word]) == len(ways) == 1 and spoken[word] != ways and None not in spoken[word] | ways
        for word, ways in denied.items()
        if spoken[word]
    )


def share_of(one: str, other: str) -> float:
    """The share of a statement's telling words that another statement has, denied or not.

    Besides words that are the same, a kind of statement counts as a word: "by plane" is like "on flights".
    """
    own, spoken = _words_without_denial(one), numbers_in(other)
    kept = _words_kept(own, _words(other)) | {
        word for word in own if numbers_in(word) and numbers_in(word) <= spoken
    }
    alike = len(kinds_of(one) & kinds_of(other)) if kept else 0
    return min(1.0, (len(kept) + alike) / len(own)) if own else 1.0


@remembered
def _words_without_denial(text: str) -> frozenset[str]:
    return telling_words(negation_of(text).sub(" ", _plain(text)))


def contradict(one: str, other: str) -> bool:
    """Whether one of two statements denies the other, or says its opposite."""
    opposed = _opposed_words(one, other) if _tokens(one)[:1] == _tokens(other)[:1] else set()
    if (is_negated(one) != is_negated(other)) == bool(opposed):
        return False
    fewer, more = sorted((_words_without_denial(text) - opposed for text in (one, other)), key=len)
    # A verb may hold its denial, as in Turkish.
    return _share(fewer, more) == 1 if fewer else len(more) < 2


@remembered
def is_supposed(text: str) -> bool:
    """Whether a statement tells only a wish, a question or a possibility, reasons aside, and denies none."""
    match = pattern("supposed", language_of(text)).search(pattern("reason").sub(" ", _plain(text)))
    # "No longer wants to" is a decision.
    before = "" if match is None or language_of(text) in _DENYING_LAST else match.string[: match.start()]
    return match is not None and not negation_of(text).search(before[-_DENIED_WITHIN:])


def _opposed_words(one: str, other: str) -> set[str]:
    """The words that only one of two texts has where only the other has an opposite, also as lexemes."""
    here, there, table = set(_tokens(one)), set(_tokens(other)), opposites()
    pairs = [(word, table.get(word, frozenset()) & (there - here)) for word in here - there]
    words = {word for own, its in pairs if its for word in (own, *its)}
    return words.union(*map(query_lexemes, words))


def is_qualified_otherwise(one: str, other: str) -> bool:
    """Whether one of two statements alone is a wish, past or exclusive, or they differ in how often."""
    left, right = _qualifiers(one), _qualifiers(other)
    is_open = left.isdisjoint(_FREQUENCIES) or right.isdisjoint(_FREQUENCIES)
    return not left ^ right <= (_FREQUENCIES if is_open else frozenset())


def is_qualified_as(text: str, held: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a text has the qualifiers of all it must hold, and no others than its parts."""
    return _qualifiers(*held) <= _qualifiers(text) <= _qualifiers(*parts)


def _qualifiers(*texts: str) -> frozenset[str]:
    return frozenset().union(*(qualifiers_of(_plain(text)) for text in texts))


def counts_otherwise(one: str, other: str) -> bool:
    """Whether a statement has all words of another, with other numbers: the count has changed."""
    if not numbers_in(one) or not numbers_in(other) or numbers_in(one) == numbers_in(other):
        return False
    counted = {word for word in telling_words(other) if not numbers_in(word)}
    return bool(counted) and _share(counted, _words(one)) == 1 and is_negated(one) == is_negated(other)


@remembered
def _denials(text: str) -> dict[str, set[bool | None]]:
    """For each telling word whether it is denied; None where this cannot be told."""
    ways: dict[str, set[bool | None]] = {}
    denies_last, denying = language_of(text) in _DENYING_LAST, negation_of(text)
    for clause in pattern("clause").split(_plain(text)):
        denied: frozenset[str] = frozenset()
        for listed in pattern("listed").split(clause):
            negation, words = denying.search(listed), telling_words(listed)
            before = telling_words(listed[: negation.start()]) if negation else frozenset()
            for word in words:
                is_unsure = (
                    (word in before and not denies_last) if negation else denied and not words & denied
                )
                ways.setdefault(word, set()).add(None if is_unsure else negation is not None)
            denied |= words if negation else frozenset()
    return ways


@remembered
def names_in(text: str) -> frozenset[str]:
    """The names of a text that can be seen: capitals, words in katakana, Latin words in another script."""
    # Any word may begin a sentence with a capital.
    first = joining_words(language_of(text)) | weak_words()
    capitals = {
        match.group()
        for match in _CASED_NAME.finditer(normal_form(text))
        if match.group()[0].isupper()
        # A letter alone is a name behind others: "vitamin D".
        and (len(match.group()) > 1 or (match.start() and match.group() != "I"))
        and folded(match.group()) not in (speakers() if match.start() else speakers() | first)
    }
    plain = folded(text)
    if language_of(text) in SCRIPTS_WITHOUT_CASE:
        capitals |= set(_FOREIGN_NAME.findall(plain)) - speakers() | set(_WEEKDAY.findall(plain))
    return frozenset(capitals)


def leading_name(text: str) -> str | None:
    """The name that a statement begins with, if it speaks of no speaker: as a rule whom it is about."""
    first = _CASED_NAME.match(normal_form(text))
    if first is None or not speakers().isdisjoint(_TOKEN.findall(_plain(text))):
        return None
    return first.group() if first.group() in names_in(text) else None


def has_name(name: str, text: str) -> bool:
    is_letter = len(name) == 1 and name.isalnum()
    is_there = name in _TOKEN.findall(text) if is_letter else folded(name) in folded(text)
    return is_there or _share(set(query_lexemes(name)), _words(text)) == 1


@remembered
def telling_words(text: str) -> frozenset[str]:
    """The words that tell the matter of a statement."""
    plain = _ELISION.sub(" ", pattern("speaker").sub(" ", _plain(text)))
    # Of a word's variants the last, which is the one without accents; of characters all.
    words = {word if _CHARACTER.search(word) else place: word for word, place in lexemes(plain)}.values()
    # A character of a known word is no word: a mobile phone (手机) has nothing of surgery (手术).
    parts = set().union(*words_of_kinds(plain)) if _CHARACTER.search(plain) else set()
    content = {word for word in words if not _CHARACTER.search(word) or _is_content(word)} - parts
    return frozenset(content) - joining_words(language_of(text)) - speakers() - weak_words()


def _is_content(word: str) -> bool:
    return _CONTENT.search(word) is not None and not set(word) & _COMMON_CHARACTERS


def have_in_common(one: str, other: str, common: Collection[str] = ()) -> bool:
    """Whether two statements share a telling word, a name, or numbers that do not meet by chance."""
    shared = numbers_in(one) & numbers_in(other)
    if len(shared) > 1 or any(number >= _TELLING_NUMBER for number in shared):
        return True
    words = [telling_words(text).difference(common) for text in (one, other)]
    # A number ties only what says nothing else.
    if _share(*({word for word in own if not numbers_in(word)} or own for own in words)) > 0:
        return True
    return _is_named(one, other, common) or _is_named(other, one, common)


def _is_named(one: str, other: str, common: Collection[str]) -> bool:
    words = set(_TOKEN.findall(_plain(other)))
    return any(
        folded(name) in words and not set(query_lexemes(name)) <= set(common) for name in names_in(one)
    )


def differ_in_part(one: str, other: str) -> bool:
    """Whether two statements begin alike, not with joining words alone, and differ then, if only in part."""
    left, right, joining = _tokens(one), _tokens(other), joining_words(language_of(one)) | speakers()
    begun = next(_equal_until(left, right))
    if language_of(one) != language_of(other) or not set(left[:begun]) - joining - _PARTICLES:
        return False
    ended = next(_equal_until(left[begun:][::-1], right[begun:][::-1]))
    parts = [set(words[begun : len(words) - ended]) for words in (left, right)]
    if not all(parts) or max(map(len, parts)) > _MAX_END_WORDS or _share(*parts):
        return False
    little = joining | weak_words() | _COMMON_CHARACTERS
    little -= {word for word in parts[0] | parts[1] if pattern("times").fullmatch(word)}
    own_words = [
        {word for word in part - little if not (numbers_in(word) or qualifiers_of(word))} for part in parts
    ]
    return all(own_words)


@remembered
def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(pattern("speaker").sub(" ", _plain(text)))


@remembered
def _plain(text: str) -> str:
    """A text in small letters, with numbers in digits, and currencies and signs in words."""
    signed = _SIGN.sub(lambda sign: " plus " if sign[0] == "+" else " minus ", text)
    return in_digits(signed).replace("’", "'").translate(_CURRENCIES)


@remembered
def _words(text: str) -> frozenset[str]:
    return frozenset(word for word, _position in lexemes(_ELISION.sub(" ", _plain(text)))) - speakers()


def _share(part: Collection[str], whole: Collection[str]) -> float:
    return len(_words_kept(part, whole)) / len(part) if part else 0.0


def _words_kept(part: Collection[str], whole: Collection[str]) -> set[str]:
    stems, kin = _stems(whole), frozenset().union(*map(kin_in, whole))
    return {word for word in part if _is_known(word, whole, stems) or (kin and kin & kin_in(word))}


def _stems(words: Collection[str]) -> dict[str, list[str]]:
    by_stem: dict[str, list[str]] = {}
    for word in words:
        by_stem.setdefault(word[:_STEM], []).append(word)
    return by_stem


def _is_known(word: str, words: Collection[str], stems: dict[str, list[str]]) -> bool:
    return word in words or any(_is_same_stem(word, one) for one in stems.get(word[:_STEM], ())[:20])


def _is_same_stem(one: str, other: str) -> bool:
    """Whether two words differ at their ends alone, as inflected words do."""
    if min(len(one), len(other)) < _STEM or _CHARACTER.search(one):
        return False
    same = next(_equal_until(one, other))
    # "Katzenhaarallergie" speaks of "Katzenhaare".
    is_compound = same >= _COMPOUNDED and same == min(len(one), len(other))
    return is_compound or max(len(one), len(other)) - same <= min(_ENDING, same - 1)


def _equal_until(one: Sequence[str], other: Sequence[str]) -> Iterator[int]:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            yield place
    yield min(len(one), len(other))
