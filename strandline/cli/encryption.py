"""``strandline encryption``: encrypts namespaces, and rotates their keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from strandline.administration.encryption import EncryptedNamespaceReport, Encryption, RotateReport
from strandline.cli.command import CommandGroup, Output
from strandline.cli.servers.options import settings_alone
from strandline.cli.servers.targets import check_to_be_changed, even_if_unknown_option, opened_database
from strandline.cli.terminal.progress import LINE_SECONDS, NowAndThen, shown_progress
from strandline.pipelines.sealing.enabling import find_encryption
from strandline.pipelines.sealing.resealing import Pace, Progress
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import check_name
from strandline.schemas.wire.report import Report


@click.group("encryption", cls=CommandGroup)
def command() -> None:
    """Encrypt what namespaces hold, rotate their keys, and show how far that is."""


class EncryptionReport(Report):
    """Every encrypted namespace, and the ids of the keys in this process's keyring."""

    keyring: list[str]
    namespaces: list[EncryptedNamespaceReport]


class ResealReport(Report):
    """One pass: see ``EncryptedNamespaceReport``; ``waiting`` owners can be settled later.

    Of ``failed`` owners a row or a key does not open; the log names them.
    """

    namespace: str
    owners: int
    rows: int
    settled: int
    waiting: int
    failed: int
    retired: int


class RetireReport(Report):
    """Whether a key can be removed from the keyring, and the data keys that it still wraps."""

    key_id: str
    can_be_removed: bool
    data_keys: dict[str, int]


_PROBLEMS = {
    "ok": "",
    "missing": ", which is NOT in this keyring",
    "wrong": ", which in this keyring is NOT the key that wrapped",
}


@contextmanager
def open_encryption(settings: Settings) -> Iterator[Encryption]:
    """The encryption of the configured database."""
    with opened_database(settings) as database:
        yield Encryption.of(database)


@command.add("status", open_encryption, EncryptionReport)
@click.argument("namespace", required=False)
def status_command(encryption: Encryption, namespace: str | None) -> Output:
    """Show NAMESPACE, or every encrypted namespace: how far it is sealed, and which keys wrap its keys.

    Each key is tried on something that it has wrapped; ends with 1 if the keyring lacks one, or has another
    key under its id.
    """
    namespaces = encryption.status(namespace)
    if namespace is not None and not namespaces:
        find_encryption(encryption.database, check_name("namespace", namespace))
    report = EncryptionReport(keyring=list(encryption.content.keyring.key_ids()), namespaces=namespaces)
    is_bad = any(kek.state != "ok" for one in namespaces for kek in one.keys)
    return Output(report, _status_lines(report), code=1 if is_bad else 0)


@command.add("enable", settings_alone, EncryptedNamespaceReport)
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
    with open_encryption(settings) as encryption, shown_progress("giving owners keys", "owner") as show:
        check_to_be_changed(encryption.database, namespace, even_if_unknown=even_if_unknown)
        is_new = encryption.enable(
            namespace,
            key_id or _first_key(encryption),
            vectors,
            lambda owners: show(owners, 0, f"{quantity(owners, 'owner')} with new keys"),
        )
        (report,) = encryption.status(namespace)
    first = f"{namespace}: {'is encrypted from now on' if is_new else 'was encrypted already'}"
    return Output(report, [first, *_lines(report)])


@command.add("reseal", settings_alone, ResealReport)
@click.argument("namespace")
@click.option("--rows-per-second", type=click.IntRange(1), metavar="N", help="At most; default: no bound.")
@click.option("--wait", is_flag=True, help="Go on until all of it is sealed.")
def reseal_command(settings: Settings, namespace: str, rows_per_second: int | None, wait: bool) -> Output:
    """Seal what NAMESPACE holds in clear, or under former data keys; it can be stopped and resumed.

    Workers do the same by themselves, slowly. An owner is a user, a session without a user, or a scope that
    several share. With --wait it takes at least as long as running processes may keep former keys: some
    seconds after `enable`, STRANDLINE_KEY_CACHE_SECONDS (300 by default) after `rotate --data`.
    """
    check_name("namespace", namespace)
    progress, waits = Progress(), NowAndThen(LINE_SECONDS)
    with open_encryption(settings) as encryption, shown_progress("sealing", "owner") as show:
        unsettled = sum(one.unsettled for one in encryption.status(namespace))
        for progress, must_wait in encryption.reseal(
            namespace, settings.key_cache_seconds, Pace(rows_per_second), wait=wait
        ):
            if must_wait:
                waits.say(f"sealing: {_describe_wait(progress)}")
            else:
                rows = f"{quantity(progress.rows, 'row')} of {quantity(progress.owners, 'owner')}"
                show(progress.owners, unsettled, rows)
    report = ResealReport.of(progress, namespace=namespace)
    return Output(report, _reseal_lines(report), code=1 if progress.failed else 0)


@command.add("rotate", settings_alone, RotateReport)
@click.argument("namespace")
@click.option("--key", "key_id", metavar="ID", help="Wrap all data keys with this key of the keyring.")
@click.option("--data", "data", is_flag=True, help="Give every owner a new data key, and seal all with it.")
def rotate_command(settings: Settings, namespace: str, key_id: str | None, data: bool) -> Output:
    """Rotate the keys of NAMESPACE, while it is used; it can be stopped, and resumes when repeated.

    With --key, no content is touched; the former key is needed until `encryption retire` says otherwise.
    With --data, workers seal everything again, and delete former data keys some hours later.
    """
    if key_id is None and not data:
        raise click.UsageError("Say what to rotate: --key ID, --data, or both.")
    check_name("namespace", namespace)
    with open_encryption(settings) as encryption, shown_progress("rotating", "key") as show:
        report = encryption.rotate(
            namespace,
            key_id,
            lambda what, number: show(number, 0, f"{quantity(number, what)} so far"),
            data=data,
        )
    lines = []
    if key_id is not None:
        wrapped = quantity(report.rewrapped, "data key")
        lines.append(f"{namespace}: {wrapped} wrapped again, by {quote(report.key_id)}")
    if data:
        renewed = quantity(report.renewed, "new data key")
        lines += [
            f"{namespace}: {renewed}; workers seal everything again with them",
            f"  running processes may use former keys for {settings.key_cache_seconds:,.0f} seconds more"
            " (STRANDLINE_KEY_CACHE_SECONDS)",
            f"  `strandline encryption reseal {namespace} --wait` seals now, and waits until all is sealed",
        ]
    return Output(report, lines)


@command.add("retire", open_encryption, RetireReport)
@click.argument("key_id")
def retire_command(encryption: Encryption, key_id: str) -> Output:
    """Say whether KEY_ID can be removed from the keyring; ends with 1 if data keys are wrapped by it.

    A transaction that is open may hold such keys; the command waits for it, and ends with 1 if it stays.
    Backups of the database may still need it: keep it as long as you keep them.
    """
    used = encryption.namespaces_wrapped_by(key_id)
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


def _first_key(encryption: Encryption) -> str:
    for key_id in encryption.content.keyring.key_ids():
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


def _describe_wait(progress: Progress) -> str:
    waits = (
        f"{quantity(progress.rows, 'row')}; {quantity(progress.waiting, 'owner')} to be looked at once more"
    )
    if progress.wait_seconds <= 0:
        return waits
    return (
        f"{waits} in {progress.wait_seconds:,.0f} seconds: until then running processes may write with the"
        " keys that they know"
    )
