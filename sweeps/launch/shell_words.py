"""A shell's text cut into statements and raw words, with the lines of their characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

Text = list[tuple[str, int]]  # Characters with their lines
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclass(slots=True)
class Statement:
    """A statement: its raw words, and the here-document that follows it."""

    words: list[Text] = field(default_factory=list)
    mark: str = ""  # At which its here-document ends
    quoted: bool = False  # Whether that is taken as it stands
    body: Text = field(default_factory=list)
    target: str = ""  # The file into which its output goes
    sign: str = ""  # That follows it, such as && or ;


def plain(word: Text) -> str:
    """Return a word's characters."""
    return "".join(sign for sign, _ in word)


def lined(text: str, line: int = 1) -> Text:
    """Return a text's characters with their lines."""
    signs: Text = []
    for sign in text:
        signs.append((sign, line))
        line += sign == "\n"
    return signs


class Cutter:
    """Cuts a text into statements, from its first to its last."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.position = 0
        self.statement = Statement()
        self.word: Text = []
        self.quote = ""  # The quotes around what is read
        self.deep = 0  # Brackets around it
        self.shells = 0  # Brackets around statements, which another shell runs
        self.redirected = ""  # The sign whose file the next word is

    def __iter__(self) -> Iterator[Statement]:
        """Yield the statements."""
        while self.position < len(self.text):
            if self._step():
                yield self._ended()
        self._end()
        if self.statement.words:
            yield self._ended()

    def _sign(self, ahead: int = 0) -> str:
        offset = self.position + ahead
        return self.text[offset][0] if offset < len(self.text) else ""

    def _keep(self, count: int = 1) -> None:
        self.word += self.text[self.position : self.position + count]
        self.position += count

    def _end(self) -> None:
        """End a word."""
        if self.word and self.redirected:
            if self.redirected == ">" and not self.statement.target:
                self.statement.target = plain(self.word)
            self.redirected = ""
        elif self.word:
            self.statement.words.append(self.word)
        self.word = []

    def _step(self) -> bool:
        """Read on; return whether a statement ends."""
        sign = self._sign()
        if sign == "\\" and self.quote != "'":
            self._escaped()
        elif self.quote:
            self._keep()
            self.quote = "" if sign == self.quote else self.quote
        elif sign in "'\"`":
            self.quote = sign
            self._keep()
        elif sign == "#" and self._begins():
            self._skip_line()
        elif sign in "()" and self._shell(sign):
            return sign == ")" and self._parted(sign)
        elif self.deep or self._opens(sign):
            self.deep += self._opens(sign) - (sign in ")}")
            self._keep()
        elif sign == "<" and self._sign(1) == "<" and self._sign(2) != "<":
            self._heredoc()
        elif sign in "<>":
            self._redirect(sign)
        elif sign in " \t\r":
            self._end()
            self.position += 1
        elif sign in ";\n|&":
            return self._parted(sign)
        else:
            self._keep()
        return False

    def _opens(self, sign: str) -> bool:
        """Whether a bracket begins within a word."""
        return sign == "(" or (sign == "{" and plain(self.word[-1:]) == "$")

    def _shell(self, sign: str) -> bool:
        """Return whether a bracket is around statements; an opening one is skipped."""
        if sign == ")":
            here = self.shells > 0 and not self.deep
            self.shells -= here
            return here
        here = not (self.deep or self.word or self.statement.words or self.redirected)
        self.shells += here
        self.position += here
        return here

    def _escaped(self) -> None:
        """Keep what is escaped; a line that goes on ends a word outside of quotes."""
        if self._sign(1) != "\n":
            self._keep(2)
            return
        if not self.quote and not self.deep:
            self._end()
        self.position += 2

    def _redirect(self, sign: str) -> None:
        """Read where output goes or input comes from: no word of the command."""
        if plain(self.word).isdigit():
            self.word = []
        self._end()
        while self._sign() in ("<", ">", "|"):
            self.position += 1
        number = re.match(r"&(\d+|-)", self._sign() + self._sign(1))
        if number:  # a copy of another one, such as 2>&1
            self.position += number.end()
            return
        self.position += self._sign() == "&"
        self.redirected = sign

    def _begins(self) -> bool:
        """Whether a word begins here, so that a hash is a comment."""
        return not self.word or (self.deep > 0 and self.word[-1][0] in " \t\n(")

    def _skip_line(self) -> None:
        while self.position < len(self.text) and self._sign() != "\n":
            self.position += 1

    def _heredoc(self) -> None:
        line = self.text[self.position][1]
        rest = "".join(sign for sign, number in self.text[self.position :][:200] if number == line)
        match = _HEREDOC.match(rest)
        if match is None:
            self._keep()
            return
        self.statement.mark, self.statement.quoted = match[2], bool(match[1])
        self.position += match.end()

    def _parted(self, sign: str) -> bool:
        """End a statement at one of the signs that part them."""
        self._end()
        if sign == ">" or (sign == "&" and self._sign(1) == ">"):
            self.position += 1
            return False
        self.redirected = ""
        self.position += sign == ")"
        self.statement.sign = ""
        while self.position < len(self.text) and self._sign() in ";|&\n":
            self.statement.sign += self._sign()
            self.position += 1
            if self.text[self.position - 1][0] == "\n":
                break
        if self.statement.mark and self.text[self.position - 1][0] == "\n":
            self._document()
        return bool(self.statement.words)

    def _document(self) -> None:
        """Take the here-document's lines."""
        while self.position < len(self.text):
            start = self.position
            self._skip_line()
            line = self.text[start : self.position]
            self.position += 1
            if plain(line).strip() == self.statement.mark:
                return
            self.statement.body += [*line, ("\n", line[0][1] if line else 0)]

    def _ended(self) -> Statement:
        done, self.statement = self.statement, Statement()
        return done
