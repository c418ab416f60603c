"""PTX text -> kernels, variables and instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.gpu.simulator.errors import SimulationError
from tests.gpu.simulator.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Text,
    Variable,
    Vector,
)

_NUMBER = re.compile(r"-?(0[fFdD][0-9a-fA-F]+|0[xX][0-9a-fA-F]+U?|\d+U?|\d*\.\d+([eE][+-]?\d+)?)$")
_LABEL = re.compile(r"\s*([\w$]+)\s*:(?!:)")
_VARIABLE = re.compile(
    r"\.(?P<space>shared|global|param)\s+(?P<rest>(?:\.\w+(?:\s+\d+)?\s+)*?)"
    r"\.(?P<type>[busf]\d+|pred)\s+(?P<pointer>(?:\.\w+(?:\s+\d+)?\s+)*)"
    r"(?P<name>[\w$%]+)\s*(?P<array>\[\s*\d*\s*\])?\s*(?:=\s*(?P<initial>.*))?$",
    re.S,
)
_HEADER = re.compile(r"\.entry\s*(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^()]*)\))?")


def parse(text: str | bytes) -> Text:
    """The kernels and variables of a PTX module.

    Raises:
        SimulationError: kind "syntax", with the line, for text that no rule here reads.
    """
    text = text.decode() if isinstance(text, bytes) else text
    source = _blank_comments(text).rstrip("\0")
    target = re.search(r"^\s*\.target\s+sm_(\d+)", text, re.M)
    module = Text(int(target.group(1)) if target else 0, {}, {})
    for line, header, body in _top_level(source):
        _add_top_level(module, line, header, body)
    return module


def _blank_comments(text: str) -> str:
    """The text without comments, debug lines and the module's preamble; every line keeps its number."""

    def keep_lines(match: re.Match[str]) -> str:
        return "\n" * match.group().count("\n")

    text = re.sub(r"/\*.*?\*/|//[^\n]*", keep_lines, text, flags=re.S)
    text = re.sub(r"^\s*\.section\b[^{]*\{.*?\}", keep_lines, text, flags=re.S | re.M)
    return re.sub(r"^[ \t]*\.(version|target|address_size|loc|file)\b[^\n]*", "", text, flags=re.M)


def _top_level(source: str) -> Iterator[tuple[int, str, str | None]]:
    """(line, header, body in braces or None) of every declaration of the module."""
    position = 0
    while match := re.compile(r"[^;{]*").match(source, position):
        end = match.end()
        if end >= len(source):
            return
        start = position + len(match.group()) - len(match.group().lstrip())
        line, header = source.count("\n", 0, start) + 1, match.group().strip()
        if source[end] == ";" or header.endswith("="):
            end = source.index(";", end)
            yield line, source[start:end].strip(), None
            position = end + 1
        else:
            position = _closing_brace(source, end) + 1
            yield line, header, "\n" * source.count("\n", start, end + 1) + source[end + 1 : position - 1]


def _closing_brace(source: str, opening: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(source, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise SimulationError("syntax", "a brace is never closed", line=source.count("\n", 0, opening) + 1)


def _add_top_level(module: Text, line: int, header: str, body: str | None) -> None:
    if match := _HEADER.search(header):
        if body is not None:
            function = _function(line, header, match)
            _Body(function, line, body).read()
            module.functions[function.name] = function
    elif "." in header:
        variable = _variable(header, line)
        module.variables[variable.name] = variable


def _function(line: int, header: str, match: re.Match[str]) -> Function:
    threads = re.search(r"\.(?:max|req)ntid\s+([\d\s,]+)", header)
    limit = None
    if threads:
        limit = 1
        for count in threads.group(1).split(","):
            limit *= int(count)
    cluster = re.search(r"\.reqnctapercluster\s+([\d\s,]+)", header)
    x, y, z = (*map(int, cluster.group(1).split(",")), 1, 1)[:3] if cluster else (1, 1, 1)
    if x * y > 1:
        raise SimulationError("syntax", "only clusters along z are known", line=line)
    return Function(
        match.group("name"),
        line,
        _parameters(match.group("parameters"), line),
        max_threads=limit,
        cluster=z,
    )


def _parameters(text: str | None, line: int) -> tuple[Variable, ...]:
    return tuple(_variable(part.strip(), line) for part in (text or "").split(",") if part.strip())


def _variable(text: str, line: int) -> Variable:
    text = text.strip()
    text = re.sub(r"^(\.(?:visible|extern|weak|common)\s+)*", "", text)
    match = _VARIABLE.match(text)
    if not match:
        raise SimulationError("syntax", f"cannot read the declaration `{text}`", line=line)
    align = re.search(r"\.align\s+(\d+)", match.group("rest"))
    array = match.group("array")
    count = 1 if array is None else int(array.strip("[] \t\n") or 0)
    initial = tuple(part.strip() for part in (match.group("initial") or "").strip("{} \n\t").split(",") if part.strip())
    if array is not None and count == 0 and initial:
        count = len(initial)
    size = int(match.group("type").lstrip("busf")) // 8
    return Variable(
        match.group("name"),
        match.group("space"),
        match.group("type"),
        int(align.group(1)) if align else size,
        count,
        initial,
    )


class _Body:
    """Reads the statements between the braces of one function."""

    def __init__(self, function: Function, line: int, text: str) -> None:
        self.function, self.text, self.first_line = function, text, line
        self.scopes: list[tuple[int, dict[str, int]]] = [(0, {})]
        self.scope_count = 1

    def read(self) -> None:
        """Fills the function's registers, variables, labels and instructions."""
        position = 0
        while position < len(self.text):
            position = self._statement(position)

    def _statement(self, position: int) -> int:
        """Reads what starts at `position`: a label, a brace or a statement; the position after it."""
        if label := _LABEL.match(self.text, position):
            self.function.labels[self.scopes[-1][0], label.group(1)] = len(self.function.instructions)
            return label.end()
        start = (
            position + len(self.text[position:]) - len(self.text[position:].lstrip())
            if self.text[position].isspace()
            else position
        )
        if start >= len(self.text):
            return start
        if self.text[start] == "{":
            self.scopes.append((self.scope_count, {}))
            self.scope_count += 1
            return start + 1
        if self.text[start] == "}":
            self.scopes.pop()
            return start + 1
        end = self.text.find(";", start)
        if end < 0:
            raise SimulationError("syntax", f"no `;` after `{self.text[start:].strip()}`", line=self._line(start))
        self._read_statement(" ".join(self.text[start:end].split()), self._line(start))
        return end + 1

    def _line(self, position: int) -> int:
        return self.first_line + self.text.count("\n", 0, position)

    def _read_statement(self, statement: str, line: int) -> None:
        if statement.startswith(".reg"):
            self._declare_registers(statement)
        elif statement.startswith((".shared", ".global")):
            variable = _variable(statement, line)
            self.function.variables[variable.name] = variable
        elif statement and not statement.startswith("."):
            self.function.instructions.append(self._instruction(statement, line))

    def _declare_registers(self, statement: str) -> None:
        _, kind, names = statement.split(None, 2)
        for name in names.split(","):
            match = re.match(r"\s*([%\w$]+)(?:<(\d+)>)?", name)
            assert match
            every = (
                [match.group(1)]
                if match.group(2) is None
                else [f"{match.group(1)}{n}" for n in range(int(match.group(2)))]
            )
            for one in every:
                self.scopes[-1][1][one] = len(self.function.registers)
                self.function.registers.append(kind.lstrip("."))

    def _instruction(self, statement: str, line: int) -> Instruction:
        predicate, rest = None, statement
        if statement.startswith("@"):
            guard, rest = statement[1:].split(None, 1)
            read = self._operand(guard, line)
            assert isinstance(read, Register | Negated)
            predicate = read
        opcode, _, operands = rest.partition(" ")
        parts = tuple(opcode.replace("::", "__").split("."))
        scopes = tuple(scope for scope, _ in self.scopes)
        read_operands = tuple(self._operand(part, line) for part in _split(operands))
        return Instruction(line, statement, parts, read_operands, predicate, scopes)

    def _register(self, name: str) -> Register | None:
        for _, names in reversed(self.scopes):
            if name in names:
                return Register(names[name])
        return None

    def _operand(self, text: str, line: int) -> Operand:
        if text.startswith("[") and text.endswith("]"):
            return self._address(text[1:-1].strip(), line)
        if text[0] == "{":
            return Vector(tuple(self._operand(part, line) for part in _split(text[1:-1])))
        if text.startswith("!"):
            inner = self._operand(text[1:].strip(), line)
            assert isinstance(inner, Register)
            return Negated(inner)
        return self._simple(text, line)

    def _simple(self, text: str, line: int) -> Operand:
        if text == "_":
            return Sink()
        if register := self._register(text):
            return register
        if _NUMBER.match(text):
            return Immediate(text)
        if re.fullmatch(r"%\w+(\.[xyz])?", text):
            return Special(text[1:])
        if match := re.match(r"([\w$]+)\s*(?:\+\s*(-?\d+))?$", text):
            return Symbol(match.group(1), int(match.group(2) or 0))
        raise SimulationError("syntax", f"cannot read the operand `{text}`", line=line)

    def _address(self, text: str, line: int) -> Address:
        match = re.match(r"([%\w$]+)\s*(?:([+-])\s*(-?(?:0x[0-9a-fA-F]+|\d+)))?$", text)
        if not match:
            raise SimulationError("syntax", f"cannot read the address `[{text}]`", line=line)
        offset = int(match.group(3) or "0", 0) * (-1 if match.group(2) == "-" else 1)
        return Address(self._simple(match.group(1), line), offset)


def _split(text: str) -> list[str]:
    """The operands between commas that stand outside all brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]
