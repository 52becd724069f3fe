"""``doctor`` names each file of secrets that every user of the host can read, whichever setting names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.doctor.checks import SECRET_FILES, check_secret_files
from strandline.schemas.model_roles import ModelRoles, variable
from strandline.schemas.settings import Settings, load_usable_settings

# Each with its reason.
NOT_SECRET = {
    "models_file": "looked into: most hold no secret",
    "audit_anchors_file": "anchors are there to be shown",
}
ROLES_WITH_FILES = ("default", "facts", "merge", "summary", "embedding", "query_embedding")


def named(settings: Settings) -> list[str]:
    return [check.found for check in check_secret_files(settings)]


def test_every_setting_that_names_a_file_is_judged() -> None:
    files = {name for name in Settings.model_fields if name.endswith("_file")}
    assert files == {*SECRET_FILES, *NOT_SECRET}
    of_roles = {
        (role, name)
        for role, field in ModelRoles.model_fields.items()
        for name in type(field.default).model_fields
        if name.endswith("_file")
    }
    assert of_roles == {(role, "api_key_file") for role in ROLES_WITH_FILES}


@pytest.mark.parametrize("by", ["variable", "file"])
@pytest.mark.parametrize("role", ROLES_WITH_FILES)
def test_the_key_file_of_each_role_is_looked_at(
    role: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-hidden")
    key.chmod(0o644)
    if by == "variable":
        monkeypatch.setenv(variable(role, "api_key_file"), str(key))
    else:
        roles = tmp_path / "models.toml"
        roles.write_text(f'[{role}]\napi_key_file = "{key}"\n')
        roles.chmod(0o644)
        monkeypatch.setenv("STRANDLINE_MODELS_FILE", str(roles))
    settings, refused = load_usable_settings()
    assert not refused
    (found,) = named(settings)
    assert variable(role, "api_key_file") in found and "(mode 0644)" in found
    assert str(key) not in found, "who mistakes the variable sets a key there"
    key.chmod(0o600)
    assert named(settings) == []


@pytest.mark.parametrize(
    ("line", "is_secret"),
    [
        ('api_key = "sk-hidden"', True),
        ('headers = {"X-Key" = "hidden"}', True),
        ('query = {"key" = "hidden"}', True),
        ('base_url = "http://user:hidden@127.0.0.1:1/v1"', True),
        ('base_url = "http://127.0.0.1:1/v1?code=hidden"', True),
        ('base_url = "http://127.0.0.1:1/v1"', False),
        ('key_header = "api-key"', False),
        ("timeout_seconds = 5", False),
    ],
)
def test_the_file_of_the_roles_is_one_where_a_secret_stands_in_it(
    line: str, is_secret: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = tmp_path / "models.toml"
    roles.write_text(f"[default]\n{line}\n")
    roles.chmod(0o604)
    monkeypatch.setenv("STRANDLINE_MODELS_FILE", str(roles))
    settings, refused = load_usable_settings()
    assert not refused
    assert ["STRANDLINE_MODELS_FILE" in one for one in named(settings)] == [True] * is_secret
    roles.chmod(0o640)
    assert named(settings) == []


@pytest.mark.parametrize("content", ["no TOML [", 'facts = "text"\n', None])
def test_a_file_that_cannot_be_used_is_named_by_the_settings(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = tmp_path / "models.toml"
    if content is not None:
        roles.write_text(content)
    monkeypatch.setenv("STRANDLINE_MODELS_FILE", str(roles))
    settings, refused = load_usable_settings()
    assert refused and named(settings) == []


@pytest.mark.parametrize("name", ["keyring_file", "audit_key_file", "receipt_key_file"])
def test_the_other_files_of_secrets_are_looked_at(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("x")
    file.chmod(0o602)
    monkeypatch.setenv(f"STRANDLINE_{name.upper()}", str(file))
    settings, _ = load_usable_settings()
    (found,) = named(settings)
    assert f"STRANDLINE_{name.upper()}" in found
