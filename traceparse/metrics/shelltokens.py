"""Splits the text of a shell command into tokens and here-documents. Decides nothing: what the tokens start is `metrics.shell`'s."""

from __future__ import annotations

import re

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n")


def base(path: str) -> str:
    """The last part of a path."""
    return path.rsplit("/", 1)[-1]


def without_heredocs(text: str) -> tuple[str, list[str], bool, set[str], set[str]]:
    """The command without its here-documents, their texts in order, whether one is unterminated, and files they go to.

    The last part: of these files, those that hold the text itself, and no program's output.
    """
    bodies: list[str] = []
    written: set[str] = set()
    authored: set[str] = set()
    kept: list[str] = []
    at = 0
    while (found := _HEREDOC.search(text, at)) is not None:
        line_start = text.rfind("\n", 0, found.start()) + 1
        opening = text[line_start : found.end()]
        if target := re.search(r">>?\s*([\w./~$\{\}-]+)|\btee\s+(?:-a\s+)?([\w./~-]+)", opening):
            written.add(name := base(target[1] or target[2]))
            if re.search(r"(?:^|[;&|(]\s*|\s)(?:cat|tee)\b[^;&|]*\Z", text[line_start : found.start()] + " "):
                authored.add(name)
        kept.append(text[at : found.start()] + f" <<{len(bodies)} {found[3]}\n")
        end = re.compile(rf"^[ \t]*{re.escape(found[2])}[ \t]*(?=$|[)\"'])", re.MULTILINE).search(text, found.end())
        if end is None:
            bodies.append(text[found.end() :])
            return "".join(kept), bodies, True, written, authored
        bodies.append(text[found.end() : end.start()])
        at = end.end()
    kept.append(text[at:])
    rest = "".join(kept)
    return (
        rest,
        bodies,
        bool(re.search(r"<<-?\s*['\"]?\w+['\"]?[^\n]*$", rest) and not re.search(r"<<\d+ [^\n]*$", rest)),
        written,
        authored,
    )


_OPERATOR = re.compile(r"&&|\|\||;;|&>>|&>|>>|>&|<<\d+|\|&|\$\(|[;|&<>()\n`{}]")

_PLAIN = re.compile(r"[\w./:=,+%@~^*?!\[\]-]+")


def tokens(text: str) -> tuple[list[tuple[str, bool]], bool]:
    """Split into (token, is operator); the flag says that a quotation never closes. Quoted text joins its word."""
    found: list[tuple[str, bool]] = []
    word: list[str] = []
    at, size = 0, len(text)

    def flush() -> None:
        if word:
            found.append(("".join(word), False))
            word.clear()

    while at < size:
        char = text[at]
        if char in "'\"":
            end = at + 1
            while end < size and text[end] != char:
                end += 2 if char == '"' and text[end] == "\\" else 1
            if end >= size:
                word.append(text[at + 1 :])
                flush()
                return found, True
            inner = text[at + 1 : end]
            word.append(inner.replace('\\"', '"').replace("\\$", "$") if char == '"' else inner)
            if not inner:
                word.append("")
            at = end + 1
        elif char == "\\":
            if at + 1 < size and text[at + 1] != "\n":
                word.append(text[at + 1])
            at += 2
        elif char == "#" and not word:
            end = text.find("\n", at)
            at = size if end < 0 else end
        elif char in " \t\r":
            flush()
            at += 1
        elif (operator := _OPERATOR.match(text, at)) is not None:
            if operator[0] in (">", ">>", ">&", "<") and word and "".join(word).isdigit():
                found.append(("".join(word) + operator[0], True))
                word.clear()
            elif operator[0] in "{}" and (word or (at + 1 < size and text[at + 1] not in " \n\t;")):
                word.append(operator[0])
            elif operator[0] == "$(":
                flush()
                found.append(("(", True))
            else:
                flush()
                found.append((operator[0], True))
            at = operator.end()
        elif (plain := _PLAIN.match(text, at)) is not None:
            word.append(plain[0])
            at = plain.end()
        else:
            word.append(char)
            at += 1
    flush()
    return found, text.rstrip(" ").endswith("\\")
