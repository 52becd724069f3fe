"""``strandline encryption status|enable|reseal|rotate|retire``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.encryption.reading import Opened, open_encryption, read_encryption
from strandline.cli.encryption.reports import (
    EncryptedNamespaceReport,
    EncryptionReport,
    ResealReport,
    RetireReport,
    RotateReport,
)
from strandline.cli.servers.names import check_to_be_changed, even_if_unknown_option
from strandline.cli.servers.options import settings_alone
from strandline.cli.terminal.output import console, is_rich, say
from strandline.pipelines.older_transactions import older_have_ended
from strandline.pipelines.sealing.enabling import change_key, enable, find_encryption, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, Progress, reseal_namespace, retire_old_keys
from strandline.pipelines.sealing.rotating import renew_data_keys, rewrap_keys
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import ConfigurationError, DatabaseBusyError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.application.sealing import KeksInUse
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import check_name


class Tell(Protocol):
    """Says how far it is; of the other ``kind`` of lines, why nothing moves."""

    def __call__(self, text: str, kind: str = "goes on") -> None: ...


# Between two passes of ``reseal --wait``.
PASS_SECONDS = 2.0
# For how long ``retire`` waits for transactions that are open.
OPEN_SECONDS = 10.0
# Between two lines on how far it is, where they are not on a terminal.
LINE_SECONDS = 10.0

_PROBLEMS = {
    "ok": "",
    "missing": ", which is NOT in this keyring",
    "wrong": ", which in this keyring is NOT the key that wrapped",
}


@cli_command(
    "status",
    open_encryption,
    EncryptionReport,
    short_help="Show which namespaces are encrypted, and how far.",
)
@click.argument("namespace", required=False)
def status_command(opened: Opened, namespace: str | None) -> Output:
    """Show NAMESPACE, or every encrypted namespace: how far it is sealed, and which keys wrap its keys.

    Each key is tried on something that it has wrapped; ends with 1 if the keyring lacks one, or has another
    key under its id.
    """
    database, content = opened
    namespaces = read_encryption(database, content, namespace)
    if namespace is not None and not namespaces:
        find_encryption(database, check_name("namespace", namespace))
    report = EncryptionReport(keyring=list(content.keyring.key_ids()), namespaces=namespaces)
    is_bad = any(kek.state != "ok" for one in namespaces for kek in one.keys)
    return Output(report, _status_lines(report), code=1 if is_bad else 0)


@cli_command(
    "enable",
    settings_alone,
    EncryptedNamespaceReport,
    short_help="Encrypt a namespace, also one that has data.",
)
@click.argument("namespace")
@click.option("--key", "key_id", metavar="ID", help="The key that wraps; default: the keyring's first.")
@click.option(
    "--vectors",
    type=click.Choice(["clear", "off"]),
    required=True,
    help="clear: vectors of messages stay readable, and texts can be guessed from them. off: no vectors.",
)
@even_if_unknown_option
def enable_command(
    settings: Settings, namespace: str, key_id: str | None, vectors: str, even_if_unknown: bool
) -> Output:
    """Encrypt NAMESPACE. New content is sealed at once, and workers seal the content that is there.

    Every producer and worker needs the keyring before. `strandline encryption reseal --wait`
    seals all of it now. A key that is lost cannot be replaced: back the keyring up, apart from the database.
    """
    check_name("namespace", namespace)
    with open_encryption(settings) as (database, content), _progress("giving owners keys") as tell:
        check_to_be_changed(database, namespace, even_if_unknown=even_if_unknown)
        is_new = enable(database, content, namespace, key_id or _first_key(content), vectors)
        count = 0
        for keys in prepare_owners(database, content, namespace):
            count += keys
            tell(f"{quantity(count, 'owner')} with new keys")
        (report,) = read_encryption(database, content, namespace)
    first = f"{namespace}: {'is encrypted from now on' if is_new else 'was encrypted already'}"
    return Output(report, [first, *_lines(report)])


@cli_command(
    "reseal",
    settings_alone,
    ResealReport,
    short_help="Seal now what is not sealed under the newest keys.",
)
@click.argument("namespace")
@click.option("--rows-per-second", type=click.IntRange(1), metavar="N", help="At most; default: no bound.")
@click.option("--wait", is_flag=True, help="Go on until all of it is sealed.")
def reseal_command(settings: Settings, namespace: str, rows_per_second: int | None, wait: bool) -> Output:
    """Seal what NAMESPACE holds in clear, or under former data keys; it can be stopped and goes on later.

    Workers do the same by themselves, slowly. An owner is a user, a session without a user, or a scope that
    several share. With --wait it takes at least as long as running processes may keep former keys: some
    seconds after `enable`, STRANDLINE_KEY_CACHE_SECONDS (300 by default) after `rotate --data`.
    """
    pace = Pace(rows_per_second)
    with open_encryption(settings) as (database, content), _progress("sealing") as tell:
        find_encryption(database, check_name("namespace", namespace))
        rows = 0
        while True:
            progress = Progress()
            for _keys in prepare_owners(database, content, namespace):
                pass
            cache_seconds = settings.key_cache_seconds
            for progress in reseal_namespace(
                database, content, namespace, cache_seconds=cache_seconds, pace=pace
            ):
                tell(f"{quantity(rows + progress.rows, 'row')} of {quantity(progress.owners, 'owner')}")
            rows = progress.rows = rows + progress.rows
            if not (wait and progress.waiting):
                break
            tell(_describe_wait(rows, progress), "waits")
            time.sleep(PASS_SECONDS)
        progress.retired = retire_old_keys(database, content, namespace, pace=pace)
    report = ResealReport.of(progress, namespace=namespace)
    return Output(report, _reseal_lines(report), code=1 if progress.failed else 0)


@cli_command(
    "rotate", settings_alone, RotateReport, short_help="Change the key that wraps, or the data keys."
)
@click.argument("namespace")
@click.option("--key", "key_id", metavar="ID", help="Wrap all data keys with this key of the keyring.")
@click.option("--data", "data", is_flag=True, help="Give every owner a new data key, and seal all with it.")
def rotate_command(settings: Settings, namespace: str, key_id: str | None, data: bool) -> Output:
    """Rotate the keys of NAMESPACE, while it is used; it can be stopped and goes on when it is repeated.

    With --key, no content is touched; the former key is needed until `encryption retire` says otherwise.
    With --data, workers seal everything again, and delete former data keys some hours later.
    """
    if key_id is None and not data:
        raise click.UsageError("Say what to rotate: --key ID, --data, or both.")
    rewrapped = renewed = 0
    with open_encryption(settings) as (database, content), _progress("rotating") as tell:
        if key_id is not None:
            change_key(database, content, check_name("namespace", namespace), key_id)
            for keys in rewrap_keys(database, content, namespace):
                rewrapped += keys
                tell(f"{quantity(rewrapped, 'data key')} wrapped again")
        if data:
            for keys in renew_data_keys(database, content, namespace):
                renewed += keys
                tell(f"{quantity(renewed, 'new data key')}")
        present = find_encryption(database, namespace).kek_id
    report = RotateReport(namespace=namespace, key_id=present, rewrapped=rewrapped, renewed=renewed)
    lines = []
    if key_id is not None:
        lines.append(f"{namespace}: {quantity(rewrapped, 'data key')} wrapped again, by {quote(present)}")
    if data:
        lines += [
            f"{namespace}: {quantity(renewed, 'new data key')}; workers seal everything again with them",
            f"  running processes may use former keys for {settings.key_cache_seconds:,.0f} seconds more"
            " (STRANDLINE_KEY_CACHE_SECONDS)",
            f"  `strandline encryption reseal {namespace} --wait` seals now, and waits until all is sealed",
        ]
    return Output(report, lines)


@cli_command(
    "retire",
    open_encryption,
    RetireReport,
    short_help="Say whether a key can be removed from the keyring.",
)
@click.argument("key_id")
def retire_command(opened: Opened, key_id: str) -> Output:
    """Say whether KEY_ID can be removed from the keyring; ends with 1 if data keys are wrapped by it.

    A transaction that is open may hold such keys; the command waits for it, and ends with 1 if it stays.
    Backups of the database may still need it: keep it as long as you keep them.
    """
    database, _ = opened
    used = _users_of(database, key_id)
    if not used and not older_have_ended(database, OPEN_SECONDS):
        raise DatabaseBusyError(
            f"A transaction is open that may hold data keys wrapped by {quote(key_id)}, so the key must stay."
            " End the transaction (see pg_stat_activity and pg_prepared_xacts), and repeat the command."
        )
    used = used or _users_of(database, key_id)
    report = RetireReport(key_id=key_id, can_be_removed=not used, data_keys=used)
    if not used:
        return Output(
            report, [f"{quote(key_id)} wraps nothing in this database; only backups may still need it"]
        )
    lines = [
        f"{quote(key_id)} must stay in the keyring:",
        *(f"  {name}: {quantity(number, 'data key')} wrapped by it" for name, number in used.items()),
        "  `strandline encryption rotate NAMESPACE --key ID` wraps them with another key",
    ]
    return Output(report, lines, code=1)


def _users_of(database: Database, key_id: str) -> dict[str, int]:
    rows = database.fetch(KeksInUse(namespace=None))
    return {row.namespace: row.data_keys for row in rows if row.kek_id == key_id}


def _first_key(content: SealedContent) -> str:
    for key_id in content.keyring.key_ids():
        return key_id
    raise ConfigurationError(
        "This process has no keyring. Set STRANDLINE_KEYRING_FILE to a file with a line for each key: its id,"
        " and 32 bytes in base64 (`openssl rand -base64 32`)."
    )


def _reseal_lines(report: ResealReport) -> Iterator[str]:
    yield (
        f"{report.namespace}: {quantity(report.rows, 'row')} sealed, of {quantity(report.owners, 'owner')};"
        f" {report.settled:,} settled, {report.waiting:,} to be looked at once more"
    )
    if report.failed:
        yield (
            f"{quantity(report.failed, 'owner')} cannot be sealed, since something of theirs does not open;"
            " the log names them (reseal_owner_failed)"
        )
    if report.retired:
        yield f"  {quantity(report.retired, 'former data key')} deleted"


def _status_lines(report: EncryptionReport) -> Iterator[str]:
    yield f"keyring of this process: {', '.join(map(quote, report.keyring)) or 'none'}"
    for one in report.namespaces:
        yield from _lines(one)
    if not report.namespaces:
        yield "no namespace is encrypted; `strandline encryption enable` encrypts one"


def _lines(one: EncryptedNamespaceReport) -> Iterator[str]:
    state = (
        "all sealed"
        if one.state == "on"
        else f"{quantity(one.unsettled, 'owner')} of {one.owners:,} with rows that may not be sealed yet"
    )
    old = f", {quantity(one.old_data_keys, 'former data key')}" if one.old_data_keys else ""
    yield (
        f"{one.namespace}: {state}; {quantity(one.owners, 'owner')} with keys{old}, vectors {one.vectors},"
        f" since {one.enabled_at:%Y-%m-%d %H:%M:%S %Z}"
    )
    for kek in one.keys:
        problem = _PROBLEMS[kek.state]
        wraps = f"{quantity(kek.data_keys, 'data key')}"
        new = " and those of new owners" if kek.key_id == one.key_id else ""
        yield f"  {quote(kek.key_id)}{problem}: wraps {wraps}{new}"
        if kek.state == "wrong":
            yield f"    {kek.problem}"


def _describe_wait(rows: int, progress: Progress) -> str:
    waits = f"{quantity(rows, 'row')}; {quantity(progress.waiting, 'owner')} to be looked at once more"
    if progress.wait_seconds <= 0:
        return waits
    return (
        f"{waits} in {progress.wait_seconds:,.0f} seconds: until then running processes may write with the"
        " keys that they know"
    )


def _told_now_and_then(what: str) -> Tell:
    told_at: dict[str, float] = {}

    def tell(text: str, kind: str = "goes on") -> None:
        now = time.monotonic()
        if kind not in told_at or now >= told_at[kind] + LINE_SECONDS:
            told_at[kind] = now
            say(f"{what}: {text}", err=True)

    return tell


@contextmanager
def _progress(what: str) -> Iterator[Tell]:
    if not is_rich(stderr=True):
        yield _told_now_and_then(what)
        return
    with console(stderr=True).status(what) as line:
        yield lambda text, kind="goes on": line.update(f"{what}: {text}")


@click.group(
    "encryption",
    commands=[status_command, enable_command, reseal_command, rotate_command, retire_command],
)
def command() -> None:
    """Encrypt what namespaces hold, rotate their keys, and show how far that is."""
