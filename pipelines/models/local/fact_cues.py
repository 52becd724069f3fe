"""The words by which the extractive stand-in tells a fact about a person from small talk."""

from __future__ import annotations

import re

from strandline.pipelines.text.lexemes import word_set

# Names of an assistant that say what it is, and not who.
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

# What may stand before the sentence proper, with the name of the one who is spoken to.
LEADING_TALK = re.compile(
    r"""^(?:(?:
        yeah | yes | yep | yup | well | so | oh | wow | woah | whoa | and | but | thanks | hey | hi | hello
      | haha
      | lol | actually | btw | by\ the\ way | also | no | nope | ok | okay | sure | definitely | absolutely
      | totally
    )\b[,!]*\s+)+(?:[A-Z][\w-]*,\ )?""",
    re.VERBOSE | re.IGNORECASE,
)
