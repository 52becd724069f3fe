"""Languages other than English, the whole way: put, found, flushed, known, shown, corrected, forgotten."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.text.spoken_dates import spoken_date
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import VECTORS_STAGE
from tests.conftest import MakeMemory, Rig, nothing_due
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

# By language: what is said, a question about the first of it, a part of its words, and a name for the user.
SAID = {
    "中文": ("我的猫叫咪咪,睡在帆布柜里。", "今天刮西风。", "猫叫什么?", "咪咪", "用户甲"),
    "日本語": ("私の猫はミミといい、帆の棚で寝ます。", "今日は西風です。", "私の猫は?", "ミミ", "利用者"),
    "한국어": (
        "제 고양이 이름은 미미입니다.",
        "오늘은 서풍이 붑니다.",
        "고양이 이름이 뭐예요?",
        "미미",
        "사용자",
    ),
    "русский": ("Мою кошку зовут Мими.", "Сегодня западный ветер.", "Как зовут кошку?", "Мими", "Анна"),
    "ελληνικά": ("Η γάτα μου λέγεται Μιμή.", "Σήμερα φυσάει δυτικός.", "Πώς λέγεται η γάτα;", "Μιμή", "Άννα"),
    "العربية": ("اسم قطتي ميمي.", "الرياح غربية اليوم.", "ما اسم قطتي؟", "ميمي", "مستخدم"),
    "हिन्दी": ("मेरी बिल्ली का नाम मिमी है।", "आज पछुआ हवा है।", "बिल्ली का नाम क्या है?", "मिमी", "उपयोगकर्ता"),
    "ไทย": ("แมวของฉันชื่อมีมี่", "วันนี้ลมตะวันตก", "แมวชื่ออะไร", "มีมี่", "ผู้ใช้"),
    "deutsch": (
        "Meine Kätzin heißt Mümi.",
        "Heute weht Westwind.",
        "Wie heißt die Kätzin?",
        "mümi",
        "Jürgen",
    ),
}


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A model that finds one fact in each line of a user."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    return load_settings(database_url=database_url, embedding_backend="local")


def test_every_language_goes_the_whole_way(rig: Rig) -> None:
    memories = {language: rig.memory(language, user_id=said[-1]) for language, said in SAID.items()}
    for language, (first, second, question, _part, _name) in SAID.items():
        memories[language].put({"role": "system", "content": first[::-1]})
        memories[language].put({"role": "user", "content": first, "name": SAID[language][-1]})
        memories[language].put({"role": "user", "content": second})
        memories[language].put({"role": "assistant", "content": "."})
        assert memories[language].search(question, limit=1)[0].text == first, f"{language}, when just put"
    for memory in memories.values():
        memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings)
    assert nothing_due(rig.url)
    for language, (first, second, question, part, name) in SAID.items():
        memory = memories[language]
        assert memory.search(question, limit=1)[0].text == first, f"{language}, when flushed"
        assert memory.facts.search(question, limit=1)[0].fact.text == first, language
        assert [fact.text for fact in memory.facts.list(contains=part)] == [first], language
        context = memory.get(question)
        assert str(context[0]).startswith(f"system: {first[::-1]}"), "the head stays"
        assert f": {first}\n" in context[0].text and f": {second}\n" in context[0].text
        assert [message.text for message in memory.get_all()] == [first[::-1], first, second, "."]
        assert memory.facts.list(contains=part)[0].said_by in (name, None)
        assert memory.facts.delete(memory.facts.list(contains=part)[0].fact_id)
        say(memory, question)
    drain_everything(rig.database, rig.url, rig.settings)
    for language, memory in memories.items():
        assert SAID[language][0] not in [fact.text for fact in memory.facts.list()], language
        memory.reset(derived=True)
        assert memory.search(SAID[language][2]) == [] and memory.facts.list().total == 0
    assert verify(rig.database, deep=True).violations == ()


def test_without_a_model_chinese_is_understood_as_far_as_english(rig: Rig) -> None:
    settings = load_settings(database_url=rig.url, text_backend="local", embedding_backend="local")
    memory = rig.memory("会话", user_id="小明", token_limit=600)
    for text in ("我叫小明,住在里斯本。", "我的猫叫咪咪,它昨天三岁了。", "今天天气怎么样?"):
        say(memory, text)
        drain_everything(rig.database, rig.url, settings)
    name, cat = memory.facts.list(sort="oldest")
    assert name.text == "User: 我叫小明,住在里斯本。"
    assert cat.about_date is not None
    assert cat.text == f"User: 我的猫叫咪咪,它昨天三岁了。 ({cat.about_date})"
    memory.put({"role": "user", "content": "我住在哪里?"})
    shown = memory.get()[0].text
    assert "user: 我叫小明,住在里斯本。\n" in shown


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("我上周六去了海边", date(2024, 5, 4)),
        ("上个星期天下雨", date(2024, 5, 5)),
        ("下周一开会", date(2024, 5, 13)),
        ("这周五出发", date(2024, 5, 10)),
        ("昨天", date(2024, 5, 7)),
        ("上周很忙", date(2024, 5, 1)),
    ],
)
def test_chinese_days_are_resolved_from_the_day_they_were_said(text: str, day: date) -> None:
    assert spoken_date(text, date(2024, 5, 8)) == day, "said on a Wednesday"


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("Morgen fliege ich nach Lissabon.", 1),
        ("Ich war gestern mit Ida im Kino.", -1),
        ("Guten Morgen, ich bin Ida!", None),
        ("Ich heirate nächsten Freitag.", 2),
        ("Wir haben uns letzten Montag getroffen.", -2),
        ("Heute Morgen war ich da.", 0),
        ("Das Boot ist hier.", None),
        ("Ich komme übermorgen.", 2),
        ("Vorgestern war ich krank.", -2),
        ("Mañana viajo a Lisboa.", 1),
        ("Trabajo por la mañana en casa.", None),
        ("Mi boda es el próximo viernes.", 2),
        ("Me caso pasado mañana.", 2),
        ("Esta mañana vi a mi hermana.", 0),
        ("El viernes que viene es mi boda.", 2),
        ("Demain je pars avec ma sœur.", 1),
        ("Hier j'ai vu Ida.", -1),
        ("Je me marie vendredi prochain.", 2),
        ("Aujourd'hui je suis à la maison.", 0),
        ("Domani vado al mare.", 1),
        ("Mi sposo venerdì prossimo.", 2),
        ("Ieri ho visto mia sorella.", -1),
        ("Amanhã vou ao mar.", 1),
        ("Eu caso na próxima sexta-feira.", 2),
        ("Depois de amanhã é a festa da minha irmã.", 2),
        ("Morgen ga ik naar zee.", 1),
        ("Ik trouw volgende vrijdag.", 2),
        ("Imorgon åker jag till havet.", 1),
        ("Jag gifter mig nästa fredag.", 2),
        ("Jutro jadę do Gdańska.", 1),
        ("Завтра я еду в Минск.", 1),
        ("Я был там в прошлую пятницу.", -5),
        ("Mañana por la mañana viajo.", 1),
        ("Tengo una cita mañana.", 1),
        ("Tengo la cita mañana.", 1),
        ("Esta mañana vi a Ana", 0),
        ("Meine Schwester, die morgen kommt, heißt Ida.", 1),
        ("Ich habe den Termin morgen.", 1),
        ("Machst du das morgen?", 1),
        ("Hoy cumplo 30 años.", 0),
        ("Heute habe ich Geburtstag.", 0),
        ("Mañana es Navidad.", 1),
        ("Aujourd'hui c'est mon anniversaire.", 0),
        ("Vendredi dernier j'ai vu Ida.", -5),
        ("Antes de ayer la vi.", -2),
        ("Avant hier il pleuvait.", -2),
        ("Ieri l'altro pioveva.", -2),
        ("Antes de ontem choveu.", -2),
        ("После завтра я еду.", 2),
        ("Dopo domani parto.", 2),
        ("Nächsten Montag Morgen habe ich Chor.", 5),
        ("Ik zie de dokter morgen.", 1),
        ("Vandaag en morgen werk ik.", 0),
        ("Bis morgen!", 1),
        ("The day after tomorrow we sail.", 2),
        ("A week ago today I moved.", -7),
        ("Gestern morgen regnete es.", -1),
        ("Heute in Lissabon regnet es.", 0),
        ("Hoje a Maria faz 30 anos.", 0),
        ("La reunión de mañana es en Porto.", 1),
        ("Morgen.", 1),
        ("Morgen kommt Ida.", 1),
        ("Last Friday in Porto we met.", -5),
        ("Jag flyttar i morgon bitti.", 1),
        ("Jutro rano jadę.", 1),
        ("Oggi in Italia piove.", 0),
        ("Wir segeln oft am Freitag.", None),
    ],
)
def test_days_of_european_languages_are_resolved_as_english_ones(text: str, days: int | None) -> None:
    wednesday = date(2024, 5, 8)
    day = spoken_date(text, wednesday)
    assert (None if day is None else (day - wednesday).days) == days


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("Vor 3 Tagen war ich in Bergen.", -3),
        ("Ich habe ihn vor einer Woche getroffen.", -7),
        ("Vor einem Tag kam der Brief.", -1),
        ("Ich fliege in zwei Wochen nach Oslo.", None),
        ("In drei Tagen heirate ich.", None),
        ("Heute in einer Woche heirate ich.", None),
        ("Heute vor drei Wochen zog ich um.", -21),
        ("Il y a trois jours, j'ai vu Ida.", -3),
        ("J'ai vu Ida il y a deux semaines.", -14),
        ("Je pars dans 5 jours.", 5),
        ("Il y a une semaine j'étais à Lyon.", -7),
        ("Hace dos semanas me mudé a Lisboa.", -14),
        ("Me mudé hace tres días.", -3),
        ("Me caso dentro de una semana.", 7),
        ("Lo vi 4 días atrás.", -4),
        ("Há três dias eu vi a Ida.", None),
        ("Eu vi a Ida duas semanas atrás.", -14),
        ("Eu viajo daqui a cinco dias.", 5),
        ("Cheguei há uma semana.", None),
        ("Tre giorni fa ho visto Ida.", -3),
        ("Ho visto Ida una settimana fa.", -7),
        ("Parto tra due settimane.", None),
        ("Mi sposo fra 10 giorni.", None),
        ("Drie dagen geleden zag ik Ida.", -3),
        ("Ik ga over twee weken weg.", None),
        ("Een week geleden was ik ziek.", -7),
        ("För tre dagar sedan såg jag Ida.", -3),
        ("Jag reser om två veckor.", None),
        ("Jag såg henne för en vecka sedan.", -7),
        ("Trzy dni temu widziałam Idę.", -3),
        ("Wyjeżdżam za dwa tygodnie.", None),
        ("Tydzień temu byłam chora.", -7),
        ("Za tydzień biorę ślub.", None),
        ("Три дня назад я видела Иду.", -3),
        ("Я уезжаю через две недели.", None),
        ("Неделю назад я болела.", -7),
        ("Через неделю у меня свадьба.", None),
        ("I saw Ida three weeks ago.", -21),
        ("Three days ago I saw Ida.", -3),
        ("I leave in two days.", None),
        ("My flight is in twelve days.", 12),
        ("A week ago I moved.", -7),
        ("Das Paket kommt nicht vor 3 Tagen.", None),
        ("Ich habe das Buch in zwei Tagen gelesen.", None),
        ("Morgen in einer Woche heirate ich.", None),
        ("Vor zwei oder drei Tagen kam sie.", None),
        ("Vor 2-3 Tagen kam sie.", None),
        ("Vor drei Monaten zog ich um.", None),
        ("Alle drei Tage laufe ich.", None),
        ("Seit drei Tagen bin ich krank.", None),
        ("Die Woche hat sieben Tage.", None),
        ("In acht Tagen fliege ich.", None),
        ("Gestern vor einer Woche kam sie.", None),
        ("Vor mehr als drei Tagen kam sie.", None),
        ("Il y a deux jours fériés en mai.", None),
        ("Il y a deux semaines de vacances.", None),
        ("Il y a trois jours entre les deux.", None),
        ("Dans deux jours de marche on arrive.", None),
        ("Il y a huit jours, je l'ai vue.", None),
        ("J'ai lu le livre en deux jours.", None),
        ("Il y a deux ou trois jours, elle est venue.", None),
        ("Hace un día precioso.", None),
        ("Leí el libro en dos días.", None),
        ("Hace más de dos semanas que vivo aquí.", None),
        ("Cada dos días corro.", None),
        ("Hace dos meses me mudé.", None),
        ("Dos o tres días atrás la vi.", None),
        ("Durante dos semanas viajé.", None),
        ("Faz um dia lindo.", None),
        ("Há dois dias feriados em maio.", None),
        ("Há três dias para terminar.", None),
        ("Li o livro em dois dias.", None),
        ("Dois ou três dias atrás eu vi a Ida.", None),
        ("Un giorno fa caldo e uno no.", None),
        ("Due o tre giorni fa è venuta.", None),
        ("Più di due settimane fa è venuta.", None),
        ("In tre giorni ho letto il libro.", None),
        ("Twee of drie dagen geleden kwam ze.", None),
        ("Meer dan twee weken geleden kwam ze.", None),
        ("In twee dagen las ik het boek.", None),
        ("Elke drie dagen ren ik.", None),
        ("Två eller tre veckor sedan.", None),
        ("På tre dagar läste jag boken.", None),
        ("Dwa lub trzy dni temu przyszła.", None),
        ("Два или три дня назад она пришла.", None),
        ("2-3 дня назад она пришла.", None),
        ("Более двух недель назад она пришла.", None),
        ("I saw her two or three days ago.", None),
        ("I saw her 2-3 days ago.", None),
        ("1.5 weeks ago I moved.", None),
        ("More than three weeks ago I moved.", None),
        ("Three weeks and two days ago I moved.", None),
        ("A week ago yesterday I moved.", None),
        ("Two weeks ago tomorrow I moved.", None),
        ("For the first time in two weeks I slept.", None),
        ("I ran twice in two days.", None),
        ("Rome was not built in a day.", None),
        ("I run three times in two weeks.", None),
        ("Llevo dos semanas atrás.", None),
        ("Estou dois dias atrás.", None),
        ("Das Buch las ich in 3 Tagen.", None),
        ("Man kann in 3 Tagen viel sehen.", None),
        ("Zum ersten Mal in 3 Tagen aß ich.", None),
        ("Ich habe Angst vor 3 Tagen ohne Internet.", None),
        ("hij praat over 3 dagen vakantie", None),
        ("het ging over twee weken in Spanje", None),
        ("verdeeld over 3 dagen", None),
        ("boken handlar om 3 dagar i Paris", None),
        ("3 gånger om 2 dagar", None),
        ("zapłaciłem za 3 dni pobytu", None),
        ("za dwa tygodnie pracy dostałem 100 zł", None),
        ("хожу в зал через день", None),
        ("я работаю через неделю", None),
        ("ogni due giorni fa la spesa", None),
        ("per tre giorni fa il turno di notte", None),
        ("tra 3 giorni e 5 giorni", None),
        ("Il y a 7 jours dans une semaine.", None),
        ("Il y a 5 jours. C'est trop.", None),
        ("hace dos días de frío", None),
        ("há 3 dias no calendário", None),
        ("I lost 5 kg in 2 weeks", None),
        ("I have not eaten in 3 days", None),
        ("I read the book in 3 days", None),
        ("for the first time in two weeks", None),
        ("I will read the book in 3 days.", None),
        ("We are going to see five cities in 3 days.", None),
        ("I'll be home in 3 days of rain.", None),
        ("Ich traf ihn vor 3 Tagen.", -3),
        ("Vor zwei Wochen hat Ida geheiratet.", -14),
        ("Vor 3 Tagen Regen habe ich Angst.", None),
        ("Ich fürchte mich vor zwei Wochen Regen.", None),
        ("Schutz vor 3 Tagen.", None),
        ("Er warnte mich vor 3 Tagen mit Sturm.", None),
        ("Das Paket kommt kaum vor 3 Tagen.", None),
        ("Il y a trois jours elle est venue.", -3),
        ("Je l'ai vue il y a deux jours.", -2),
        ("Elle est partie pour Lyon il y a deux semaines.", -14),
        ("Elle se marie dans une semaine.", 7),
        ("Il y a 14 jours dans deux semaines.", None),
        ("Dans une semaine il y a 7 jours.", None),
        ("Il y a trois jours que je l'attends.", None),
        ("Il y a 5 jours, c'est trop.", None),
        ("Il y a 5 jours, j'ai faim.", None),
        ("Je sais qu'il y a trois jours.", None),
        ("Il y a trois jours qui ont changé ma vie.", None),
        ("Tout est arrivé dans deux semaines de pluie.", None),
        ("Vi a Ida hace dos días.", -2),
        ("Vivo aquí hace dos semanas.", None),
        ("No duermo hace tres días.", None),
        ("Hace dos semanas que vivo aquí.", None),
        ("Vivo en Porto desde hace dos semanas.", None),
        ("Hace dos días calurosos.", None),
        ("Me contó que hace dos semanas vive aquí.", None),
        ("Llegué tres días atrás de ella.", None),
        ("Hay siete días dentro de una semana.", None),
        ("Llega dentro de 3 días hábiles.", None),
        ("Há três dias atrás eu vi a Ida.", -3),
        ("Não durmo há três dias.", None),
        ("Moro aqui há duas semanas.", None),
        ("Cheguei dois dias atrás dele.", None),
        ("Due settimane fa mi sono trasferita.", -14),
        ("Tre giorni fa sport e due no.", None),
        ("In due giorni fa, dice, dieci chilometri.", None),
        ("Da tre giorni fa freddo.", None),
        ("Hij heeft 3 dagen geleden aan hoofdpijn.", None),
        ("Vandaag over twee weken trouw ik.", None),
        ("Jag läste boken på tre dagar.", None),
        ("Byłam u niej dwa tygodnie temu.", -14),
        ("Poświęciłam dwa tygodnie temu projektowi.", None),
        ("Dałem trzy dni temu dziecku.", None),
        ("Встречу перенесли на неделю назад.", None),
        ("Каждые две недели назад идём пешком.", None),
        ("The gala is two weeks from now.", 14),
        ("The rent is due in a week.", 7),
        ("We sail in two weeks' time.", 14),
        ("Two days from tomorrow we sail.", None),
        ("It sells out in 3 days.", None),
        ("He walked 100 miles in one week.", None),
        ("The wedding is in two weeks of sun.", None),
        ("In 2 Wochen kann man viel lernen.", None),
        ("Vor zwei Wochen bin ich umgezogen.", -14),
        ("Aus Angst vor drei Tagen Sturm blieb ich.", None),
        ("Zij verdeelt het werk over twee weken.", None),
        ("Hij was drie dagen geleden onder druk.", None),
        ("Romanen handlar om en vecka i Rom.", None),
        ("Två gånger om tre dagar.", None),
        ("Zapłacił za tydzień pracy.", None),
        ("Za 3 dni najmu płacę 100 zł.", None),
        ("Он платит за неделю.", None),
        ("Я хожу к врачу через 3 дня.", None),
        ("Per due settimane fa il cuoco.", None),
        ("Lavora due giorni fa lo stesso.", None),
        ("Tra una settimana e l'altra dormo.", None),
        ("En une semaine il y a sept jours.", None),
        ("Il y a deux semaines de pluie.", None),
        ("Ce film se passe dans trois jours de guerre.", None),
        ("On voit tout dans trois jours de voyage.", None),
        ("Hace una semana de calor.", None),
        ("Hace 3 días que no duermo.", None),
        ("Trabajo en Porto hace tres semanas.", None),
        ("Vou dois dias atrás do plano.", None),
        ("Faz três dias que chove.", None),
        ("She did it all in one week.", None),
        ("He was in 3 days of pain.", None),
        ("They can build it in 5 days.", None),
        ("I'll lose 5 kg in 2 weeks.", None),
        ("The test is in 3 days, I think.", 3),
        ("Today in two weeks I sail.", None),
        ("Ida called me 3 days ago.", -3),
        ("He visto a Ida dos semanas atrás.", -14),
        ("Hace dos días llovió.", -2),
        ("Nous avons mangé chez Ida il y a trois jours.", -3),
        ("Il y a deux semaines, elle a vendu la barque.", -14),
        ("Ik zag Ida drie dagen geleden.", -3),
        ("Jag var sjuk för två dagar sedan.", -2),
        ("Dwa tygodnie temu byłem w Gdańsku.", -14),
        ("Две недели назад он уехал.", -14),
        ("Sono tornata due giorni fa.", -2),
        ("Cheguei três dias atrás.", -3),
        ("On a lu le livre dans deux jours.", None),
        ("Il y a trois jours, c'est vrai.", None),
        ("Cette semaine il y a trois jours.", None),
    ],
)
def test_days_and_weeks_ago_and_ahead_are_resolved_or_left(text: str, days: int | None) -> None:
    test_days_of_european_languages_are_resolved_as_english_ones(text, days)


# Sentences by language whose words of days name no day: a wrong day is worse than none.
NO_DAYS = {
    "spanish": [
        "Cada mañana corro por la playa.",
        "Una mañana conocí a Ana.",
        "Trabajo por la mañana en casa.",
        "A la mañana siguiente llovía.",
        "A las ocho de la mañana desayuno.",
        "Una fría mañana salí.",
        "Tomo la pastilla mañana y noche.",
        "Hoy hace un año me mudé a Lisboa.",
        "Hace hoy un año me mudé.",
        "Hoy en día vivo sola.",
        "Hasta hoy vivo en Porto.",
        "Nadamos el último viernes de cada mes.",
    ],
    "dutch": [
        "Elke morgen drink ik koffie.",
        "In de morgen werk ik.",
        "Goede morgen, ik ben Ida.",
        "Op een koude morgen viel hij.",
        "Die morgen was ik ziek.",
        "Vandaag precies een jaar geleden trouwde ik.",
        "Vandaag de dag woon ik alleen.",
    ],
    "german": [
        "Diesen Morgen war ich müde.",
        "Am Montag Morgen habe ich Chor.",
        "Montag morgen habe ich Chor.",
        "Morgen! Ich wohne in Bonn.",
        "Morgen, ich bin Ida.",
        "Morgen zusammen, ich bin Ida.",
        "Guten Morgen!",
        "Jeden Morgen laufe ich.",
        "Der Morgen war kalt.",
        "An einem kalten Morgen fiel er.",
        "Am nächsten Morgen regnete es.",
        "Heute vor einem Jahr zog ich nach Bonn.",
        "Heute genau vor zwei Jahren zog ich um.",
        "Von heute auf morgen war alles anders.",
        "Bis heute wohne ich dort.",
        "Wir treffen uns jeden letzten Freitag.",
        "Wir treffen uns am letzten Freitag im Monat.",
        "Das Boot ist hier.",
    ],
    "norwegian": [
        "God morgen, jeg hedder Ida.",
        "Hver morgen løber jeg.",
    ],
    "french": [
        "Le lendemain il pleuvait.",
        "Aujourd'hui il y a un an, j'ai déménagé.",
        "Il y a un an aujourd'hui, j'ai déménagé.",
        "On nage le dernier vendredi du mois.",
        "Chaque matin je cours.",
        "Le monde de demain m'inquiète.",
        "J'y habite jusqu'à aujourd'hui.",
    ],
    "portuguese": [
        "Toda manhã eu corro.",
        "Hoje em dia moro sozinho.",
        "Hoje faz um ano que me mudei.",
        "Há um ano hoje mudei de casa.",
        "Até hoje moro lá.",
        "Penso muito no amanhã e o amanhã me assusta.",
    ],
    "italian": [
        "Ogni mattina corro.",
        "Il domani mi spaventa.",
        "Un anno fa oggi mi sono trasferita.",
        "Oggi un anno fa mi sono trasferita.",
        "Al giorno d'oggi vivo da sola.",
        "L'indomani pioveva.",
        "Nuotiamo l'ultimo venerdì del mese.",
    ],
    "swedish": [
        "Varje morgon springer jag.",
        "God morgon, jag heter Ida.",
        "I dag för ett år sedan flyttade jag.",
        "För ett år sedan i dag flyttade jag.",
        "Än i dag bor jag där.",
    ],
    "polish": [
        "Każdego ranka biegam.",
        "Dziś rok temu przeprowadziłam się.",
        "Rok temu dzisiaj się przeprowadziłam.",
        "Do dziś tam mieszkam.",
        "Wierzę w lepsze jutro.",
        "Pływamy w ostatni piątek miesiąca.",
    ],
    "croatian": [
        "Dobro jutro, ja sam Ida.",
    ],
    "russian": [
        "Каждое утро я бегаю.",
        "Сегодня ровно год назад я переехал.",
        "Год назад сегодня я переехал.",
        "До сегодня я живу там.",
        "Я верю в светлое завтра.",
    ],
    "english": [
        "The gala is a month from today.",
        "A year ago today I moved.",
        "A week from tomorrow is the gala.",
        "We swim on the last Friday of the month.",
        "We swim every last Friday.",
    ],
    "chinese": [
        "去年今天我搬家了。",
    ],
    "japanese": [
        "一年前の今日、引っ越した。",
    ],
}


@pytest.mark.parametrize("text", [text for texts in NO_DAYS.values() for text in texts])
def test_words_of_days_that_name_no_day_give_none(text: str) -> None:
    assert spoken_date(text, date(2024, 5, 8)) is None


# A text, and queries of one word that people would find it by.
SPELLINGS = [
    ("José works at the café in Zürich.", ("Jose", "cafe", "Zurich", "José", "ZÜRICH")),
    ("We flew to İstanbul.", ("istanbul", "İstanbul", "Istanbul")),
    ("Søren, Łukasz and Đorđe came.", ("soren", "Lukasz", "Dorde")),
    ("Will is my brother.", ("Who is Will?", "Will")),
    ("May is my boss.", ("Who is May?",)),
    ("She works in IT in the US.", ("US", "IT")),
    ("犬が好きです。", ("犬",)),
    ("Dinner was 🍕.", ("🍕",)),
    ("The hike is 5km long.", ("5 km", "5km")),
    ("The hike is 5 km long.", ("5km",)),
    ("We meet at 3pm.", ("3 pm",)),
    ("Call +1-555-123-4567.", ("5551234567", "+1 555 123 4567", "123-4567", "(555) 123-4567")),
    ("We run v18.1 of it.", ("18.1", "V18.1")),
]


@pytest.mark.parametrize(("text", "queries"), SPELLINGS, ids=[text for text, _ in SPELLINGS])
def test_a_word_is_found_as_people_write_it(
    make_memory: MakeMemory, text: str, queries: tuple[str, ...]
) -> None:
    memory = make_memory("s", user_id="u", memory_blocks=[])
    for one in (text, "The garden tools are in the shed."):
        memory.put({"role": "user", "content": one})
        memory.facts.add(one)
    for query in queries:
        assert text in [hit.text for hit in memory.search(query)], query
        assert [hit.fact.text for hit in memory.facts.search(query)] == [text], query


def test_what_was_said_on_a_day_is_found_by_the_day(rig: Rig) -> None:
    """Flushed or not, though the message shares no word with the question."""
    memory = rig.memory("s", user_id="u", token_limit=600, memory_blocks=["vectors"])
    done = ("repaired the bike", "cooked lasagne", "went to the dentist", "ran ten miles")
    for day, did in enumerate(done, 3):
        said_at = datetime(2026, 6, day, 12, tzinfo=UTC)
        memory.put({"role": "user", "content": f"I {did}.", "created_at": said_at})
    questions = ("What did I do on 5 June 2026?", "What happened on 2026-06-05?", "June 5", "5.6.2026")
    found = {question: memory.search(question, limit=1)[0].text for question in questions}
    assert set(found.values()) == {"I went to the dentist."}, found
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings, [VECTORS_STAGE])
    found = {question: memory.search(question, limit=1)[0].text for question in questions}
    assert set(found.values()) == {"I went to the dentist."}, found
