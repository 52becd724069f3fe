"""``strandline keys``: the keys of the HTTP service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from strandline.administration.keys import KeySpec, create_key, list_keys, revoke_key, rotate_key
from strandline.cli.command import CommandGroup, Output
from strandline.cli.servers.options import namespace_filter, settings_alone
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import table
from strandline.schemas.display.shown_text import time_text
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.keys import (
    DEFAULT_OVERLAP_SECONDS,
    MAX_KEY_SECONDS,
    SCOPES,
    KeyInfo,
    NewKey,
    RevokedKey,
)
from strandline.schemas.wire.report import Report


@click.group("keys", cls=CommandGroup)
def command() -> None:
    """Make, list, rotate and revoke keys of the HTTP service."""


_HEADERS = ("key", "namespace", "user", "scopes", "label", "made by", "created", "ends", "state")
_PAGE = 1_000
HOUR = 3_600.0
DAY = 24 * HOUR


class KeysReport(Report):
    """``strandline keys list``: keys by id, without their secrets, which are not stored."""

    keys: list[KeyInfo]


@command.add("create", settings_alone, NewKey)
@click.option("--namespace", metavar="NAME", help="The namespace that it opens; default: default.")
@click.option("--all-namespaces", is_flag=True, help="An operator's key: of all namespaces, opens no memory.")
@click.option(
    "--user", "user_id", metavar="ID", help="The one user that it opens; default: all of the namespace."
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    help="What may be done with it; may be given several times. Default: read, write and facts.",
)
@click.option(
    "--shared-scope",
    "shared_scopes",
    multiple=True,
    metavar="NAME",
    help="A shared scope that a key with --user may begin sessions in; may be given several times.",
)
@click.option("--label", default="", metavar="TEXT", help="For people: whose it is, or what for.")
@click.option(
    "--days",
    type=click.FloatRange(0.0, MAX_KEY_SECONDS / DAY, min_open=True),
    help="When it ends; default: never.",
)
def create_command(
    settings: Settings,
    namespace: str | None,
    all_namespaces: bool,
    scopes: tuple[str, ...],
    days: float | None,
    **spec: Any,
) -> Output:
    """Make a key and print it. It is shown this once: only a digest of it is stored."""
    if all_namespaces and namespace is not None:
        raise click.UsageError("--all-namespaces names all of them; leave --namespace out.")
    key = KeySpec(
        None if all_namespaces else DEFAULT_NAMESPACE if namespace is None else namespace,
        scopes or (("operate",) if all_namespaces else ("read", "write", "facts")),
        expires_in_seconds=None if days is None else days * DAY,
        **spec,
    )
    with opened_database(settings) as database:
        return _show_new(database.run(create_key(key)))


@command.add("list", opened_database, KeysReport)
@namespace_filter
def list_command(database: Database, namespace: str | None) -> Output:
    """List keys, ended ones too, without their secrets."""
    keys = list(_all_keys(database, namespace))
    lines = table(_HEADERS, map(_row, keys)) if keys else ["no keys; `strandline keys create` makes one"]
    return Output(KeysReport(keys=keys), lines)


@command.add("rotate", opened_database, NewKey)
@click.argument("key_id", metavar="KEY_ID")
@click.option(
    "--overlap-hours",
    type=click.FloatRange(0.0, MAX_KEY_SECONDS / HOUR),
    default=DEFAULT_OVERLAP_SECONDS / HOUR,
    show_default=True,
    help="How long the old key stays valid.",
)
@click.option(
    "--days",
    type=click.FloatRange(0.0, MAX_KEY_SECONDS / DAY, min_open=True),
    help="When the new key ends; default: it lives as long as the old one was to.",
)
def rotate_command(database: Database, key_id: str, overlap_hours: float, days: float | None) -> Output:
    """Make a key that opens what KEY_ID opens, and print it; KEY_ID stays valid for a while.

    `strandline keys list` shows the ids.
    """
    rotation = rotate_key(
        _id_in(key_id),
        overlap_seconds=overlap_hours * HOUR,
        expires_in_seconds=None if days is None else days * DAY,
    )
    return _show_new(database.run(rotation))


@command.add("revoke", opened_database, RevokedKey)
@click.argument("key_id", metavar="KEY_ID")
@click.option(
    "--with-made",
    is_flag=True,
    help="Also end the keys that it was rotated from, and all keys that any of them made or was rotated to.",
)
def revoke_command(database: Database, key_id: str, with_made: bool) -> Output:
    """End KEY_ID now; every process of the service refuses it within five seconds.

    `strandline keys list` shows the ids; a whole key names itself too.
    """
    ended = database.run(revoke_key(_id_in(key_id), with_made=with_made))
    return Output(ended, [f"key {revoked} is revoked" for revoked in (ended.key_id, *ended.with_made)])


def _id_in(text: str) -> str:
    """The id in a key, or a bare id: no secret is looked for, or repeated in an error."""
    return text.removeprefix("sl_").partition("_")[0]


def _all_keys(database: Database, namespace: str | None) -> Iterator[KeyInfo]:
    after = ""
    while page := database.run(list_keys(namespace, after=after, limit=_PAGE)):
        yield from page
        after = page[-1].key_id


def _show_new(new_key: NewKey) -> Output:
    whose = "all namespaces" if new_key.namespace is None else f"namespace {new_key.namespace}"
    user = f", user {new_key.user_id}" if new_key.user_id else ""
    until = "" if new_key.expires_at is None else f", until {time_text(new_key.expires_at)}"
    note = (
        f"key {new_key.key_id} of {whose}{user}, with {', '.join(new_key.scopes)}{until};"
        " keep it now, it is not shown again"
    )
    return Output(new_key, [new_key.key], notes=[note])


def _row(key: KeyInfo) -> tuple[str, ...]:
    state = "revoked" if key.revoked_at else "ended" if key.is_over else "open"
    return (
        key.key_id,
        key.namespace or "(all)",
        key.user_id or "-",
        ",".join(key.scopes),
        key.label or "-",
        key.made_by or "-",
        time_text(key.created_at),
        "-" if key.expires_at is None else time_text(key.expires_at),
        state,
    )
