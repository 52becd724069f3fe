"""Settings that name folders: read as a shell would read them, also where no shell set the variable."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from strandline import ConfigurationError
from strandline.cli import entry
from strandline.deploy.embedded.stack import start_stack
from strandline.schemas.settings import load_settings
from tests.conftest import Rig


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


def test_a_user_without_a_home_directory_needs_one_only_for_the_embedded_servers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a container's user of an arbitrary id, without an entry in passwd."""

    def nobody(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "STRANDLINE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="STRANDLINE_HOME"):
        start_stack(load_settings().home, with_broker=False)
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", rig.url)
    monkeypatch.setenv("STRANDLINE_BROKER_URL", rig.broker_url)
    assert entry.run(["doctor", "--no-model-call"]) == 0
    assert f"ok       home: {os.devnull}/strandline cannot be written" in capfd.readouterr().out
