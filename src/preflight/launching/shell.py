"""The words of a shell's simple command, with its quotes and its variables taken as a shell does.

Only what launch lines are made of is read: words, quotes, `$NAME`, `${NAME}`, `${NAME:-text}`,
`&&`, `;`, a pipe into tee, redirections. Anything more (loops, substitutions) is not understood,
and said to be so.
"""

from __future__ import annotations

import re
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

#: A value that is not known stands between two of these: "--nnodes=\0WORLD_SIZE\0".
HIDDEN = "\0"
#: A launch line is shorter; more than this is a program.
LIMIT = 64 << 10

#: Value of a variable: a text, "" where it is not set, None where that is not known.
Lookup = Callable[[str], Optional[str]]

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?-)([^{}$`]*))?\})")
_REDIRECT = re.compile(r"\d*(>>|>&|>|<|&>>|&>)(&?\d+|-)?")
_SPECIAL = "|&;()<>\n`"


class TooMuch(ValueError):
    """More of a shell than a simple command."""


class Command(NamedTuple):
    """One simple command."""

    words: List[str]


def commands(text: str, lookup: Lookup) -> Iterator[Command]:
    """The simple commands of a line or short script, read one by one; of a pipeline the first.

    Raises TooMuch for what is no sequence of simple commands.
    """
    if len(text) > LIMIT:
        raise TooMuch("too long")
    reader = _Reader(text.replace("\\\n", " "), lookup)
    piped = False
    while True:
        words, end = reader.command()
        if words and words[0] in _KEYWORDS:
            raise TooMuch(words[0])
        if words and not piped:
            yield Command(words)
        if not end:
            return
        piped = end == "|"


_KEYWORDS = {"if", "for", "while", "until", "case", "function", "{", "}", "[[", "!", "select"}


class _Reader:
    def __init__(self, text: str, lookup: Lookup) -> None:
        self._text = text
        self._at = 0
        self._lookup = lookup

    def command(self) -> Tuple[List[str], str]:
        """The words up to the next operator, and that operator ("" at the end)."""
        words: List[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r":
                self._at += 1
            elif char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._redirection():
                continue
            elif char in _SPECIAL:
                return words, self._operator()
            else:
                words += self._word()
        return words, ""

    def _redirection(self) -> bool:
        found = _REDIRECT.match(self._text, self._at)
        if not found:
            return False
        self._at = found.end()
        if not found.group(2):
            while self._text[self._at : self._at + 1] in (" ", "\t"):
                self._at += 1
            if self._text[self._at : self._at + 1] in ("", "<", "("):
                raise TooMuch("redirection")
            self._word()
        return True

    def _operator(self) -> str:
        for one in ("&&", "||", ";;", ";", "|", "\n"):
            if self._text.startswith(one, self._at):
                if one in ("||", ";;"):
                    break
                self._at += len(one)
                return one
        raise TooMuch(self._text[self._at])

    def _word(self) -> List[str]:
        """One word; none where an unquoted variable is empty."""
        parts: List[str] = []
        quoted = False
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r" or char in _SPECIAL:
                if char == "`":
                    raise TooMuch("`")
                break
            if char == "'":
                end = self._text.find("'", self._at + 1)
                if end < 0:
                    raise TooMuch("quotation without end")
                parts.append(self._text[self._at + 1 : end])
                self._at, quoted = end + 1, True
            elif char == '"':
                parts.append(self._quoted())
                quoted = True
            elif char == "\\":
                parts.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif char == "$":
                parts.append(self._expanded())
            else:
                parts.append(char)
                self._at += 1
        word = "".join(parts)
        return [word] if word or quoted else []

    def _quoted(self) -> str:
        parts: List[str] = []
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return "".join(parts)
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in '"\\$`':
                parts.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif char == "$":
                parts.append(self._expanded())
            elif char == "`":
                raise TooMuch("`")
            else:
                parts.append(char)
                self._at += 1
        raise TooMuch("quotation without end")

    def _expanded(self) -> str:
        found = _VARIABLE.match(self._text, self._at)
        if found:
            self._at = found.end()
            name = found.group(1) or found.group(2)
            value = self._lookup(name)
            if value is None:
                return HIDDEN + name + HIDDEN
            if found.group(3) and not value:  # `-` differs from `:-` for an empty one, seldom meant
                return found.group(4)
            return value
        if self._text.startswith("$((", self._at):
            return self._until("))", "arithmetic")
        if re.match(r"\$[@*#?$!\d]", self._text[self._at : self._at + 2]):
            self._at += 2
            return HIDDEN + "argument" + HIDDEN
        if re.match(r"\$[({]", self._text[self._at : self._at + 2]):
            raise TooMuch("substitution")
        self._at += 1
        return "$"

    def _until(self, end: str, what: str) -> str:
        at = self._text.find(end, self._at)
        if at < 0:
            raise TooMuch(what)
        self._at = at + len(end)
        return HIDDEN + what + HIDDEN


def hidden(word: str) -> List[str]:
    """The names of the variables in a word whose values are not known."""
    return word.split(HIDDEN)[1::2]


def quoted(word: str) -> str:
    """A word as a shell must be given it; a variable without a known value stays one."""
    if HIDDEN in word:
        return "".join(
            "${" + part + "}" if number % 2 else _plain(part)
            for number, part in enumerate(word.split(HIDDEN))
        )
    return _plain(word) if word else "''"


def _plain(text: str) -> str:
    if re.fullmatch(r"[\w@%+=:,./-]*", text, re.ASCII):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"
