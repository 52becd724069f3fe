"""Tone: whether a message reads like a standing wish of the user's, or mostly asks.

A wish ("always give me code in Python", "I prefer short answers") applies to questions that never name it, so
a search lifts it.  The words were chosen and measured as docs/search-trials.md says; of other languages than
English only the plainest are known.
"""

from __future__ import annotations

import re

PLAIN, WISH, QUESTION = 0, 1, 2

_INSTRUCTION = re.compile(
    r"""\b(?: always | never | whenever | every\ time | each\ time | from\ now\ on | going\ forward
      | in\ (?:the\ )?future | (?:make|be)\ sure\ (?:to|you|that\ you)
      | remember\ (?:to|that\ i) | keep\ in\ mind
      | when(?:ever)?\ i\ ask | if\ i\ ask
      | i\ (?:want|need|would\ like|'d\ like)\ you\ to
      | please\ (?:do\ not|don't|avoid|only|always|never|use|include|keep|refrain|format|stick)
      | stick\ to | no\ matter
      | immer\ wenn | ab\ jetzt | von\ nun\ an | in\ zukunft | bitte\ (?:nie|immer|nur)
      | à\ partir\ de\ maintenant | désormais | a\ partir\ de\ ahora | de\ ahora\ en\ adelante )\b""",
    re.VERBOSE | re.IGNORECASE,
)
# Between "I" and the verb: "I strictly avoid", "I also really like".
_ADVERBS = r"(?:(?:\w+ly|also|still|just|always|much|would)\ ){0,2}"
_PREFERENCE = re.compile(
    rf"""\b(?: i(?:'d)?\ {_ADVERBS}
        (?:prefer(?:red)?|rather|like|love|enjoy|favou?r|value|appreciate|prioriti[sz]e
          |avoid|dislike|hate|loathe|detest|despise|refuse)
      | i\ only\ (?:use|eat|drink|buy|wear|watch|read|listen|fly|stay|consume)
      | i\ tend\ to\ (?:like|prefer|avoid)
      | my\ prefer\w+ | prefer(?:ring|red)
      | i\ (?:don't|do\ not|can't|cannot|won't)\ {_ADVERBS}
        (?:like|want|use|eat|drink|enjoy|stand|wear|watch|read|consume|tolerate|trust|care\ for)
      | i\ have\ (?:an?\ |no\ )?(?:[\w-]+\ ){{0,2}}
        (?:aversion|dislike|distaste|disdain|hatred|preference|interest\ in|allerg\w+|intoleran\w+
          |phobia|fear)
      | i(?:'m|\ am)\ (?:not\ )?(?:an?\ )?(?:[\w-]+\ ){{0,2}}
        (?:fan\ of|allergic|intolerant|averse|opposed|afraid\ of|vegetarian|vegan|diabetic|more\ comfortable)
      | i\ (?:follow|keep\ to|am\ on)\ an?\ (?:[\w-]+\ ){{0,3}}diet
      | instead\ of | rather\ than | over\ (?:the\ )?\w+ing
      | ich\ bevorzuge | ich\ mag | ich\ bin\ (?:allergisch|vegetarier(?:in)?|veganer(?:in)?)
      | je\ préfère | prefiero )\b""",
    re.VERBOSE | re.IGNORECASE,
)
# The end says whether it asks; what stands in brackets there is a note ("[shares a photo: ...]").
_END_CHARACTERS = 400
_NOTE_AT_END = re.compile(r"\[[^\]\[]*\]\s*$")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")
# A sentence with the marks at its end.
_SENTENCE = re.compile("[^.!?\u3002\uff01\uff1f\u061f\u037e]*(?:[.!?\u3002\uff01\uff1f\u061f\u037e]+|$)")
# An answer that ends with "And you?" says something as well: of a question so much of the text asks.
_ASKING_SHARE = 0.3
# A pasted text is not a wish, and looking through it takes time.
_WISH_CHARACTERS = 4_000


def tone_of(text: str, role: str) -> int:
    """``WISH``, ``QUESTION`` or ``PLAIN``; only a user's message can be a wish, even if it asks as well."""
    if role == "user":
        plain = text[:_WISH_CHARACTERS].replace("\u2019", "'")
        if _INSTRUCTION.search(plain) or _PREFERENCE.search(plain):
            return WISH
    end = _NOTE_AT_END.sub("", text[-_END_CHARACTERS:]).rstrip()
    if not end.endswith(_QUESTION_MARKS):
        return PLAIN
    asking = sum(len(one) for one in _SENTENCE.findall(end) if one.endswith(_QUESTION_MARKS))
    return QUESTION if asking >= _ASKING_SHARE * len(end) else PLAIN
