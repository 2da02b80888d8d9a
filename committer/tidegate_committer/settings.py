"""The committer's settings."""

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from tidegate_committer.policy import Level, Policy, UnsafeWriters
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.service.settings import Section, ServiceSettings
from tidegate_runtime.storage.root_paths import root_prefix


class CommitterSection(Section):
    """Where tables may be, limits of proposals and entries, and timing.

    `roots` are the URI prefixes below which tables may be created and registered, and below which
    the files of shallow clones may lie; the default allows none.
    Units: `_s` in seconds, `_ms` in ms, `_bytes` in bytes.
    """

    roots: tuple[str, ...] = ()
    group_members_max: PositiveInt = Policy.group_members_max
    group_actions_max: PositiveInt = Policy.group_actions_max
    group_bytes_max: PositiveInt = Policy.group_bytes_max
    record_bytes_max: PositiveInt = Policy.record_bytes_max
    claim_bytes_max: PositiveInt = Policy.claim_bytes_max
    actions_max: PositiveInt = Policy.actions_max
    weakest_isolation: Level = Policy.weakest_isolation
    files_age_max_ms: PositiveInt = Policy.files_age_max_ms
    linger_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How long a busy table's next group is kept open for more proposals, as a share of a PUT."""
    refusal_linger_ms: Annotated[int, Field(ge=0, le=10_000)] = 200
    """How long a refusal waits for other proposals before it is written as a version of its own."""
    refusals_per_s: PositiveFloat = 5.0
    refusals_burst: PositiveInt = 100
    """Above this rate and burst, refusals of a table are `denied` and not written into its log."""
    put_deadline_s: PositiveFloat = 60.0
    view_age_max_s: PositiveFloat = 600.0
    external_probe_s: PositiveFloat = 5.0
    """How often the log of an idle table is checked for versions by other writers."""
    unsafe_writers: UnsafeWriters = "warn"
    """Whether to warn about a table that delta-spark writes directly and without put-if-absent, or
    to halt it. The table property `tidegate.unsafeWriters` overrides this.
    """
    audit_s: PositiveFloat = 30.0
    """How often some recent versions of a table are read again, to find overwritten ones."""
    audit_versions: PositiveInt = 8
    """How many versions an audit reads again: the newest first, then older ones in turn."""
    store_contests: Annotated[int, Field(ge=0, le=10_000)] = 200
    """Put-if-absent contests that an unknown kind of store must pass before its first table; 0
    skips them."""
    id_window: PositiveInt = Policy.window
    """Versions whose entries are kept in memory; older ones are read from the log when needed."""
    inline_vector_bytes_max: NonNegativeInt = 0
    """Size up to which a merged deletion vector is written inline into the log, which saves a PUT.
    By default none is, because delta-spark's VACUUM fails on tables with inline vectors.
    """
    verbatim: bool = Policy.verbatim
    """Whether writers may propose a version as verbatim entry bytes (kind `verbatim`)."""
    external_grace_ms: Annotated[int, Field(ge=0, le=60_000)] = 1_000
    """How long native groups pause for a writer whose verbatim entry lost its version; 0: never.

    A value shorter than such a writer needs to try again has no effect.
    """

    @field_validator("roots")
    @classmethod
    def _spelled_as_roots_are(cls, roots: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(map(root_prefix, roots))
        except Misconfigured as error:
            raise ValueError(str(error)) from error

    @property
    def policy(self) -> Policy:
        """The limits that the pure code takes."""
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
            roots=self.roots,
        )


class CommitterSettings(ServiceSettings):
    """The settings of the committer."""

    committer: CommitterSection = CommitterSection()
