"""A user's facts behind the HTTP service, with the methods of ``memory.facts``."""

from __future__ import annotations

from strandline.client import fact_operations as operations
from strandline.client.operations import async_method, sync_method
from strandline.client.service import RemoteService
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import NO_USER, check_user_id


class FactsOfUser:
    """Shared by the two faces of a user's facts."""

    def __init__(self, service: RemoteService, user_id: str | None) -> None:
        if user_id in (None, NO_USER):
            raise ConfigurationError(
                "Facts over HTTP are those of a user; give user_id= to from_defaults or for_owner."
            )
        self._service = service
        self._user_id = check_user_id(user_id)

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

    aget = async_method(operations.get)
    alist = async_method(operations.list)
    asearch = async_method(operations.search)
    aadd = async_method(operations.add)
    areplace = async_method(operations.replace)
    adelete = async_method(operations.delete)
    aclear = async_method(operations.clear)
    afeedback = async_method(operations.feedback)
    aimport_facts = async_method(operations.import_facts)
    acreate_from = async_method(operations.create_from)
    ainstruct = async_method(operations.instruct)
    aforget_source = async_method(operations.forget_source)
    achoose = async_method(operations.choose)
    aexplain = async_method(operations.explain)
    atopics = async_method(operations.topics)
    afigures = async_method(operations.figures)
    aoptimize = async_method(operations.optimize)
    aget_capture = async_method(operations.get_capture)
    aset_capture = async_method(operations.set_capture)

    async def aclose(self) -> None:
        """Close the service's connections of the running event loop; the next call makes new ones."""
        await self._service.aclose()


class RemoteFacts(AsyncFactMethods):
    """The facts of one user; see ``memory.facts`` for the methods, and docs/client.md for what differs."""

    @classmethod
    def for_owner(cls, *, user_id: str, service: RemoteService) -> RemoteFacts:
        """The facts of a user; does no I/O."""
        return cls(service, user_id)

    get = sync_method(operations.get)
    search = sync_method(operations.search)
    add = sync_method(operations.add)
    replace = sync_method(operations.replace)
    delete = sync_method(operations.delete)
    clear = sync_method(operations.clear)
    feedback = sync_method(operations.feedback)
    import_facts = sync_method(operations.import_facts)
    create_from = sync_method(operations.create_from)
    instruct = sync_method(operations.instruct)
    forget_source = sync_method(operations.forget_source)
    choose = sync_method(operations.choose)
    explain = sync_method(operations.explain)
    topics = sync_method(operations.topics)
    figures = sync_method(operations.figures)
    optimize = sync_method(operations.optimize)
    get_capture = sync_method(operations.get_capture)
    set_capture = sync_method(operations.set_capture)
    list = sync_method(operations.list)

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
    explain = AsyncFactMethods.aexplain
    topics = AsyncFactMethods.atopics
    figures = AsyncFactMethods.afigures
    optimize = AsyncFactMethods.aoptimize
    get_capture = AsyncFactMethods.aget_capture
    set_capture = AsyncFactMethods.aset_capture
    list = AsyncFactMethods.alist
    close = AsyncFactMethods.aclose
