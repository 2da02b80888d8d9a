"""What the committer is told."""

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from tidegate.committer.proposals.policy import Level, Policy, UnsafeWriters
from tidegate.delta.errors import Misconfigured
from tidegate.runtime.settings import Section, ServiceSettings
from tidegate.runtime.stores.paths import root_prefix


class CommitterSection(Section):
    """Where tables may lie, what may share an entry, how long things may take.

    `roots` are the URI prefixes under which tables may be created and registered; none refuses all.
    Units: `_s` in seconds, `_ms` in ms, `_bytes` in bytes.
    """

    roots: tuple[str, ...] = ()
    ratified_roots: tuple[str, ...] = ()
    """URI prefixes on stores without put-if-absent: there the topic `ratify` decides first."""
    group_members_max: PositiveInt = Policy.group_members_max
    group_actions_max: PositiveInt = Policy.group_actions_max
    group_bytes_max: PositiveInt = Policy.group_bytes_max
    record_bytes_max: PositiveInt = Policy.record_bytes_max
    claim_bytes_max: PositiveInt = Policy.claim_bytes_max
    actions_max: PositiveInt = Policy.actions_max
    weakest_isolation: Level = Policy.weakest_isolation
    files_age_max_ms: PositiveInt = Policy.files_age_max_ms
    linger_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How long a busy table's proposals wait for company, as a share of what a PUT takes."""
    refusal_linger_ms: Annotated[int, Field(ge=0, le=10_000)] = 200
    """How long a refusal waits for company before it takes a version of its own."""
    refusals_per_s: PositiveFloat = 5.0
    refusals_burst: PositiveInt = 100
    """Past these, refusals of a table are told as `denied` and not written into its log."""
    put_deadline_s: PositiveFloat = 60.0
    view_age_max_s: PositiveFloat = 600.0
    external_probe_s: PositiveFloat = 5.0
    """How often an idle table is asked for versions by other writers."""
    unsafe_writers: UnsafeWriters = "warn"
    """What becomes of a table on S3 to which delta-spark writes past the gate, unless it says so
    itself (`tidegate.unsafeWriters`)."""
    audit_s: PositiveFloat = 30.0
    """How often some recent versions of a table are read again, in case somebody overwrote one."""
    audit_versions: PositiveInt = 8
    """How many of them: the newest first, then older ones in turn."""
    store_contests: Annotated[int, Field(ge=0, le=10_000)] = 200
    """Contests that a store of unknown make must hold before its first table; 0 asks for none."""
    id_window: PositiveInt = Policy.window
    """Versions of which everything is remembered; older ones are read from the log when needed."""
    inline_vector_bytes_max: NonNegativeInt = 0
    """How large a deletion vector that the gate merges may be to stand in the log itself, which
    saves a PUT. delta-spark's VACUUM ends over tables with such ones: by default there are none."""
    verbatim: bool = Policy.verbatim
    """Whether writers may propose ready bytes as a version; false denies all of them."""
    external_grace_ms: Annotated[int, Field(ge=0, le=60_000)] = 1_000
    """How long native groups wait for a writer whose ready bytes came too late; 0 lets none wait.

    It must exceed what such a writer takes to try again, or it gives nothing."""

    @field_validator("roots", "ratified_roots")
    @classmethod
    def _spelled_as_roots_are(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(map(root_prefix, given))
        except Misconfigured as error:
            raise ValueError(str(error)) from error

    @property
    def policy(self) -> Policy:
        """The part that the judgement looks at."""
        return Policy(
            record_bytes_max=self.record_bytes_max,
            claim_bytes_max=self.claim_bytes_max,
            actions_max=self.actions_max,
            files_age_max_ms=self.files_age_max_ms,
            weakest_isolation=self.weakest_isolation,
            group_members_max=self.group_members_max,
            group_actions_max=self.group_actions_max,
            group_bytes_max=self.group_bytes_max,
            window=self.id_window,
            verbatim=self.verbatim,
        )


class CommitterSettings(ServiceSettings):
    """The settings of the committer."""

    committer: CommitterSection = CommitterSection()
