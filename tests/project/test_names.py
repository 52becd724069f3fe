"""What can be held of the table of names in CONTRIBUTING: functions are verbs, and values nouns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.project.test_contracts import MAINTAINED, Function, name_of
from tests.support.syntax_trees import tree_of

pytestmark = pytest.mark.usefixtures("without_collection")

# Participles that say how a value was come by, and not what it is.
VAGUE = {"found", "given", "got", "heeded", "made", "meant", "said", "told", "wanted"}
# Participles without an ending to know them by; `put`, `read`, `run` and `split` are verbs as well.
IRREGULAR = set(
    "begun bound broken brought built chosen done drawn fed felt found given gone got held kept known laid"
    " left lent lost made meant met said seen sent shown spent spoken taken thrown told written".split()
)
# They end as participles do, and are verbs, or nouns for what the function returns.
# ``acting`` reads as Python's ``suppress`` and ``closing`` do, behind ``with``.
NOT_PARTICIPLES = set("acting embed feed heading mapping meaning need ring seed string wording".split())
# How a truth begins.
QUESTIONS = set("is are was has have can may must needs does did shows fits".split())
# Fields of what `--json` prints, which others read.
PUBLIC_FIELDS = {
    ("pipelines/inspect/verify.py", "found"),
    ("strandline/cli/demo/story.py", "found"),
    ("strandline/cli/doctor/checks.py", "found"),
}
# What psycopg_pool calls it, on pools that stand in for its own.
OF_PSYCOPG = {"closed"}


def bare(name: str) -> str:
    return name.strip("_")


def is_participle(name: str) -> bool:
    word = bare(name)
    if word in NOT_PARTICIPLES or name.startswith("__"):
        return False
    return word in IRREGULAR or (word.isalpha() and word.endswith(("ed", "ing")))


def returns_its_argument_changed(function: Function) -> bool:
    """Whether it takes first what it returns: such a function may be a participle, as Python's ``sorted``."""
    arguments = [argument for argument in function.args.args if argument.arg not in {"self", "cls"}]
    if not arguments or arguments[0].annotation is None or function.returns is None:
        return False
    return ast.unparse(arguments[0].annotation) == ast.unparse(function.returns)


def functions() -> Iterator[tuple[str, Function]]:
    for path in MAINTAINED:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, Function):
                yield f"{name_of(path)}:{node.lineno}", node


def values_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything that is assigned to, an argument or a field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def test_values_say_what_they_are() -> None:
    vague = [
        f"{name_of(path)}:{line}: {name}"
        for path in MAINTAINED
        for line, name in values_in(tree_of(path))
        if bare(name) in VAGUE and (name_of(path), name) not in PUBLIC_FIELDS
    ]
    assert not vague, "\n".join(vague)


def test_functions_are_no_participles() -> None:
    participles = [
        f"{place}: {function.name}"
        for place, function in functions()
        if is_participle(function.name)
        and function.name not in OF_PSYCOPG
        and not returns_its_argument_changed(function)
    ]
    assert not participles, "\n".join(participles)


def test_properties_that_are_true_or_false_are_questions() -> None:
    statements = [
        f"{place}: {function.name}"
        for place, function in functions()
        if function.returns is not None
        and ast.unparse(function.returns) == "bool"
        and any("property" in ast.unparse(decorator) for decorator in function.decorator_list)
        and bare(function.name).split("_")[0] not in QUESTIONS
        and function.name not in OF_PSYCOPG
    ]
    assert not statements, "\n".join(statements)
