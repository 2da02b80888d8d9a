"""PUTs that land when a test says so."""

from dataclasses import dataclass

from tidegate.committer.puts import Flight, Landing, Work


@dataclass
class Late:
    """A PUT that lands once nobody holds it."""

    work: Work
    puts: "LatePuts"

    def done(self) -> bool:
        """Return whether it may land."""
        return not self.puts.is_holding

    def result(self) -> Landing:
        """Land."""
        return self.work()


@dataclass
class LatePuts:
    """PUTs that are held for a while."""

    is_holding: bool = False

    def start(self, work: Work, behind: Flight | None = None) -> Late:
        """Send one."""
        return Late(work, self)

    def wait(self, timeout_s: float) -> None:
        """Let time pass."""

    def close(self) -> None:
        """Do nothing."""
