"""Archives in folders and object stores: file, S3 and compatible stores, Google Cloud Storage.

Objects are only ever created, never rewritten: an existing one must be the same.  obstore
takes credentials and endpoints from the environment (``AWS_…``, ``GOOGLE_…``).
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from strandline.pipelines.upkeep.archive import LeavingRange, ReadMessages, digest_of, encode, manifest
from strandline.schemas.errors import ArchiveError
from strandline.schemas.private_files import create_private, make_private_folder

# Holds the mark of the database that adopted the objects of others.
ADOPTED = "adopted-by"

# A failing store must not hold a worker for long: the step is retried.  (The library gives up a silent one
# after 30 seconds.)
MAX_RETRIES = 2

_ERRORS = (BaseError, OSError)


class ObjectArchive:
    """A folder or bucket with a prefix: ``file:///…``, ``s3://…`` or ``gs://…``."""

    def __init__(self, url: str) -> None:
        self._url = url
        parts = urlsplit(url)
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._opened: ObjectStore | None = None if self._folder is not None else self._open()

    def _open(self) -> ObjectStore:
        try:
            if self._folder is not None:
                return LocalStore(self._folder)
            return from_url(self._url, retry_config={"max_retries": MAX_RETRIES})
        except _ERRORS as error:
            raise ArchiveError(f"The archive {self._url} cannot be opened: {_reason(error)}") from error

    @property
    def _store(self) -> ObjectStore:
        """The store; of a folder only while that is there: else an empty one would be taken for it."""
        if self._folder is not None and not self._folder.is_dir():
            raise ArchiveError(
                f"The folder of the archive {self._url} is missing. If it is on a disk that is not mounted,"
                " mount that; to begin with an empty folder, make it."
            )
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    has_objects = True

    def store(self, leaving: LeavingRange, messages: ReadMessages) -> str | None:
        name, content = leaving.object_name, encode(leaving)
        if self._folder is not None and leaving.is_first:
            try:
                make_private_folder(self._folder)
            except OSError as error:
                raise ArchiveError(f"The archive {self._url} cannot be opened: {_reason(error)}") from error
        self._create(name, content)
        self._create(_manifest_name(name), manifest(name, content, leaving))
        return digest_of(content)

    def check(self, name: str, digest: str) -> None:
        self.read(name, digest)
        self._get(_manifest_name(name))

    def read(self, name: str, digest: str) -> bytes:
        content = self._get(name)
        if digest_of(content) != digest:
            raise ArchiveError(
                f"Object {name} in {self._url} was changed: its digest differs."
                " Restore it from the store's versions or a backup."
            )
        return content

    def delete(self, name: str) -> None:
        for one in (name, _manifest_name(name)):
            try:
                obstore.delete(self._store, one)
            except FileNotFoundError:
                continue
            except _ERRORS as error:
                raise self._failure("cannot delete", one, error) from error

    def adopt(self, database_mark: str) -> None:
        try:
            obstore.put(self._store, ADOPTED, database_mark.encode())
        except _ERRORS as error:
            raise self._failure("cannot store", ADOPTED, error) from error

    def is_adopted_by(self, database_mark: str) -> bool:
        try:
            return bytes(obstore.get(self._store, ADOPTED).bytes()) == database_mark.encode()
        except FileNotFoundError:
            return False
        except _ERRORS as error:
            raise self._failure("cannot read", ADOPTED, error) from error

    def _create(self, name: str, content: bytes) -> None:
        store = self._store
        try:
            if self._folder is not None:
                create_private(self._folder / name, content)
            else:
                obstore.put(store, name, content, mode="create")
        except (AlreadyExistsError, FileExistsError):
            if self._get(name) != content:
                raise ArchiveError(
                    f"Object {name} exists in {self._url} with other content; it is left as it is."
                    " Give the archive of each database another prefix."
                ) from None
        except _ERRORS as error:
            raise self._failure("cannot store", name, error) from error
        if self._folder is not None:
            self._sync(self._folder / name)

    def _sync(self, path: Path) -> None:
        """Wait for the disk, with the file's folders: the log loses the messages next."""
        folder = self._folder
        for one in (path, *path.parents):
            handle = os.open(one, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if one == folder:
                return

    def _get(self, name: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            raise ArchiveError(f"Object {name} is missing in {self._url}.") from None
        except _ERRORS as error:
            raise self._failure("cannot read", name, error) from error

    def _failure(self, what: str, name: str, error: Exception) -> ArchiveError:
        return ArchiveError(f"The archive {self._url} {what} {name}: {_reason(error)}")


def _manifest_name(name: str) -> str:
    return f"{name}.manifest.json"


def _reason(error: Exception) -> str:
    """The first line, without the request that it quotes."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:300]
