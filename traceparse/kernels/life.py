"""What happened to a file between a version and a reading of it, and how a reading's text stands to the version's. Makes no versions."""

from __future__ import annotations


class Life:
    """The time since a version of a file was made, or last confirmed by a reading.

    Attributes:
        suspects: Positions of the calls that may have changed the file unseen.
        doubted: Position of the first reading of a part that showed other text; what came later is no suspect.
        gone: The file was removed.
    """

    def __init__(self) -> None:
        self.suspects: list[int] = []
        self.doubted: int | None = None
        self.gone = False

    def goes_on(self, at: int, *, suspected: bool, doubted: bool, gone: bool) -> None:
        """One more call.

        Args:
            at: Its position among the run's calls.
            suspected: It may have changed the file unseen.
            doubted: It is a reading of a part that shows other text.
            gone: The file does not stand there after it.
        """
        if gone and not self.gone:
            self.gone, self.suspects, self.doubted = True, [], None
        elif suspected and self.doubted is None:
            self.suspects.append(at)
        if doubted and self.doubted is None:
            self.doubted = at

    @property
    def certain(self) -> bool:
        """Which call changed the file is known, if one did."""
        return len(self.suspects) == 1

    def changed_at(self, reading: int) -> int:
        """Position of the call that changed the file: the only suspect, else the first one to show it.

        Args:
            reading: Position of the full reading that shows other text.
        """
        if self.certain:
            return self.suspects[0]
        return self.doubted if self.doubted is not None else reading


def same(one: str, other: str) -> bool:
    """Equal but for blanks at the ends of lines and blank lines around the text, which readings lose."""
    return _lines(one) == _lines(other)


def begins(text: str, known: str) -> bool:
    """The text begins with a known part, of which the last line may be cut."""
    part, lines = _lines(known), _lines(text)
    return lines[: len(part) - 1] == part[:-1] and len(lines) >= len(part) and lines[len(part) - 1].startswith(part[-1])


def within(part: str, text: str) -> bool:
    """All lines of a part stand in the text, in their order."""
    rest = iter(_lines(text))
    return all(line in rest for line in _lines(part))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().split("\n")]
