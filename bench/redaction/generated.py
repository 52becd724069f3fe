"""A seeded set of sentences with addresses, phone and card numbers as people write them, or other numbers.

What is in them was put there, so it is known what a hook should find.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from strandline.pipelines.redaction.contacts import is_luhn, redact_contacts

_CARDS = (
    ("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("34", 15), ("37", 15),
    ("6011", 16), ("3530", 16), ("62", 16),
)  # fmt: skip
KINDS = ("[email]", "[phone]", "[card]")
_PLACEHOLDER = re.compile(r"\[(?:email|phone|card)\]")
_NAMES = "anna jörg li.wei o.neill maria-luisa kim sven.holm renée priya_s tomás".split()
_HOSTS = "example.com example.org mail.example.co.uk post.beispiel.de 公司.example.cn uni-kiel.de".split()
_SENTENCES = (
    "You can write to {} any time.", "Please note {}; I will be away on Monday.", "{} is what I wrote down.",
    "Es ist {}, falls du fragst.", "Schreib mir: {}", "Voici : {}.", "Mi dato es {}, gracias.",
    "请记下{}，谢谢。",
    "私のは{}です。",
    "({})", "- {}\n- the rest", "\"contact\": \"{}\"",
)  # fmt: skip
_ASKED = (
    "Call me at {}.", "My phone number is {}", "Tel. {}", "Telefon: {}", "Handynummer {}", "téléphone : {}",
    "手机：{}", "电话号码是{}", "whatsapp {}",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """A sentence; ``kind`` is the placeholder that belongs in it, None if there is nothing to find."""

    kind: str | None
    text: str
    parts: tuple[str, ...]


@dataclass(slots=True)
class Figures:
    """Of one kind: what was there, what of it was found, and what was found in all."""

    there: int = 0
    found: int = 0
    claimed: int = 0

    @property
    def recall(self) -> float:
        return self.found / self.there if self.there else 1.0

    @property
    def precision(self) -> float:
        return self.found / self.claimed if self.claimed else 1.0


def samples(*, seed: int, of_each: int) -> Iterator[Sample]:
    """So many sentences with each kind, and three times as many with other numbers."""
    chance = random.Random(seed)  # noqa: S311
    for _ in range(of_each):
        yield _sample(chance, "[email]", _email(chance), _SENTENCES)
        yield _sample(chance, "[card]", _card(chance), _SENTENCES)
        if chance.random() < 0.25:
            yield _sample(chance, "[phone]", "".join(_digits(chance, chance.randint(7, 11))), _ASKED)
        else:
            yield _sample(chance, "[phone]", chance.choice(_PHONES)(chance), _SENTENCES)
        for _other in range(3):
            yield _sample(chance, None, chance.choice(_OTHERS)(chance), _SENTENCES)


def hard_samples(*, seed: int, of_each: int) -> Iterator[Sample]:
    """The same of forms that the hook has no rule for, beside numbers that look like what it knows."""
    chance = random.Random(seed)  # noqa: S311
    for _ in range(of_each):
        yield _sample(chance, "[email]", chance.choice(_HARD_EMAILS)(chance), _SENTENCES)
        yield _sample(chance, "[phone]", chance.choice(_HARD_PHONES)(chance), _SENTENCES)
        yield _sample(chance, "[card]", chance.choice(_HARD_CARDS)(chance), _SENTENCES)
        for _other in range(3):
            yield _sample(chance, None, chance.choice(_HARD_OTHERS)(chance), _SENTENCES)


def score(texts: Iterable[Sample]) -> dict[str, Figures]:
    """The figures of each kind: found is what is gone from the text, whatever took its place."""
    figures = {kind: Figures() for kind in KINDS}
    for sample in texts:
        redacted = redact_contacts(sample.text)
        placeholders = _PLACEHOLDER.findall(redacted)
        for placeholder in placeholders:
            figures[placeholder].claimed += 1
        if sample.kind is not None:
            figures[sample.kind].there += 1
            is_gone = not any(part in redacted for part in sample.parts)
            figures[sample.kind].found += is_gone and sample.kind in placeholders
    return figures


def _sample(chance: random.Random, kind: str | None, value: str, sentences: tuple[str, ...]) -> Sample:
    shown = _full_width(value) if chance.random() < 0.05 else value
    return Sample(kind, chance.choice(sentences).format(shown), (shown,) if kind else ())


def _full_width(text: str) -> str:
    return "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text)


def _digits(chance: random.Random, number: int) -> Iterator[str]:
    yield str(chance.randint(2, 9))
    yield from (str(chance.randint(0, 9)) for _ in range(number - 1))


def _email(chance: random.Random) -> str:
    tag = chance.choice(("", "", "+shop", str(chance.randint(1, 99))))
    return f"{chance.choice(_NAMES)}{tag}@{chance.choice(_HOSTS[:4] + _HOSTS[5:])}"


def _card(chance: random.Random) -> str:
    beginning, length = chance.choice(_CARDS)
    body = beginning + "".join(str(chance.randint(0, 9)) for _ in range(length - len(beginning) - 1))
    number = next(f"{body}{last}" for last in range(10) if is_luhn(f"{body}{last}"))
    gap = chance.choice(("", " ", "-"))
    if length == 15:
        return gap.join((number[:4], number[4:10], number[10:]))
    return gap.join(number[at : at + 4] for at in range(0, 16, 4))


def _n(chance: random.Random, number: int) -> str:
    return "".join(str(chance.randint(0, 9)) for _ in range(number))


def _area(chance: random.Random) -> str:
    return f"{chance.randint(2, 9)}{_n(chance, 2)}"


_PHONES: tuple[Callable[[random.Random], str], ...] = (
    lambda c: f"+49 {c.choice(('151', '160', '170'))} {_n(c, 7)}",
    lambda c: f"+49 (0){c.choice(('30', '40', '89'))} {c.randint(2, 9)}{_n(c, 6)}",
    lambda c: f"+44 20 {c.randint(3, 8)}{_n(c, 3)} {_n(c, 4)}",
    lambda c: f"+1 ({_area(c)}) {_area(c)}-{_n(c, 4)}",
    lambda c: f"+1{_area(c)}{_area(c)}{_n(c, 4)}",
    lambda c: f"+86 13{_n(c, 1)} {_n(c, 4)} {_n(c, 4)}",
    lambda c: f"+33 6 {_n(c, 2)} {_n(c, 2)} {_n(c, 2)} {_n(c, 2)}",
    lambda c: f"+91 98{_n(c, 3)} {_n(c, 5)}",
    lambda c: f"0049 170 {_n(c, 7)}",
    lambda c: f"({_area(c)}) {_area(c)}-{_n(c, 4)}",
    lambda c: f"{_area(c)}-{_area(c)}-{_n(c, 4)}",
    lambda c: f"{_area(c)}.{_area(c)}.{_n(c, 4)}",
    lambda c: f"0{c.choice(('151', '170', '176'))} {_n(c, 7)}",
    lambda c: f"0{c.choice(('30', '40', '89'))}/{c.randint(2, 9)}{_n(c, 6)}",
    lambda c: f"0{c.randint(1, 5)} {_n(c, 2)} {_n(c, 2)} {_n(c, 2)} {_n(c, 2)}",
    lambda c: f"0171{_n(c, 7)}",
    lambda c: f"020 {c.randint(3, 8)}{_n(c, 3)} {_n(c, 4)}",
    lambda c: f"138-{_n(c, 4)}-{_n(c, 4)}",
)


def _moment(chance: random.Random) -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randint(0, 3_000_000))


_OTHERS: tuple[Callable[[random.Random], str], ...] = (
    lambda c: f"{_moment(c):%Y-%m-%d %H:%M}",
    lambda c: f"{_moment(c):%d.%m.%Y %H:%M}",
    lambda c: f"{_moment(c):%m/%d/%Y}",
    lambda c: _moment(c).isoformat(),
    lambda c: f"{int(_moment(c).timestamp())}",
    lambda c: f"{int(_moment(c).timestamp() * 1000)}",
    lambda c: f"${c.randint(1, 9_999_999):,}.{_n(c, 2)}",
    lambda c: f"{c.randint(1_000_000, 99_999_999):,}".replace(",", c.choice((" ", "."))) + " €",
    lambda c: f"order {c.randint(2, 9)}{_n(c, 9)}",
    lambda c: f"ORD-{_n(c, 3)}-{_n(c, 4)}",
    lambda c: f"#{_n(c, 10)}",
    lambda c: str(UUID(int=c.getrandbits(128), version=4)),
    lambda c: f"v{c.randint(1, 20)}.{c.randint(0, 30)}.{_n(c, 5)}.{_n(c, 4)}",
    lambda c: ".".join(str(c.randint(1, 255)) for _ in range(4)),
    lambda c: f"978-{c.randint(0, 9)}-{_n(c, 2)}-{_n(c, 6)}-{_n(c, 1)}",
    lambda c: f"{c.uniform(-180, 180):.6f}, {c.uniform(-90, 90):.6f}",
    lambda c: f"{c.random():.15f}",
    lambda c: f"commit {c.getrandbits(160):040x}",
    lambda c: f"{c.randint(1990, 2030)}-{c.randint(1990, 2030)}",
    lambda c: f"SKU {_n(c, 4)}-{_n(c, 6)}",
    lambda c: f"logo@{c.randint(2, 3)}x.png",
    lambda c: f"git@github.example:team{_n(c, 2)}/repo.git",
)


_HARD_EMAILS: tuple[Callable[[random.Random], str], ...] = (
    lambda c: _email(c).replace("@", " at ").replace(".", " dot "),
    lambda c: _email(c).replace("@", " [at] "),
    lambda c: f"{c.choice(_NAMES)}@localhost",
    lambda c: f'"{c.choice(_NAMES)} x"@example.com',
    lambda c: f"用户{c.randint(1, 99)}@例子.中国",
    lambda c: f"{c.choice(_NAMES)} @ example.com",
    lambda c: f"mailto:{_email(c)}?subject=hi",
    lambda c: f"https://example.com/?to={_email(c)}&x=1",
)
_HARD_PHONES: tuple[Callable[[random.Random], str], ...] = (
    lambda c: f"(11) 9{_n(c, 4)}-{_n(c, 4)}",  # Brazil
    lambda c: f"98{_n(c, 8)}",  # India
    lambda c: f"02 {c.randint(5, 9)}{_n(c, 3)} {_n(c, 4)}",  # Australia
    lambda c: f"06-{_n(c, 8)}",  # the Netherlands
    lambda c: f"333 {_n(c, 3)} {_n(c, 4)}",  # Italy
    lambda c: f"090-{_n(c, 4)}-{_n(c, 4)}",  # Japan
    lambda c: f"010-{_n(c, 4)}-{_n(c, 4)}",  # Korea
    lambda c: f"555-{_n(c, 4)}",  # without an area
    lambda c: f"+{c.choice(('353', '380', '971', '55'))} {c.randint(10, 99)} {_n(c, 3)} {_n(c, 4)}",
    lambda c: f"+49-170-{_n(c, 3)}-{_n(c, 4)} ext. {_n(c, 2)}",
    lambda c: f"001 {_area(c)} {_area(c)} {_n(c, 4)}",
    lambda c: f"tel:+1-{_area(c)}-{_area(c)}-{_n(c, 4)}",
)
_HARD_CARDS: tuple[Callable[[random.Random], str], ...] = (
    lambda c: ".".join(_card(c).replace(" ", "").replace("-", "")[at : at + 4] for at in range(0, 16, 4)),
    lambda c: " ".join(_card(c).replace(" ", "").replace("-", "")),
    lambda c: f"card_{_card(c).replace(' ', '').replace('-', '')}",
    lambda c: f'{{"pan":{_card(c).replace(" ", "").replace("-", "")}}}',
    lambda c: f"{_card(c)} 12/27 {_n(c, 3)}",
    lambda c: f"Nr.{_card(c)}",
)
_HARD_OTHERS: tuple[Callable[[random.Random], str], ...] = (
    lambda c: f"{c.randint(4, 6)}{_n(c, 15)}",  # an id of as many digits as a card, which may pass its check
    lambda c: f"400{_n(c, 10)}",  # a bar code
    lambda c: f"DE{_n(c, 2)} {_n(c, 4)} {_n(c, 4)} {_n(c, 4)} {_n(c, 4)} {_n(c, 2)}",  # a bank account
    lambda c: f"1Z{_n(c, 16)}",  # a parcel
    lambda c: f"{_n(c, 4)} {_n(c, 4)} {_n(c, 4)}",
    lambda c: f"0{_n(c, 3)}-{_n(c, 6)}",  # a part, written as a German number is
    lambda c: f"{_area(c)}-{_area(c)}-{_n(c, 4)}",  # an id in the form of a North American number
    lambda c: f"{_n(c, 5)}-{_n(c, 4)}",  # a postal code
    lambda c: f"+{_n(c, 6)}",
    lambda c: f"{c.randint(1, 28)} {c.randint(1, 12)} {c.randint(1990, 2030)} {_n(c, 4)}",
    lambda c: f"user@host{c.randint(1, 9)}:/srv",
    lambda c: f"npm i @scope/pkg@{c.randint(1, 9)}.{c.randint(0, 9)}.{c.randint(0, 9)}",
    lambda c: f"postgresql://app:secret@db{c.randint(1, 9)}.example.com:5432/app",  # a password at a host
)
