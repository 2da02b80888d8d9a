"""Parse a Dockerfile into stages, to check it and to replay it without a container engine."""

import re
from dataclasses import dataclass

CONTINUED = re.compile(r"\s*\\\n\s*")


@dataclass(frozen=True)
class Instruction:
    """One instruction, with continued lines joined."""

    verb: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """The instructions from one FROM to the next."""

    image: str
    name: str | None
    instructions: tuple[Instruction, ...]

    def of(self, verb: str) -> list[str]:
        """Return the arguments of each instruction with this verb."""
        return [step.rest for step in self.instructions if step.verb == verb]


def stages(text: str) -> list[Stage]:
    """Return the stages in order; instructions before the first FROM belong to none."""
    result: list[tuple[str, str | None, list[Instruction]]] = []
    for line in CONTINUED.sub(" ", text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        verb, _, rest = line.strip().partition(" ")
        if verb == "FROM":
            image, _, name = rest.partition(" AS ")
            result.append((image, name or None, []))
        elif result:
            result[-1][2].append(Instruction(verb, rest.strip()))
    return [Stage(image, name, tuple(steps)) for image, name, steps in result]
