"""Settings that name folders: read as a shell would read them, also where no shell set the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import ConfigurationError
from strandline.schemas.settings import load_settings


@pytest.mark.parametrize("variable", ["STRANDLINE_HOME", "STRANDLINE_PROMPTS_DIR"])
@pytest.mark.parametrize(("given", "meant"), [("~/x", "{home}/x"), ("~", "{home}"), ("/a/~/b", "/a/~/b")])
def test_a_leading_tilde_is_the_home_directory(
    variable: str, given: str, meant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, given)
    settings = load_settings()
    found = settings.home if variable == "STRANDLINE_HOME" else settings.prompts_dir
    assert found == Path(meant.format(home=tmp_path))


def test_a_home_directory_that_is_not_known_is_refused_by_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRANDLINE_HOME", "~no-such-user-here/x")
    with pytest.raises(ConfigurationError, match=r"STRANDLINE_HOME: .*~no-such-user-here"):
        load_settings()
