"""Write a case's setting for TLC: a module and a configuration.

`tlc/Committer.tla` has only the most important rules; a setting that needs another one is skipped.
"""

from dataclasses import fields, replace
from typing import Final

from tests.model.cases import Case
from tests.model.committer import CommitterModel
from tests.model.committer_state import Setting

SPOKEN: Final = frozenset(
    {
        *("kinds", "committers", "group_max", "external", "deniable", "denies_first"),
        *("dedupe", "looks_for_id_first", "compares", "library_retries", "refusals"),
        *("publishing", "is_fenced", "rule_changes"),
        *("rebalances", "repeats", "drops", "timeouts"),
    }
)
"""The fields of a setting for which the TLA+ module has a constant."""

INVARIANTS: Final = "ExactlyOnce ConsistentRead OutcomeAgreement OffsetSafe"


def setting_of(case: Case) -> Setting | None:
    """Return the setting of a case if the TLA+ module can express all of it."""
    if not isinstance(case.model, CommitterModel):
        return None
    setting, usual = case.model.setting, Setting()
    silent = [field.name for field in fields(Setting) if field.name not in SPOKEN]
    if any(getattr(setting, name) != getattr(usual, name) for name in silent):
        return None
    if setting.dedupe == "memory" or setting.refusals == "claimed" or setting.publishing == "torn":
        return None
    return replace(setting)


def module(name: str, setting: Setting) -> str:
    """Return the module that defines the proposals."""
    kinds = ", ".join(f'"{kind}"' for kind in setting.kinds)
    return f"---- MODULE {name} ----\nEXTENDS Committer\nK == <<{kinds}>>\n====\n"


def configuration(setting: Setting) -> str:
    """Return the configuration that defines the constants."""
    # Proposals are numbered from 1 in TLA+.
    deniable = ", ".join(str(int(number) + 1) for number in setting.deniable)
    external = ", ".join(f'"{kind}"' for kind in sorted(set(setting.external)))
    constants: dict[str, str | int | bool] = {
        "NCommitters": setting.committers,
        "Group": setting.group_max,
        "Dedupe": setting.dedupe == "window",
        "DedupeFirst": setting.looks_for_id_first,
        "Compare": setting.compares,
        "SdkRetry": setting.library_retries,
        "Logged": setting.refusals == "logged",
        "Deniable": f"{{{deniable}}}",
        "Deny0": setting.denies_first,
        "DenyN": setting.rule_changes,
        "Txn": setting.publishing == "transaction",
        "Fenced": setting.is_fenced,
        "ExtKinds": f"{{{external}}}",
        "Rebalances": setting.rebalances,
        "Dups": setting.repeats,
        "Drops": setting.drops,
        "Timeouts": setting.timeouts,
    }
    lines = [f"    {name} = {_spelled(value)}" for name, value in constants.items()]
    result = "\n".join(["CONSTANTS", *lines, "    Kinds <- K"])
    return f"{result}\nSPECIFICATION Spec\nINVARIANTS {INVARIANTS}\n"


def _spelled(value: str | int | bool) -> str:
    return str(value).upper() if isinstance(value, bool) else str(value)
