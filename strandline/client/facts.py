"""A user's facts behind the HTTP service, with the methods of ``memory.facts``."""

from __future__ import annotations

from strandline.client import fact_operations as operations
from strandline.client.operations import awaiting, blocking
from strandline.client.service import RemoteService
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import check_name


class FactsOfUser:
    """What the two faces of a user's facts have in common."""

    def __init__(self, service: RemoteService, user_id: str | None) -> None:
        if user_id is None:
            raise ConfigurationError(
                "Facts over HTTP are those of a user; give user_id= to from_defaults or for_owner."
            )
        self._service = service
        self._user_id = check_name("user_id", user_id)

    @property
    def service(self) -> RemoteService:
        return self._service

    @property
    def user_id(self) -> str:
        return self._user_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(user_id={self._user_id!r}, {self._service!r})"


class AsyncFactMethods(FactsOfUser):
    """The methods that asyncio awaits, by the names that ``OwnerFacts`` has for them."""

    aget = awaiting(operations.get)
    alist = awaiting(operations.list)
    asearch = awaiting(operations.search)
    aadd = awaiting(operations.add)
    areplace = awaiting(operations.replace)
    adelete = awaiting(operations.delete)
    aclear = awaiting(operations.clear)
    afeedback = awaiting(operations.feedback)
    aimport_facts = awaiting(operations.import_facts)
    acreate_from = awaiting(operations.create_from)
    ainstruct = awaiting(operations.instruct)
    aforget_source = awaiting(operations.forget_source)
    achoose = awaiting(operations.choose)
    atopics = awaiting(operations.topics)
    afigures = awaiting(operations.figures)
    aoptimize = awaiting(operations.optimize)
    aget_capture = awaiting(operations.get_capture)
    aset_capture = awaiting(operations.set_capture)

    async def aclose(self) -> None:
        """Close the service's connections of the running event loop; the next call makes new ones."""
        await self._service.aclose()


class RemoteFacts(AsyncFactMethods):
    """The facts of one user; see ``memory.facts`` for the methods, and docs/client.md for what differs."""

    @classmethod
    def for_owner(cls, *, user_id: str, service: RemoteService) -> RemoteFacts:
        """The facts of a user; does no I/O."""
        return cls(service, user_id)

    get = blocking(operations.get)
    search = blocking(operations.search)
    add = blocking(operations.add)
    replace = blocking(operations.replace)
    delete = blocking(operations.delete)
    clear = blocking(operations.clear)
    feedback = blocking(operations.feedback)
    import_facts = blocking(operations.import_facts)
    create_from = blocking(operations.create_from)
    instruct = blocking(operations.instruct)
    forget_source = blocking(operations.forget_source)
    choose = blocking(operations.choose)
    topics = blocking(operations.topics)
    figures = blocking(operations.figures)
    optimize = blocking(operations.optimize)
    get_capture = blocking(operations.get_capture)
    set_capture = blocking(operations.set_capture)
    list = blocking(operations.list)

    def close(self) -> None:
        """Close the service's connections of threads; the next call makes new ones."""
        self._service.close()


class AsyncRemoteFacts(AsyncFactMethods):
    """The same for asyncio alone: ``await facts.add(…)``; the names with ``a`` are there too."""

    @classmethod
    def for_owner(cls, *, user_id: str, service: RemoteService) -> AsyncRemoteFacts:
        """The facts of a user; does no I/O."""
        return cls(service, user_id)

    get = AsyncFactMethods.aget
    search = AsyncFactMethods.asearch
    add = AsyncFactMethods.aadd
    replace = AsyncFactMethods.areplace
    delete = AsyncFactMethods.adelete
    clear = AsyncFactMethods.aclear
    feedback = AsyncFactMethods.afeedback
    import_facts = AsyncFactMethods.aimport_facts
    create_from = AsyncFactMethods.acreate_from
    instruct = AsyncFactMethods.ainstruct
    forget_source = AsyncFactMethods.aforget_source
    choose = AsyncFactMethods.achoose
    topics = AsyncFactMethods.atopics
    figures = AsyncFactMethods.afigures
    optimize = AsyncFactMethods.aoptimize
    get_capture = AsyncFactMethods.aget_capture
    set_capture = AsyncFactMethods.aset_capture
    list = AsyncFactMethods.alist
    close = AsyncFactMethods.aclose
