"""Tone: whether a message reads like a standing wish of the user's, or ends with a question.

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
_PREFERENCE = re.compile(
    r"""\b(?: i(?:'d|\ would|\ really|\ generally|\ usually|\ typically|\ always|\ strongly|\ also|\ still)?
        \ (?:much\ )?(?:prefer(?:red)?|rather)
      | my\ prefer\w+ | prefer(?:ring|red)
      | i\ (?:really\ |usually\ |generally\ |tend\ to\ )?
        (?:like|love|enjoy|favor|favour|value|appreciate|avoid|dislike|hate)
      | i\ (?:don't|do\ not)\ (?:like|want|use|eat|drink)
      | i(?:'m|\ am)\ (?:a\ fan\ of|allergic|vegetarian|vegan|not\ a\ fan|more\ comfortable)
      | i\ can't\ stand | instead\ of | rather\ than | over\ (?:the\ )?\w+ing
      | ich\ bevorzuge | ich\ mag | ich\ bin\ (?:allergisch|vegetarier(?:in)?|veganer(?:in)?)
      | je\ préfère | prefiero )\b""",
    re.VERBOSE | re.IGNORECASE,
)
# The end says whether it asks; what stands in brackets there is a note ("[shares a photo: ...]").
_END_CHARACTERS = 400
_NOTE_AT_END = re.compile(r"\[[^\]\[]*\]\s*$")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")
# A pasted text is not a wish, and looking through it takes time.
_WISH_CHARACTERS = 4_000


def tone_of(text: str, role: str) -> int:
    """``WISH``, ``QUESTION`` or ``PLAIN``; only a user's message can be a wish, even if it asks as well."""
    if role == "user":
        plain = text[:_WISH_CHARACTERS].replace("\u2019", "'")
        if _INSTRUCTION.search(plain) or _PREFERENCE.search(plain):
            return WISH
    end = _NOTE_AT_END.sub("", text[-_END_CHARACTERS:]).rstrip()
    return QUESTION if end.endswith(_QUESTION_MARKS) else PLAIN
