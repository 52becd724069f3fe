"""The definition of the tools: small enough to send with every request, and without a way to name a user."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from strandline import ConfigurationError, Memory
from strandline.producers.tokens import count_default
from strandline.producers.tools.definitions import TOOLS
from strandline.producers.tools.results import RESULTS, short_schema

NAMES = ["search_memories", "add_memory", "update_memory", "delete_memory", "get_context"]
READING = ["search_memories", "get_context"]

# In any spelling: whose memory it is.
IDENTITIES = ("user", "owner", "namespace", "tenant", "session", "agent")


@pytest.fixture
def memory() -> Memory:
    """Nothing is connected to: offering tools takes no database."""
    return Memory.from_defaults("s", user_id="maren", database_url="postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize("form", ["chat", "responses"])
def test_the_tools_take_fewer_than_a_thousand_tokens(memory: Memory, form: Any) -> None:
    assert count_default(json.dumps(memory.tools(form=form))) < 1_000


def test_no_tool_takes_an_argument_that_names_a_user(memory: Memory) -> None:
    for tool in TOOLS.values():
        for argument in tool.arguments:
            assert not any(word in argument.name for word in IDENTITIES), argument.name
        assert tool.parameters["additionalProperties"] is False


def test_the_tools_are_openais_dicts_in_both_forms(memory: Memory) -> None:
    chat, responses = memory.tools(), memory.tools(form="responses")
    assert [one["function"]["name"] for one in chat] == [one["name"] for one in responses] == NAMES
    for of_chat, of_responses in zip(chat, responses, strict=True):
        assert of_chat == {"type": "function", "function": of_chat["function"]}
        assert of_responses == {"type": "function", **of_chat["function"]}
        assert set(of_chat["function"]) == {"name", "description", "parameters"}


def test_read_only_tools_are_those_that_change_nothing(memory: Memory) -> None:
    assert [one["function"]["name"] for one in memory.tools(read_only=True)] == READING
    assert [tool.name for tool in TOOLS.values() if tool.is_read_only] == READING
    assert [tool.name for tool in TOOLS.values() if tool.is_destructive] == ["update_memory", "delete_memory"]


def test_a_caller_may_change_what_it_was_given(memory: Memory) -> None:
    memory.tools()[0]["function"]["parameters"]["properties"].clear()
    assert memory.tools()[0]["function"]["parameters"]["properties"]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_and_results_have_valid_and_bounded_schemas(name: str) -> None:
    parameters = TOOLS[name].parameters
    Draft202012Validator.check_schema(parameters)
    whole = RESULTS[name].model_json_schema(mode="serialization")
    short = short_schema(RESULTS[name])
    for schema in (whole, short):
        Draft202012Validator.check_schema(schema)
    assert short["properties"].keys() == whole["properties"].keys()
    for field, schema in whole["properties"].items():
        may_be_null = {"type": "null"} in schema.get("anyOf", [])
        assert Draft202012Validator(short["properties"][field]).is_valid(None) is may_be_null
    for schema in parameters["properties"].values():
        bound = {"string": "maxLength", "integer": "maximum", "array": "maxItems"}[schema["type"]]
        assert bound in schema
    assert set(parameters["required"]) <= set(parameters["properties"])


@pytest.mark.parametrize("form", ["openai", "", None, 1, ["chat"]])
def test_another_form_is_refused(memory: Memory, form: Any) -> None:
    with pytest.raises(ConfigurationError, match="it must be 'chat' or 'responses'"):
        memory.tools(form=form)


def test_read_only_is_true_or_false(memory: Memory) -> None:
    wrong: Any = "no"
    with pytest.raises(ConfigurationError, match="read_only"):
        memory.tools(read_only=wrong)
    with pytest.raises(ConfigurationError, match="read_only"):
        memory.call_tool("get_context", {}, read_only=wrong)
