"""Commands of a shell script, read and never run: words with their lines, and what isn't known.

Understood are comments, continued lines, quotes, arrays, variables with defaults, products of
numbers, ``export``, here-documents, Slurm's comments, and conditions on what is known.  Whatever
else gives a variable its value (a loop, a file, a command's output) makes that unknown, with its
line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sweeps.launch.calculated import calculated
from sweeps.launch.conditions import TESTS, Branch, Condition, Term, opposite, settled
from sweeps.launch.shell_words import Cutter, Text, lined, plain

# What stands in a text for a value that isn't known: its name between two of these.
HOLE = "\x00"
# The beginning of a value that is what the variable was, and what more follows.
_OWN = re.compile(r"([\"(\s]*)\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?\"?(?=\s)")
MOST_EVALUATED = 20
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_SBATCH = re.compile(r"^#SBATCH\s+(.*)$")
_DECLARES = frozenset(("export", "declare", "local", "readonly", "typeset"))
# Words after which what follows may be run or not, or several times; and those that end it.
_OPENS = {"if": "if", "for": "for", "while": "while", "until": "until", "case": "case"}
_CLOSES = frozenset(("fi", "done", "esac"))
_SKIPPED = frozenset(("then", "else", "do", "{", "}", "time", "exec", "nohup", "sudo", "env"))


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, with its line; holes are values that aren't known."""

    text: str
    line: int

    @property
    def is_hole(self) -> bool:
        """Whether nothing of it is known."""
        return not "".join(self.text.split(HOLE)[0::2]) and HOLE in self.text

    @property
    def holes(self) -> list[str]:
        """The names of what isn't known in it."""
        return self.text.split(HOLE)[1::2]

    def __str__(self) -> str:
        parts = self.text.split(HOLE)
        return "".join(f"${part}" if index % 2 else part for index, part in enumerate(parts))


@dataclass(slots=True)
class Script:
    """What a script's commands are."""

    commands: list[list[Word]] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)  # By variable: why it isn't known
    documents: dict[str, tuple[str, int]] = field(default_factory=dict)  # By file: here-documents
    conditional: list[Word] = field(default_factory=list)  # Added only if a condition holds
    batch: dict[str, str] = field(default_factory=dict)  # What Slurm's comments ask for
    arguments: dict[str, str] = field(default_factory=dict)  # Defaults of the script's arguments
    environment: dict[str, str] = field(default_factory=dict)  # Its variables at its end


# What a batch system tells a script, by the option that asks for it.
_SLURM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
}
_SHORT = {"-N": "nodes", "-n": "ntasks", "-G": "gpus"}


def batch_options(words: Sequence[str]) -> dict[str, str]:
    """Return the options of a batch system among some words."""
    options: dict[str, str] = {}
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            options[name] = value if equals else following
        elif word[:2] in _SHORT:
            options[_SHORT[word[:2]]] = word[2:].lstrip("=") or following
    if "gpus-per-node" not in options and (
        gres := re.search(r"gpu.*?(\d+)$", options.get("gres", ""))
    ):
        options["gpus-per-node"] = gres[1]
    if (typed := re.search(r"(\d+)$", options.get("gpus-per-node", ""))) is not None:
        options["gpus-per-node"] = typed[1]
    return options


class _Reader:
    """Reads a script from its first line to its last."""

    def __init__(self, text: str) -> None:
        self.script = Script()
        self.values: dict[str, Text] = {}
        self.arrays: dict[str, list[Text]] = {}
        self.depth: list[str] = []  # Conditions and loops around what is read
        self.branches: list[Branch] = []  # Of these the conditions
        self.condition: Condition | None = None  # The one that is read
        self.groups: list[int] = []  # Braces that a condition guards, by how deep they are
        self.evaluated = 0  # Times that a text was read as commands
        lines = text.split("\n")
        for line in lines:
            if batch := _SBATCH.match(line.strip()):
                self.script.batch |= batch_options(batch[1].split("#")[0].split())
        for name, variables in _SLURM.items():
            if name in self.script.batch:
                for variable in variables:
                    self.values[variable] = [(sign, 0) for sign in self.script.batch[name]]
        self._run(lined(text))

    def _run(self, text: Text) -> None:
        """Read the statements of a text."""
        for statement in Cutter(text):
            if statement.mark and (name := plain(self._expanded(lined(statement.target)))):
                body = statement.body if statement.quoted else self._filled(statement.body)
                line = body[0][1] if body else 0
                self.script.documents[name] = (plain(body), line)
            self._guarded(statement.words, statement.sign.strip())

    # What a statement does.

    def _guarded(self, words: list[Text], sign: str) -> None:
        """Do what a statement does, unless a condition that is known forbids it."""
        while words and plain(words[0]) in ("do", "else", "then"):
            self._begin(plain(words[0]))
            words = words[1:]
        first = plain(words[0]) if words else ""
        if first in ("if", "elif"):
            words = words[1:]
            self.condition = Condition()
            if first == "if":
                self._open(False)
        elif self.condition is None and _tests(words):
            self.condition = Condition(alone=True)
        if self.condition is not None and not self.condition.is_over(words):
            self._tested(words, sign)
        elif self.condition is not None:
            self._joined(words, sign)
        elif first == "}" and self.groups[-1:] == [len(self.depth)]:
            self.groups.pop()
            self.branches.pop()
            self.depth.pop()
        elif words:
            self._allowed(words, first)

    def _begin(self, name: str) -> None:
        """Begin a part of an ``if`` at its ``then`` or ``else``."""
        condition = self.condition
        if name == "do" or not self.branches or (name == "then" and condition is None):
            return
        self.branches[-1].begin(condition.decided() if name == "then" and condition else True)
        self.condition = None

    def _open(self, runs: bool | None) -> None:
        """Begin what a condition decides on."""
        self.depth.append("if")
        self.branches.append(Branch(runs))

    def _allowed(self, words: list[Text], first: str) -> None:
        """Do what a statement does where that is allowed; ends count everywhere."""
        if first == "fi" and self.branches:
            self.branches.pop()
        forbidden = any(branch.runs is False for branch in self.branches)
        if first in (*_OPENS, *_CLOSES) or not forbidden:
            self._do(words)

    def _joined(self, words: list[Text], sign: str) -> None:
        """Do what follows tests that stand alone, as in ``[ -n "$X" ] && Y=1``."""
        assert self.condition is not None
        last, value = self.condition.terms.pop().raw, self.condition.decided()
        self.condition = None
        runs = value if last == "&&" else opposite(value)
        self._open(runs)
        self._allowed(words, "")
        if words and plain(words[0]) == "{":
            self.groups.append(len(self.depth))
            return
        self.branches.pop()
        self.depth.pop()
        if sign in ("&&", "||"):
            # What ran is taken to succeed.
            came = True if runs else value
            self.condition = Condition(settled(came), alone=True)
            self.condition.terms.append(Term(sign, None))

    def _tested(self, words: list[Text], sign: str) -> None:
        """Read on in a condition; a command in it runs, and whether it succeeds isn't known."""
        condition = self.condition
        assert condition is not None
        begins = plain(words[0]) if words else ""
        if not condition.is_open and begins not in (*TESTS, "!"):
            condition.strange = True
            self._do(words)
            return
        for word in words:
            value = plain(self._expanded(word))
            condition.terms.append(Term(plain(word), None if HOLE in value else value))
        if sign in ("&&", "||"):
            condition.terms.append(Term(sign, None))
        elif condition.alone and not condition.is_open:
            self.condition = None

    @property
    def _undecided(self) -> str:
        """The condition or loop that decides on what is read, if one does."""
        decided = iter(self.branches)
        names = [
            name for name in self.depth if name != "if" or next(decided, Branch()).runs is None
        ]
        return names[-1] if names else ""

    def _do(self, words: list[Text]) -> None:
        if words and plain(words[0]) == "function":
            words = words[2:]
        elif words and plain(words[0]).endswith("()"):
            words = words[1:]
        while words and plain(words[0]) in (*_SKIPPED, *_OPENS, *_CLOSES, "elif", "in"):
            first = plain(words[0])
            if first in _OPENS:
                self.depth.append(first)
                if first in ("for", "case"):
                    if first == "for" and len(words) > 1:
                        self._forget(plain(words[1]), words[1][0][1], "a loop sets it")
                    return
            elif first in _CLOSES and self.depth:
                self.depth.pop()
            words = words[1:]
        if words and plain(words[0]) in _DECLARES:
            words = [word for word in words[1:] if _ASSIGNED.match(plain(word))]
        while words and (match := _ASSIGNED.match(plain(words[0]))):
            self._assign(match[1], words[0][match.end() :], more=bool(match[2]))
            words = words[1:]
        if words and not self._builtin(plain(words[0]), words[1:]):
            self._command(words)

    def _builtin(self, name: str, words: list[Text]) -> bool:
        """Do what the shell does itself; return whether it is that."""
        if name == "eval" and self.evaluated < MOST_EVALUATED:
            parts = [part for word in words for part in self._split(word) if part]
            self.evaluated += 1
            self._run([sign for part in parts for sign in (*part, (" ", part[-1][1]))])
            return True
        if name in ("read", "unset", "eval", "source", "."):
            for word in words:
                if _NAME.fullmatch(plain(word)):
                    self._forget(plain(word), word[0][1], f"'{name}' sets it")
            return True
        return False

    def _forget(self, name: str, line: int, why: str) -> None:
        self.values.pop(name, None)
        self.arrays.pop(name, None)
        self.script.unknown[name] = f"{why} in line {line}"

    def _assign(self, name: str, raw: Text, *, more: bool) -> None:
        line = raw[0][1] if raw else 0
        itself = _OWN.match(plain(raw))
        known = name in self.values or name in self.arrays
        if self._undecided and itself and itself[2] == name and known:
            # OPTS="$OPTS --more" adds to itself, as += does
            raw, more = [*raw[: itself.end(1)], *raw[itself.end() :]], True
        if self._undecided and more:
            bare = plain(raw).strip('"() \t\n')
            added = self._words(lined(bare, line))
            self.script.conditional += self._kept(added)
            return
        if self._undecided:
            self.script.conditional += self._kept(self._words(lined(plain(raw).strip('"()'), line)))
            self._forget(name, line, f"'{self._undecided}' decides on it")
            return
        why = self.script.unknown.pop(name, "")
        lost = self._hole(name, line, why) if why and more and not known else []
        if raw and raw[0][0] == "(":
            elements = [*([lost] if lost else ()), *self._words(raw[1:-1])]
            self.arrays[name] = [*self.arrays.get(name, []), *elements] if more else elements
            return
        if name in self.arrays and more:
            self.arrays[name] += self._words(raw)
            return
        text = [*lost, *([(" ", line)] if lost else ()), *self._expanded(raw)]
        self.values[name] = [*self.values.get(name, []), *text] if more else text
        self.script.environment[name] = plain(self.values[name])

    def _words(self, raw: Text) -> list[Text]:
        """Return the words of an array's text, expanded."""
        words = (word for statement in Cutter(raw) for word in statement.words)
        return [part for word in words for part in self._split(word)]

    def _command(self, words: list[Text]) -> None:
        """Keep a command; what it hands to another shell is read as that shell does."""
        expanded = [part for word in words for part in self._split(word)]
        texts = ["".join(sign for sign, _ in word) for word in expanded]
        for index, text in enumerate(texts[:-2]):
            if text.rpartition("/")[2] in ("bash", "sh") and texts[index + 1] in ("-c", "-lc"):
                before = self._kept(expanded[:index])
                count = len(self.script.commands)
                self._run(expanded[index + 2])
                for command in self.script.commands[count:]:
                    command[:0] = before
                return
        self.script.commands.append(self._kept(expanded))

    @staticmethod
    def _kept(words: list[Text]) -> list[Word]:
        texts = (("".join(sign for sign, _ in word), word[0][1] if word else 0) for word in words)
        return [Word(text, line) for text, line in texts]

    # Expansion: quotes, variables, arrays, arithmetic.

    def _split(self, raw: Text) -> list[Text]:
        """Return the words that a raw word becomes: what isn't quoted is split at blanks."""
        plain = "".join(sign for sign, _ in raw)
        if plain in ('"$@"', '"${@}"'):  # the script's own arguments: none
            return []
        array = re.fullmatch(r"\"?\$\{([A-Za-z_]\w*)\[[@*]\]\}\"?", plain)
        if array:
            if array[1] in self.arrays:
                kept = self.arrays[array[1]]
                return kept if plain[0] == '"' else [p for word in kept for p in _parted(word)]
            if plain_value := self.values.get(array[1]):
                return [plain_value]
            why = self.script.unknown.get(array[1])
            return [self._hole(array[1], raw[0][1], why)] if why else []
        pieces: list[tuple[Text, bool]] = []
        quoted = False
        for part, in_quotes, value in self._pieces(raw):
            quoted = quoted or in_quotes
            pieces.append((part, value and not in_quotes))
        words: list[Text] = []
        current: Text = []
        began = False
        for part, splits in pieces:
            for sign in part:
                if splits and sign[0] in " \t\n":
                    if began:
                        words.append(current)
                    current, began = [], False
                else:
                    current.append(sign)
                    began = True
        if began or (quoted and not words):
            words.append(current)
        return words

    def _expanded(self, raw: Text) -> Text:
        """Return a text with its values put in, without quotes."""
        return [sign for part, _, _ in self._pieces(raw) for sign in part]

    def _filled(self, raw: Text) -> Text:
        """Return a here-document with its values put in; quotes are text in it."""
        filled: Text = []
        position = 0
        while position < len(raw):
            if raw[position][0] == "$":
                value, position = self._value(raw, position)
                filled += value
            else:
                filled.append(raw[position])
                position += 1
        return filled

    def _pieces(self, raw: Text) -> Iterator[tuple[Text, bool, bool]]:
        """Yield parts of a word: whether they stood in quotes, and whether they are a value."""
        position, quote = 0, ""
        while position < len(raw):
            sign, line = raw[position]
            if sign == "\\" and quote != "'" and position + 1 < len(raw):
                if raw[position + 1][0] != "\n":
                    yield [raw[position + 1]], True, False
                position += 2
            elif sign in "'\"" and quote in ("", sign):
                quote = "" if quote else sign
                if not quote and raw[position - 1][0] == sign:
                    yield [], True, False
                position += 1
            elif sign == "$" and quote != "'":
                value, position = self._value(raw, position)
                yield value, bool(quote), True
            elif sign == "`" and quote != "'":
                end = position + 1
                while end < len(raw) and raw[end][0] != "`":
                    end += 1
                yield self._output(line), bool(quote), True
                position = end + 1
            else:
                yield [raw[position]], bool(quote), False
                position += 1

    def _hole(self, name: str, line: int, why: str) -> Text:
        """Return what stands for a value that isn't known, and keep why."""
        self.script.unknown.setdefault(name, why)
        return [(sign, line) for sign in f"{HOLE}{name}{HOLE}"]

    def _output(self, line: int) -> Text:
        return self._hole(
            f"(..) in line {line}", line, "a command's output isn't known before it runs"
        )

    def _value(self, raw: Text, position: int) -> tuple[Text, int]:
        """Return the value that a dollar sign asks for, and where its name ends."""
        line = raw[position][1]
        rest = plain(raw[position + 1 :])
        if rest.startswith("(("):
            end = _closing(rest, 0)
            return self._arithmetic(
                raw[position + 3 : position + end - 1], line
            ), position + 1 + end
        if rest.startswith("("):
            end = _closing(rest, 0)
            return self._output(line), position + 1 + end
        if rest.startswith("{"):
            end = _closing(rest, 0)
            inner = raw[position + 2 : position + end]
            return self._braced(inner, line), position + 1 + end
        match = re.match(r"[A-Za-z_]\w*|[0-9@*#?$!]", rest)
        if match is None:
            return [raw[position]], position + 1
        return self._named(match[0], line), position + 1 + match.end()

    def _braced(self, inner: Text, line: int) -> Text:
        text = plain(inner)
        match = re.match(r"([A-Za-z_]\w*|\d+)(:?[-=])", text)
        if match:
            name, value = match[1], self.values.get(match[1])
            if value:
                return value
            default = self._expanded(inner[match.end() :])
            if name.isdigit():
                self.script.arguments[name] = plain(default)
            elif match[2].endswith("=") and not self.depth:
                self.values[name] = default
            return [(sign, line) for sign, _ in default]
        match = re.fullmatch(r"([A-Za-z_]\w*|\d+|[@*])(\[[@*]\])?", text)
        if match is None:
            return self._hole(text, line, "this kind of expansion isn't read")
        return self._named(match[1], line)

    def _named(self, name: str, line: int) -> Text:
        if name in self.values:
            return self.values[name]
        if name in self.arrays:
            words = self.arrays[name]
            return [sign for word in words for sign in (*word, (" ", word[-1][1]))] if words else []
        if name in "@*":
            return []
        if name.isdigit():
            return self._hole(name, line, f"argument {name} of the script isn't given")
        return self._hole(name, line, f"{name} has no value in the script")

    def _arithmetic(self, raw: Text, line: int) -> Text:
        named = re.sub(r"(?<![\w$}])([A-Za-z_]\w*)", r"$\1", plain(raw))
        text = plain(self._expanded([(sign, line) for sign in named]))
        value = None if HOLE in text else calculated(text.replace("/", "//"))
        if value is None:
            holes = text.split(HOLE)[1::2]
            name = holes[0] if holes else f"(({text.strip()}))"
            return self._hole(name, line, "isn't a whole number's calculation")
        return [(sign, line) for sign in str(value)]


def _tests(words: Sequence[Text]) -> bool:
    """Return whether a statement is a test, or one that is turned around."""
    names = [plain(word) for word in words[:2]]
    return bool(names) and names[-1 if names[0] == "!" else 0] in TESTS


def _parted(word: Text) -> list[Text]:
    """Return what blanks part in a word that isn't quoted where it is used."""
    parts: list[Text] = [[]]
    for sign in word:
        if sign[0] in " \t\n":
            parts.append([])
        else:
            parts[-1].append(sign)
    return [part for part in parts if part]


def _closing(text: str, position: int) -> int:
    """Return where the bracket at a place is closed, or the end of the text."""
    pairs, deep = {"(": ")", "{": "}"}, 0
    opened, closed = text[position], pairs[text[position]]
    for end in range(position, len(text)):
        deep += (text[end] == opened) - (text[end] == closed)
        if deep == 0:
            return end + 1
    return len(text)


def read_script(text: str) -> Script:
    """Read a shell script's commands; nothing of it is run."""
    return _Reader(text.replace("\r\n", "\n")).script
