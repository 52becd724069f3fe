"""Replays: deriving memory again from the log, in place or as a new generation."""

from __future__ import annotations

import threading
from collections.abc import Callable

from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.registry import serving_generations, settings_differing
from strandline.pipelines.inspect.directory import check_known
from strandline.pipelines.replay.estimate import estimate
from strandline.pipelines.replay.filling import ProvideInput
from strandline.pipelines.replay.in_place import InPlace, begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Replay, Selection, claim_replay, replays
from strandline.schemas.errors import ConfigurationError, ReplayError, UnknownReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.values.lanes import OVERFLOW
from strandline.schemas.wire.operations import ReplayIn
from strandline.schemas.wire.replay import EstimatesReport
from strandline.schemas.wire.work import ReplayReport


def check_pipelines(database: Database, settings: Settings, pipelines: tuple[str, ...]) -> None:
    """Refuse a pipeline that neither serves nor is known here; clients are told the names that serve."""
    serving = serving_generations(database)
    for name in set(pipelines).difference(serving):
        try:
            recipe_for(name, settings)
        except ConfigurationError as error:
            known = ", ".join(sorted(serving))
            raise ConfigurationError(
                *error.args, for_clients=f"This installation has no such pipeline; it has {known}."
            ) from None


def default_pipelines(database: Database, settings: Settings, *, new: bool) -> list[str]:
    """All that serve; of a new generation only those for which the settings say something new.

    Raises:
        ReplayError: they say nothing new.
    """
    generations = serving_generations(database)
    if not new:
        # The overflow handler is called by a replay that names it, and by no other.
        return sorted(generations.keys() - {OVERFLOW})
    if not (differing := settings_differing(generations, settings)):
        raise ReplayError(
            "The settings match every generation that serves, so there is nothing new to derive. Leave out"
            " --new to check them in place, or add --force to derive them again."
        )
    return sorted(differing)


def report_of(replay: Replay) -> ReplayReport:
    """A replay as ``--json`` shows it."""
    return ReplayReport.of(replay, generation=replay.generation_id, counts=dict(replay.counts))


def find_replay(database: Database, replay_id: int) -> Replay:
    """A replay by its number; raises UnknownReplayError."""
    for replay in replays(database, replay_id=replay_id):
        return replay
    raise UnknownReplayError(f"Replay {replay_id} is unknown.")


def estimate_replays(database: Database, settings: Settings, asked: ReplayIn) -> EstimatesReport:
    """How much work the replays would be: of the pipeline that is named, or of all."""
    selection = selection_of(database, asked)
    if asked.pipeline is None:
        names = default_pipelines(database, settings, new=asked.new and not asked.force)
    else:
        check_pipelines(database, settings, (asked.pipeline,))
        names = [asked.pipeline]
    estimates = [estimate(database, name, selection, settings, new=asked.new) for name in names]
    return EstimatesReport.of(pipelines=estimates)


def begin_replay(
    database: Database, settings: Settings, asked: ReplayIn, *, from_archive: bool = False
) -> ReplayReport:
    """Record a replay, or claim a stopped one.

    ``from_archive``: a new generation also derives what retention has removed from the log.
    """
    if asked.resume is not None:
        return report_of(claim_replay(database, asked.resume))
    selection = selection_of(database, asked)
    if asked.pipeline is None:
        raise ConfigurationError(
            "pipeline is missing: a replay is of one pipeline.",
            for_clients="`pipeline` is missing: a replay is of one, unless it names another in `resume`.",
        )
    check_pipelines(database, settings, (asked.pipeline,))
    if not asked.new:
        return report_of(begin_in_place(database, asked.pipeline, selection))
    begun = begin_generation(
        database,
        asked.pipeline,
        settings,
        hold=asked.hold,
        force=asked.force,
        calls_per_second=asked.rate,
        from_archive=from_archive,
    )
    return report_of(begun)


def run_replay(
    database: Database,
    settings: Settings,
    replay_id: int,
    stop: threading.Event,
    *,
    on_progress: Callable[[Progress | InPlace], None] = lambda _progress: None,
    provide_input: ProvideInput | None = None,
) -> None:
    """Run a replay to its end, or until ``stop`` is set; blocks.

    ``provide_input`` gives archived messages to a generation that was begun with ``from_archive``.
    """
    replay = find_replay(database, replay_id)
    if replay.kind == "in_place":
        replay_in_place(database, replay, settings, on_progress=on_progress, stop=stop)
        return
    derive_generation(database, replay, on_progress=on_progress, stop=stop, provide_input=provide_input)


def selection_of(database: Database, asked: ReplayIn) -> Selection:
    """The events to derive again.

    Raises:
        ConfigurationError: a new generation takes no selection.
        NotFoundError: there is no such namespace, session or user.
    """
    namespace = asked.namespace
    if namespace is None and (asked.session_id is not None or asked.user_id is not None):
        namespace = DEFAULT_NAMESPACE
    selection = Selection(
        namespace, asked.session_id, asked.user_id, asked.since, asked.until, asked.dead_letters
    )
    if asked.new and not selection.is_everything:
        sentence = "A new generation is derived for all owners, so it takes no selection."
        raise ConfigurationError(sentence, for_clients=f"{sentence} Leave it, or `new`, out.")
    check_known(database, namespace=namespace, session_id=asked.session_id, user_id=asked.user_id)
    return selection
