"""Kinds of statement and subjects of facts, by tables in several languages."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.pipelines.facts.kinds import USER, kin_in, kinds_of, may_share_subject, subject_of
from strandline.pipelines.facts.statements import has_name

SHARED = {
    "residence": [
        ("Ana lives in Porto.", "The user has moved to Lisbon."),
        ("用户住在北京。", "User lives in Shanghai now."),
        ("Nutzer wohnt in Köln.", "L'utilisateur habite à Lyon."),
        ("El usuario se mudó a Sevilla.", "Пользователь живёт в Казани."),
        ("ユーザーは東京に住んでいます。", "사용자는 서울에 살고 있습니다."),
        ("المستخدم يعيش في القاهرة", "L'utente abita a Roma."),
    ],
    "food": [
        ("User is a vegetarian.", "likes steak a lot"),
        ("Пользователь не ест мяса.", "用户喜欢吃牛排。"),
        ("Nutzerin ist Veganerin.", "Le encanta el queso."),
        ("ユーザーは肉を食べない。", "L'utilisateur mange du poulet."),
    ],
    "drink": [
        ("User gave up coffee.", "Trinkt jeden Morgen einen Espresso."),
        ("El usuario dejó de fumar.", "User buys a pack of cigarettes daily."),
        ("用户滴酒不沾。", "L'utente beve un bicchiere di vino a cena."),
    ],
    "work": [
        ("User works as a nurse.", "Ist seit Mai in Rente."),
        ("Пользователь работает учителем.", "L'utilisatrice a démissionné."),
        ("用户是工程师。", "O usuário está desempregado."),
    ],
    "health": [
        ("User is allergic to penicillin.", "对青霉素没有过敏"),
        ("Er ist gesund.", "Он болеет диабетом."),
    ],
    "partner": [("User is single.", "Se casó en junio."), ("用户已婚。", "Она развелась с мужем.")],
    "family": [("User has two children.", "Kinderlos."), ("用户是独生子。", "A un frère aîné.")],
    "pets": [("User has a dog.", "Hat kein Haustier."), ("用户养了一只猫。", "No tiene mascotas.")],
    "vehicle": [("User drives a Volvo.", "Vendió el coche."), ("没有驾照", "Ездит на работу на машине.")],
    "language": [
        ("User speaks Dutch.", "Spricht kein Niederländisch."),
        ("母语是中文", "родной язык русский"),
    ],
    "schedule": [
        ("User gets up at six.", "Schläft bis mittags."),
        ("每天早起", "Se acuesta tarde."),
    ],
    "age": [("User was born in 1990.", "Tiene 41 años de edad."), ("用户今年三十岁。", "Ему сорок лет.")],
}
APART = [
    ("User is allergic to penicillin.", "User was born in 1990."),
    ("User lives in Porto.", "User likes football."),
    ("User is a vegetarian.", "User moved to Lisbon."),
    ("The sky is blue.", "User lives in Porto."),
    ("…", "User is a nurse."),
    ("用户住在北京。", "用户喜欢吃牛排。"),
    ("Пользователь живёт в Казани.", "У пользователя есть кошка."),
    ("Nutzer wohnt in Köln.", "Nutzer trinkt gern Tee."),
]
SUBJECTS = {
    "User lives in Rome.": USER,
    "The user's favourite colour is blue.": USER,
    "I like tea.": USER,
    "用户有一个姐姐": USER,
    "Пользователь переехал": USER,
    "ユーザーは東京に住んでいます": USER,
    "User has a sister": USER,
    "User's sister lives in Rome.": "sister",
    "Tom's sister lives in Rome": "sister",
    "My sister is ill": "sister",
    "用户的姐姐住在上海": "sister",
    "La hermana del usuario vive en Lima": "sister",
    "Die Schwester der Nutzerin wohnt in Bonn": "sister",
    "Son frère habite à Metz": "brother",
    "Мой брат живёт в Москве": "brother",
    "User's son is three": "son",
    "User's sister's dog is ill": "dog",
    "Ana lives in Porto.": None,
    "Likes tea": None,
    "": None,
}
# Words that any statement may have, in eight languages.
COMMON = """
    the an and or but of in on at to for from with by is was are be been has have not no never
    now very much a lot likes loves hates enjoys prefers wants needs uses goes gets makes takes
    gives keeps his her their that this these der die das ein eine und oder aber in im am auf
    aus bei mit von zu ist war nicht kein nie mehr sehr gern mag haar le la les un une des du de
    et ou mais dans en sur avec pour par sans est ne pas plus jamais très son sa ses leur el los
    las y o pero con sin no nunca más muy gusta encanta hasta desde siempre su sus prima otra
    vez il lo gli di e ma da su senza è non mai più molto piace primo prima sempre suo voor het
    van een naar hij zij niet и или но в на с у о от до для не ни никогда очень любит нравится
    теперь хороший новый большой человек 的 了 是 在 有 不 没 这 他 她 我 很 喜欢 现在 のは 好き です
"""


@pytest.mark.parametrize(
    ("kind", "one", "other"), [(k, *pair) for k, pairs in SHARED.items() for pair in pairs]
)
def test_what_can_contradict_is_of_one_kind(kind: str, one: str, other: str) -> None:
    assert kind in kinds_of(one) & kinds_of(other)


@pytest.mark.parametrize(("one", "other"), APART)
def test_what_cannot_contradict_is_of_no_common_kind(one: str, other: str) -> None:
    assert not kinds_of(one) & kinds_of(other)


def test_words_of_any_statement_tell_no_kind() -> None:
    assert {word: kinds for word in COMMON.split() if (kinds := kinds_of(word))} == {}


@pytest.mark.parametrize(("text", "subject"), SUBJECTS.items())
def test_first_words_tell_whom_a_fact_is_about(text: str, subject: str | None) -> None:
    assert subject_of(text) == subject


def test_a_speakers_name_means_the_user() -> None:
    assert subject_of("Ana lives in Porto.", "Ana") == USER
    assert subject_of("Ana's sister lives in Porto.", "Ana") == "sister"


def test_a_statement_about_somebody_else_is_not_of_the_user() -> None:
    assert not may_share_subject("User's sister lives in Rome.", "User moved to Lisbon.")
    assert not may_share_subject("用户的姐姐住在上海", "Nutzer wohnt in Bonn.")
    assert may_share_subject("Ana lives in Porto.", "The user has moved to Lisbon.")
    assert may_share_subject("User's sister lives in Rome.", "Su hermana se mudó a Milán.")


@given(name=st.text(max_size=8), text=st.text(max_size=40))
@example(name="It", text="the cat sleeps")
@example(name="…", text="")
def test_any_text_is_looked_at_for_a_name_and_for_a_relation(name: str, text: str) -> None:
    """A name may have no word of its own, such as a stop word or a sign."""
    assert has_name(name, f"{text} {name}")
    assert has_name(name, text) in (True, False)
    assert not kin_in(name) or name
