"""Settings from any environment: read and used, or refused with a sentence that names the variable."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Memory, StrandlineError
from strandline.schemas.settings import Settings, load_settings
from tests.fuzz.running import fuzzed
from tests.fuzz.values import texts

VARIABLES = [
    *(f"STRANDLINE_{name.upper()}" for name in Settings.model_fields if not name.startswith("openai")),
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "STRANDLINE_ZYZZYVA",
]
_urls = st.builds(
    "{}://{}{}".format,
    st.sampled_from(["postgresql", "postgresql+asyncpg", "postgres", "redis", "amqp", "http", "foo", ""]),
    st.sampled_from(["u:p@", "u:p@ss/w#rd@", "@", "", "u:%zz@"]),
    st.sampled_from(["127.0.0.1:1/x", "localhost", "[::1", "h:notaport/x", "", "h?api-key=s", "h/%00"]),
)
_words = st.sampled_from(
    ["true", "{}", "[]", '{"m": [1, 2]}', '{"m": NaN}', "~/x", "/dev/null/x", "auto", "a.b:C", "1e999", "٣"]
)
_values = st.one_of(texts, _urls, _words, st.integers().map(str), st.floats().map(str))


def held(value: str) -> str:
    """The value as an environment can hold it; bytes that are not UTF-8 come back as lone surrogates."""
    return os.fsdecode(value.replace("\x00", "").encode("utf-8", "replace").replace(b"?", b"\xff"))


def sentence_of(call: Callable[[], object]) -> str | None:
    """The sentence with which a call refuses its settings; None if it accepts them."""
    try:
        call()
    except StrandlineError as error:
        return str(error)
    return None


@given(environment=st.dictionaries(st.sampled_from(VARIABLES), _values, min_size=1, max_size=4))
@fuzzed()
def test_any_environment_is_read_or_refused_by_name(environment: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, held(value))
        refused = sentence_of(load_settings)
        if refused is not None:
            assert any(name in refused for name in environment), refused
        else:
            assert sentence_of(lambda: Memory.from_defaults("s")) != ""
