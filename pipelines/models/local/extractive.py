"""The local stand-in for a model: sentences, facts and a summary picked from the messages as they stand."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from strandline.pipelines.models.answers import MAX_FACT_CHARACTERS
from strandline.pipelines.models.contract import SummaryTask, TranscriptLine
from strandline.pipelines.text.lexemes import STOP_WORDS, word_set
from strandline.pipelines.text.spoken_dates import spoken_date
from strandline.schemas.values.message import speaker_name
from strandline.schemas.values.normal_form import folded

_SENTENCE = re.compile(
    r"[^.!?。！？\n]*(?:[.!?](?!\s|$|[\"')])[^.!?。！？\n]*)*(?:[.!?。！？]+[\"')」”]*|\n|$)"
)
_ABBREVIATION = re.compile(r"\b(?:mr|mrs|ms|dr|st|prof|vs|e\.g|i\.e|etc)\.$", re.IGNORECASE)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['\u2019][^\W_]+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def sentences(text: str) -> list[str]:
    """The sentences of ``text`` in order, trimmed, with their end marks; none of them empty."""
    sentences: list[list[str]] = []
    for match in _SENTENCE.finditer(text):
        piece = " ".join(match.group().split())
        if not piece:
            continue
        if sentences and _ABBREVIATION.search(sentences[-1][-1]):
            sentences[-1].append(piece)
        else:
            sentences.append([piece])
    return [" ".join(pieces) for pieces in sentences]


def words(text: str) -> list[str]:
    """Case-folded words; each Chinese, Japanese or Korean character counts as one."""
    return _WORD.findall(folded(text).replace("\u2019", "'"))


def is_wide(text: str) -> bool:
    """True where ``text`` has Chinese, Japanese or Korean characters."""
    return _WIDE.search(text) is not None


def estimated_tokens(text: str) -> int:
    """About as many tokens as a model counts: one per wide character, one per four others."""
    wide = len(_WIDE.findall(text))
    return wide + (len(text) - wide + 3) // 4


LINES_PER_SENTENCE = 4
MAX_TOPICS = 6
_MAX_WORDS = 60


def roll_summary(task: SummaryTask) -> tuple[str, list[str]]:
    """The new summary, within about ``task.max_tokens``, and its most frequent words as topics."""
    kept = [line.strip() for line in task.previous.splitlines() if line.strip()]
    spoken = [
        attribute_sentence(line, text)
        for line in task.lines
        if line.role != "tool"
        for text in sentences(line.text)
    ]
    frequencies = Counter(word for sentence in kept + spoken for word in _weighty(sentence))
    rows = kept + _heaviest(spoken, frequencies, limit=max(1, -(-len(task.lines) // LINES_PER_SENTENCE)))
    summary = "\n".join(_within(list(dict.fromkeys(rows)), frequencies, task.max_tokens))
    counted = Counter(word for row in summary.splitlines() for word in _weighty(row) if not is_wide(row))
    topics = sorted(counted, key=lambda word: (-counted[word], word))[:MAX_TOPICS]
    return summary or "-", topics


def _weighty(sentence: str) -> list[str]:
    if is_wide(sentence):
        characters = words(sentence)
        return [first + second for first, second in pairwise(characters)]
    said_by, _, rest = sentence.rpartition(": ")
    names = set(words(said_by))
    return [word for word in topic_words(rest) if word not in names]


def _weight(sentence: str, frequencies: Counter[str]) -> float:
    sentence_words = set(_weighty(sentence))
    if not sentence_words or len(words(sentence)) > _MAX_WORDS:
        return 0.0
    # The root keeps long sentences from winning by length alone; what looks like a fact goes first.
    frequency = sum(frequencies[word] for word in sentence_words) / math.sqrt(len(sentence_words))
    return frequency * (0.2 + max(score(sentence.rpartition(": ")[2]), 0.0))


def _heaviest(sentences: Sequence[str], frequencies: Counter[str], *, limit: int) -> list[str]:
    order = sorted(range(len(sentences)), key=lambda index: (-_weight(sentences[index], frequencies), index))
    return [sentences[index] for index in sorted(order[:limit])]


def _within(rows: list[str], frequencies: Counter[str], max_tokens: int) -> list[str]:
    sizes = {row: estimated_tokens(row) + 1 for row in rows}
    total = sum(sizes.values())
    lightest_first = sorted(rows, key=lambda row: _weight(row, frequencies))
    dropped: set[str] = set()
    for row in lightest_first[: len(rows) - 1]:
        if total <= max_tokens:
            break
        dropped.add(row)
        total -= sizes[row]
    return [_cut(row, max_tokens) for row in rows if row not in dropped]


def _cut(row: str, max_tokens: int) -> str:
    if estimated_tokens(row) <= max_tokens:
        return row
    return row[: max_tokens - 1 if is_wide(row) else 4 * max_tokens - 4].rstrip() + "…"


# Names of an assistant that describe it instead of naming it.
PROGRAMS = frozenset({"", "assistant", "ai", "ai assistant", "bot", "chatbot", "助手"})

FIRST_PERSON = word_set("i i'm i've i'd i'll my me mine we we're we've we'd we'll our us myself")

# What people do with their lives, in the forms in which they say so.
LIFE = word_set(
    """
    am was were live lives lived living work works worked working move moved moving study studied
    studying start started starting quit join joined joining love loved enjoy enjoyed enjoying
    prefer preferred hate hated dislike allergic favorite favourite bought buying got own owned went
    visit visited visiting travel traveled travelled traveling travelling met married engaged
    divorced born grew graduate graduated graduating learn learned learnt learning play played
    playing read reading watch watched watching cook cooked cooking made make making volunteer
    volunteered volunteering plan planned planning want wanted need needed decided hoping applied
    finished won lost broke named called adopted teach taught teaching training trained running ran
    writing wrote going like liked
    """
)

# People and things that belong to a person: they count after "my" or "our", with up to two words between.
BELONGING = word_set(
    """
    wife husband partner girlfriend boyfriend fiancé fiancée mom mum mother dad father parents
    sister sisters brother brothers son sons daughter daughters kid kids child children grandma
    grandpa grandmother grandfather aunt uncle cousin cousins nephew niece friend friends boss team
    dog dogs cat cats pet pets puppy kitten job work career house home apartment car birthday name
    age degree hobby hobbies dream goal goals family
    """
)

COUNTS = word_set("two three four five six seven eight nine ten dozen hundred thousand twice once")

WHEN = word_set(
    """
    yesterday today tonight tomorrow last next ago since january february march april june july
    august september october november december monday tuesday wednesday thursday friday saturday
    sunday weekend
    """
)

# Scripts without spaces: searched for as substrings, in Chinese, Japanese and Korean.
WIDE_FIRST_PERSON = re.compile("我|咱|私|僕|俺|나는|저는|제가|내가")
WIDE_LIFE = re.compile(
    "喜欢|住在|工作|搬|结婚|出生|毕业|学习|买了|去了|叫|养|讨厌|想要|打算|过敏"
    "|好き|住んで|働|結婚|買|行きました|좋아|살고|일하"
)
WIDE_BELONGING = re.compile("我的|我(?:们家|妈|爸|姐|妹|哥|弟|老婆|老公|女儿|儿子|家)|私の|僕の|우리")
WIDE_NUMBER = re.compile("[一二三四五六七八九十]")
WIDE_WHEN = re.compile("昨天|今天|明天|去年|上周|上个月|下周|昨日|今日|明日|어제|오늘|내일")

# A name inside a sentence: a capital that is not its beginning.
NAME = re.compile(r"(?<=[\w,;:] )(?!I\b)[A-Z][\w'-]+")

# How answers begin that are about the other one, or about nothing.
EMPTY_TALK = re.compile(
    r"""^(?:
        thanks | thank\ you | wow | cool | great | nice | awesome | sounds | that's | that\ sounds
      | congrat\w*
      | good\ (?:luck|to|job) | glad | let\ me | let's | hey | hi | hello | take\ care | see\ you
      | talk\ (?:soon|to\ you) | you | you're | keep | it's\ (?:great|so|nice|good|awesome)
      | i'm\ (?:so\ |really\ )?(?:glad|happy|proud|sorry)\ (?:for|to\ hear|you|of\ you|that)
      | i\ (?:totally\ |really\ |completely\ )?
        (?:agree|understand|see|bet|guess|hope\ you|wish\ you|can\ imagine|appreciate)
    )\b | ^(?:谢谢|你好|哈哈|好的|真的)""",
    re.VERBOSE,
)

# Words before the sentence proper, such as the addressee's name.
LEADING_TALK = re.compile(
    r"""^(?:(?:
        yeah | yes | yep | yup | well | so | oh | wow | woah | whoa | and | but | thanks | hey | hi | hello
      | haha
      | lol | actually | btw | by\ the\ way | also | no | nope | ok | okay | sure | definitely | absolutely
      | totally
    )\b[,!]*\s+)+(?:[A-Z][\w-]*,\ )?""",
    re.VERBOSE | re.IGNORECASE,
)


LINES_PER_FACT = 2.5
THRESHOLD = 2.0
MAX_WORDS = 60
MIN_TOPIC_LETTERS = 4
_MARK_LINE = re.compile(r"^\[(?:picture|sound|video|document)\].*$", re.MULTILINE)
_NARROW_MINIMUM = 4
_WIDE_MINIMUM = 5

_NO_TOPICS = (
    STOP_WORDS["english"]
    | LIFE
    | WHEN
    | word_set("really great good awesome amazing thing things time much many know think week year")
)


@dataclass(frozen=True, slots=True)
class Pick:
    """A sentence chosen from one line, attributed to its speaker."""

    score: float
    text: str
    line: TranscriptLine
    said_by: str
    topics: tuple[str, ...]
    about_date: date | None


def pick_facts(lines: Sequence[TranscriptLine], *, max_facts: int) -> list[Pick]:
    """The best sentences, at most one for every two or three lines, in the order they were said."""
    limit = min(max_facts, max(1, round(len(lines) / LINES_PER_FACT)))
    best = sorted((pick for line in lines for pick in _picks(line)), key=lambda pick: -pick.score)[:limit]
    return sorted(best, key=lambda pick: pick.line.number)


def score(sentence: str) -> float:
    """How much ``sentence`` looks like a fact about its speaker; from about -3 to 7."""
    folded = sentence.casefold().replace("\u2019", "'")
    if sentence.endswith(("?", "？")) or not _is_of_fair_length(sentence):
        return -1.0
    spoken_words = words(sentence)
    spoken = set(spoken_words)
    total = 1.5 * bool(spoken & FIRST_PERSON or WIDE_FIRST_PERSON.search(folded))
    total += 1.0 * bool(spoken & LIFE or WIDE_LIFE.search(folded))
    total += 1.2 * bool(_speaks_of_belonging(spoken_words) or WIDE_BELONGING.search(folded))
    total += 0.6 * bool(_has_number(spoken_words) or WIDE_NUMBER.search(folded))
    total += 0.6 * bool(spoken & WHEN or WIDE_WHEN.search(folded))
    total += 0.4 * min(len(NAME.findall(sentence)), 2)
    return total - 3.0 * bool(EMPTY_TALK.search(folded))


def _speaks_of_belonging(spoken_words: Sequence[str]) -> bool:
    owners = [index for index, word in enumerate(spoken_words) if word in ("my", "our")]
    return any(BELONGING.intersection(spoken_words[index + 1 : index + 4]) for index in owners)


def _has_number(spoken_words: Sequence[str]) -> bool:
    return any(word in COUNTS or any(map(str.isdigit, word)) for word in spoken_words)


def attribute_sentence(line: TranscriptLine, sentence: str) -> str:
    """``sentence`` with who said it in front, such as ``Maria: I live in Oslo.``, and marks for pictures."""
    marks = [mark for mark in _MARK_LINE.findall(line.text) if mark not in sentence]
    return " ".join((f"{speaker_name(speaker(line), line.role)}: {sentence}", *marks))


def speaker(line: TranscriptLine) -> str:
    """The speaker's name, or the role of a speaker without a name: ``Maria``, ``User``."""
    return line.name or line.role.capitalize()


def topic_words(sentence: str) -> Iterator[str]:
    """Words of some weight: no stop words, cues or numbers, at least four letters; none for wide scripts."""
    for word in words(sentence):
        if (
            len(word) >= MIN_TOPIC_LETTERS
            and word not in _NO_TOPICS
            and "'" not in word
            and not word.isdigit()
        ):
            yield word


def _picks(line: TranscriptLine) -> Iterator[Pick]:
    if not _is_said_by_a_person(line):
        return
    for sentence in sentences(line.text):
        plain = _without_leading_talk(sentence)
        reached = score(plain)
        if reached >= THRESHOLD:
            day = spoken_date(plain, line.created_at.date())
            longest = sorted(dict.fromkeys(topic_words(plain)), key=lambda word: -len(word))
            text = _dated(attribute_sentence(line, plain), day)
            yield Pick(reached, text, line, speaker(line), tuple(longest[:3]), day)


def _is_said_by_a_person(line: TranscriptLine) -> bool:
    """Whether a person spoke: an assistant without a name of its own is a program, whose statements about
    itself and whose advice are not facts about a person.
    """
    is_named = line.name is not None and line.name.casefold() not in PROGRAMS
    return line.role == "user" or (line.role == "assistant" and is_named)


def _dated(text: str, day: date | None) -> str:
    """``text`` with its day appended, since "yesterday" says nothing later on."""
    behind = "" if day is None or str(day) in text else f" ({day})"
    return text[: MAX_FACT_CHARACTERS - len(behind)] + behind


def _without_leading_talk(sentence: str) -> str:
    rest = LEADING_TALK.sub("", sentence)
    return rest[:1].upper() + rest[1:] if rest else sentence


def _is_of_fair_length(sentence: str) -> bool:
    minimum = _WIDE_MINIMUM if is_wide(sentence) else _NARROW_MINIMUM
    return minimum <= len(words(sentence)) <= MAX_WORDS
