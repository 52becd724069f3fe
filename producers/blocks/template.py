"""A caller's memory template, in Jinja; imported only if one is given.

The template sees ``sections``, each with ``name`` and ``text``.  A section's text was escaped when its
block rendered it and is passed as markup; everything else is escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from strandline.producers.blocks.render import Renderer, Section
from strandline.schemas.errors import ConfigurationError

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)

_SAMPLE = (Section("static_memory", "a"), Section("summary", "b"))


@lru_cache(maxsize=64)
def compile_memory_template(source: str) -> Renderer:
    """A renderer from Jinja source, for example
    ``{% for s in sections %}<{{ s.name }}>{{ s.text }}</{{ s.name }}>{% endfor %}``.

    Rendered text has no ``<``, so tags enclose it safely; lines do not, since it may contain newlines.

    Compiled once per source, since a backend makes a ``Memory`` per request, and tried at once on a
    sample, so that a mistake shows when the template is passed and not at the first read.

    Raises:
        ConfigurationError: the template cannot be parsed, uses an unknown name, or never uses ``sections``.
    """
    try:
        _template(source)
        used = find_undeclared_variables(_ENVIRONMENT.parse(source))
    except (TemplateError, RecursionError) as error:
        raise _refusal(error) from error
    if "sections" not in used:
        raise _refusal("it never uses `sections`, so no memory would be shown")

    # By its source, since a compiled template cannot be pickled.
    render = partial(_render, source)
    render(_SAMPLE)
    return render


@lru_cache(maxsize=64)
def _template(source: str) -> Template:
    return _ENVIRONMENT.from_string(source)


def _render(source: str, sections: Sequence[Section]) -> str:
    if not sections:
        return ""
    # Blocks escape their output, so escaping it again would garble it.
    marked = [{"name": section.name, "text": Markup(section.text)} for section in sections]  # noqa: S704
    try:
        return _template(source).render(sections=marked).strip()
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise _refusal(error) from error


def _refusal(error: Exception | str) -> ConfigurationError:
    return ConfigurationError(
        f"memory_template cannot be used: {error}. It is a Jinja template over `sections`, each with"
        " `name` and `text`."
    )
