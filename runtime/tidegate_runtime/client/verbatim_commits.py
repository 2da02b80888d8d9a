"""Propose an entry verbatim as exactly one version, for writers that make whole commits.

Such a writer has checked for conflicts up to the version before. After a rejection `version_taken`
it reads the winners and, if none conflicts, makes new bytes for the version after `head_version`,
with the same commitInfo.txnId. The table waits for it only for a moment, so it should be quick.
"""

from uuid import uuid5

from tidegate_delta.log.commit import sha256
from tidegate_messages.outcome import Outcome
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.storage.log_store import LogStore


def propose_bytes(
    client: Client,
    store: LogStore,
    target: proposal_builders.Target,
    version: int,
    content: bytes,
    timeout_s: float = TIMEOUT_S,
) -> Outcome:
    """Stage the bytes of a version, propose them, and return the outcome, whatever it is.

    The target's `read_version` is where the work began, also in later attempts. The same bytes for
    the same version are always the same proposal.
    Raises: BrokenLog, for bytes that are no commit; OutcomeUnknown; Unavailable.
    """
    proposal_id = uuid5(target.table, f"{version}/{sha256(content)}")
    stamp = proposal_builders.Stamp(proposal_id, client.clock.now_ms())
    proposal = proposal_builders.verbatim(target, stamp, version, content)
    store.put(proposal.claim.path, content)
    return client.propose(proposal, timeout_s)
