"""What operators may do by HTTP, done as the commands of the same names do it."""

from __future__ import annotations

import threading

from strandline.administration.generations import (
    delete_generation,
    generations_report,
    promote,
    serve_earlier,
)
from strandline.administration.limits import read_limits, write_limits
from strandline.administration.replays import check_pipelines, default_pipelines, report_of
from strandline.administration.status import read_status
from strandline.erasure import Signer, Verifier, signer_of, verifier_of
from strandline.pipelines.generations.registry import serving_generations
from strandline.pipelines.inspect.directory import check_known
from strandline.pipelines.replay.comparison import compare_generations
from strandline.pipelines.replay.estimate import estimate
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.pipelines.replay.records import (
    Replay,
    Selection,
    ask_to_stop,
    claim_replay,
    newest_replays,
    replays,
)
from strandline.producers.erasing.beside import Beside
from strandline.schemas.errors import ConfigurationError, UnknownReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.operations import LimitsIn, Promotion, ReplayIn
from strandline.schemas.wire.replay import DiffTotals, EstimatesReport, GenerationsReport, SwitchReport
from strandline.schemas.wire.work import NamespaceLimitsReport, ReplayReport, StatusReport
from strandline.wiring.archives import open_archive


class CommandOperators:
    """Implements ``producers.service.operators.Operators``.

    Raises:
        ConfigurationError: the key that signs receipts cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # At once: a service whose key cannot be read should not begin.
        key_file = settings.receipt_key_file
        self._signer = signer_of(settings)
        self._verifier = None if key_file is None else verifier_of(key_file)

    def status(self, database: Database) -> StatusReport:
        return read_status(database, self._settings)

    def limits(self, database: Database, namespace: str | None) -> list[NamespaceLimitsReport]:
        return read_limits(database, self._settings, namespace)

    def set_limits(self, database: Database, namespace: str, limits: LimitsIn) -> None:
        write_limits(database, namespace, limits, whole=True)

    def generations(self, database: Database, pipeline: str | None) -> GenerationsReport:
        return generations_report(database, self._settings, pipeline)

    def compare(self, database: Database, generation: int, against: int | None) -> DiffTotals:
        diff = compare_generations(database, generation, against, max_owners=0)
        return DiffTotals(pipeline=diff.pipeline, old=diff.old, new=diff.new, totals=diff.totals)

    def promote(self, database: Database, generation: int, whom: Promotion) -> SwitchReport:
        return promote(
            database,
            generation,
            namespace=whom.namespace or DEFAULT_NAMESPACE,
            user=whom.user_id,
            session=whom.session_id,
        )

    def roll_back(self, database: Database, pipeline: str) -> SwitchReport:
        self._check_pipeline(database, pipeline)
        return serve_earlier(database, pipeline)

    def prune(self, database: Database, generation: int) -> SwitchReport:
        return delete_generation(database, generation)

    def estimate(self, database: Database, replay: ReplayIn) -> EstimatesReport:
        selection = _selection(database, replay)
        names = self._pipelines(database, replay)
        return EstimatesReport.of(
            pipelines=[estimate(database, name, selection, self._settings, new=replay.new) for name in names]
        )

    def begin_replay(self, database: Database, replay: ReplayIn) -> ReplayReport:
        if replay.resume is not None:
            return report_of(claim_replay(database, replay.resume))
        selection = _selection(database, replay)
        if replay.pipeline is None:
            raise ConfigurationError(
                "pipeline is missing: a replay is of one pipeline.",
                for_clients="`pipeline` is missing: a replay is of one, unless it names another in `resume`.",
            )
        self._check_pipeline(database, replay.pipeline)
        if not replay.new:
            return report_of(begin_in_place(database, replay.pipeline, selection))
        begun = begin_generation(
            database,
            replay.pipeline,
            self._settings,
            hold=replay.hold,
            force=replay.force,
            calls_per_second=replay.rate,
        )
        return report_of(begun)

    def carry_on(self, database: Database, replay_id: int, stop: threading.Event) -> None:
        replay = _find(database, replay_id)
        if replay.kind == "new":
            derive_generation(database, replay, stop=stop)
        else:
            replay_in_place(database, replay, self._settings, stop=stop)

    def signer(self) -> Signer | None:
        return self._signer

    def verifier(self) -> Verifier | None:
        return self._verifier

    def beside(self) -> Beside:
        return Beside(open_archive=open_archive)

    def replay(self, database: Database, replay_id: int) -> ReplayReport:
        return report_of(_find(database, replay_id))

    def replays(self, database: Database, before: int | None, limit: int) -> list[ReplayReport]:
        return [report_of(replay) for replay in newest_replays(database, before, limit)]

    def stop_replay(self, database: Database, replay_id: int) -> ReplayReport:
        return report_of(ask_to_stop(database, replay_id))

    def _pipelines(self, database: Database, replay: ReplayIn) -> list[str]:
        if replay.pipeline is None:
            return default_pipelines(database, self._settings, new=replay.new and not replay.force)
        self._check_pipeline(database, replay.pipeline)
        return [replay.pipeline]

    def _check_pipeline(self, database: Database, name: str) -> None:
        """Refuse a pipeline that neither serves nor is known here, with the names of those that serve."""
        try:
            check_pipelines(database, self._settings, (name,))
        except ConfigurationError as error:
            known = ", ".join(sorted(serving_generations(database)))
            raise ConfigurationError(
                *error.args, for_clients=f"This installation has no such pipeline; it has {known}."
            ) from None


def _selection(database: Database, replay: ReplayIn) -> Selection:
    namespace = replay.namespace
    if namespace is None and (replay.session_id is not None or replay.user_id is not None):
        namespace = DEFAULT_NAMESPACE
    selection = Selection(
        namespace, replay.session_id, replay.user_id, replay.since, replay.until, replay.dead_letters
    )
    if replay.new and not selection.is_everything:
        sentence = "A new generation is derived for all owners, so it takes no selection."
        raise ConfigurationError(sentence, for_clients=f"{sentence} Leave it, or `new`, out.")
    check_known(database, namespace=namespace, session_id=replay.session_id, user_id=replay.user_id)
    return selection


def _find(database: Database, replay_id: int) -> Replay:
    for replay in replays(database, replay_id=replay_id):
        return replay
    raise UnknownReplayError(f"There is no replay {replay_id}.")
