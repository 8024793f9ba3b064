#!/usr/bin/env python3
"""Reads the public C headers and the comments in them.

The documentation site (scripts/build_site.py) and the manual pages (scripts/man.py) are made from
the lists that this module returns. It understands the C that cbindgen writes: documentation comments with \\param and
\\return, typedefs, enums, structs, callbacks, functions and macros. It is not a C parser for other code.
Needs the standard library alone.
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"

# The core first, then the parts in the order of the documentation, then the rest by name.
ORDER = ("ftsort.h", "ftsort_query.h", "ftsort_external.h", "ftsort_rounds.h", "ftsort_tree.h", "ftsort_monitor.h",
         "ftsort_store.h", "ftsort_verify.h", "ftsort_all.h")

KINDS = ("function", "struct", "callback", "enum", "type", "macro")


class ParseError(Exception):
    """A header has a construct that this module does not know."""


@dataclasses.dataclass
class Comment:
    """A documentation comment, taken apart."""

    text: str = ""
    call: str = ""  # "collective", "local", or empty
    params: list = dataclasses.field(default_factory=list)  # (direction, name, text)
    returns: str = ""
    retvals: list = dataclasses.field(default_factory=list)  # (value, text)

    @property
    def summary(self):
        """The first sentence, in one line."""
        paragraphs = [text for kind, text in blocks(self.text) if kind == "paragraph"]
        if not paragraphs:
            return ""
        match = re.match(r"(.*?(?<!\.\w)(?<!\.)[.?])(\s|$)", paragraphs[0])
        sentence = match[1] if match else paragraphs[0]
        clause = re.match(r"(.{25,}?)[:;]\s", sentence)
        return clause[1] if clause and len(sentence) > 90 else sentence


@dataclasses.dataclass
class Item:
    """A declaration and its comment. Members and enumerators are items within an item."""

    kind: str
    name: str
    declaration: str
    comment: Comment
    members: list = dataclasses.field(default_factory=list)
    parameters: list = dataclasses.field(default_factory=list)  # names, of functions, callbacks and macros
    value: str = ""  # of a macro that stands for a number


@dataclasses.dataclass
class Header:
    """A header file: its first comment, the headers of ftsort that it includes, and its declarations."""

    name: str
    overview: str
    includes: list
    items: list

    @property
    def title(self):
        """The first line of the overview, without the name in front of it."""
        line = self.overview.split("\n", 1)[0].strip()
        return re.sub(r"^[\w.]+:\s*", "", line)

    @property
    def body(self):
        """The overview without its first line."""
        return self.overview.partition("\n")[2].strip("\n")

    def of_kind(self, kind):
        return [item for item in self.items if item.kind == kind]


# ---- Comments ---------------------------------------------------------------------------------------


def comment_text(raw):
    """The text of a C comment without its delimiters and its left margin."""
    inner = re.sub(r"^/\*+<?|\*+/$", "", raw.strip())
    lines = [re.sub(r"^\s*\*( |$)", "", line) for line in inner.split("\n")]
    lines[0] = lines[0].lstrip()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def joined(text):
    return " ".join(text.split())


def parse_comment(raw):
    """Takes a documentation comment apart into its text and its tagged parts."""
    text = comment_text(raw)
    text = re.sub(r"[\\@](?:p|c|ref)\s+(\w+(?:\.\w+)*)", r"`\1`", text)
    first, *tagged = re.split(r"^[\\@](?=(?:param|returns?|retval)\b)", text, flags=re.M)
    comment = Comment()
    call = re.search(r"\[([CL])\]", first)
    if call:
        comment.call = {"C": "collective", "L": "local"}[call[1]]
        first = re.sub(r"[ \t]*\n?[ \t]*\[[CL]\]", "", first, count=1)
    comment.text = first.strip("\n").rstrip()
    for part in tagged:
        match = re.match(r"param(?:\[([\w,]+)\])?\s+([\w.]+)\s*(.*)", part, re.S)
        if match:
            comment.params.append((match[1] or "", match[2], joined(match[3])))
            continue
        match = re.match(r"retval\s+(\S+)\s*(.*)", part, re.S)
        if match:
            comment.retvals.append((match[1], joined(match[2])))
            continue
        comment.returns = joined(re.sub(r"^returns?", "", part))
    return comment


LIST_ITEM = re.compile(r"(?:[-*+]|\d+\.)\s+(.*)")


def is_code(line):
    return line.startswith("  ")


def blocks(text):
    """Divides a text into ("paragraph", text), ("list", [texts]) and ("code", text).

    Indented lines are code, as in Markdown but from two spaces on; they need no empty line before them.
    Indented lines below a list item continue that item.
    """
    lines, found, index = text.split("\n"), [], 0
    while index < len(lines):
        line, start = lines[index], index
        if not line.strip():
            index += 1
        elif line.startswith("```"):
            index = next((n for n in range(index + 1, len(lines)) if lines[n].startswith("```")), len(lines))
            found.append(("code", "\n".join(lines[start + 1:index])))
            index += 1
        elif is_code(line):
            while index < len(lines) and (is_code(lines[index]) or not lines[index].strip()):
                index += 1
            found.append(("code", dedented(lines[start:index])))
        elif LIST_ITEM.match(line):
            items = []
            while index < len(lines) and (LIST_ITEM.match(lines[index]) or is_code(lines[index])):
                match = LIST_ITEM.match(lines[index])
                if match:
                    items.append(match[1])
                else:
                    items[-1] += " " + lines[index].strip()
                index += 1
            found.append(("list", [joined(item) for item in items]))
        else:
            while index < len(lines) and lines[index].strip() and not is_code(lines[index]):
                if index > start and (LIST_ITEM.match(lines[index]) or lines[index].startswith("```")):
                    break
                index += 1
            found.append(("paragraph", joined("\n".join(lines[start:index]))))
    return found


def dedented(lines):
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines).strip("\n")


NAME = re.compile(r"\b(?:ftsort|FTSORT)_\w+(?:\.\w+)?(?:\(\))?|\bMPIX?_[A-Z]\w+")


def inline(text):
    """Divides a text into ("text", words) and ("code", words).

    Code is between backticks; names of ftsort and MPI count as code without them.
    """
    parts = []
    for index, part in enumerate(re.split(r"`+([^`]+)`+", text)):
        if index % 2:
            parts.append(("code", part))
            continue
        end = 0
        for match in NAME.finditer(part):
            parts += [("text", part[end:match.start()]), ("code", match[0])]
            end = match.end()
        parts.append(("text", part[end:]))
    return [(kind, words) for kind, words in parts if words]


# ---- Declarations -----------------------------------------------------------------------------------

COMMENT = re.compile(r"/\*.*?\*/", re.S)
DEFINE = re.compile(r"#[ \t]*define[ \t]+(\w+)(\([\w, \t]*\))?[ \t]*((?:\\\n|[^\n])*)")
DIRECTIVE = re.compile(r"#(?:\\\n|[^\n])*")
ENUM = re.compile(r"typedef\s+enum\s+(\w+)?\s*\{(.*?)\}\s*(\w+)\s*;", re.S)
STRUCT = re.compile(r"typedef\s+(struct|union)\s+(\w+)?\s*\{(.*?)\}\s*(\w+)\s*;", re.S)
OPAQUE = re.compile(r"typedef\s+struct\s+(\w+)\s+(\w+)\s*;")
CALLBACK = re.compile(r"typedef\s+([^;{}()]*?)\(\s*\*\s*(\w+)\s*\)\s*\(([^;{}]*)\)\s*;", re.S)
TYPEDEF = re.compile(r"typedef\s+([^;{}()]*?)(\w+)\s*;", re.S)
FUNCTION = re.compile(r"(?!typedef\b)([^;{}()#]*?)(\w+)\s*\(([^;{}]*)\)\s*;", re.S)
CPLUSPLUS = re.compile(r"#ifdef __cplusplus\n.*?#endif[^\n]*", re.S)


def one_line(declaration):
    line = " ".join(declaration.split())
    return re.sub(r"\s*\(\s*\)", "()", re.sub(r"([(*]) ", r"\1", line)).rstrip(";").strip()


def parameter_names(parameters):
    """The names of a parameter list."""
    names = []
    for parameter in re.split(r",(?![^(]*\))", parameters):
        match = re.search(r"\(\s*\*\s*(\w+)\s*\)|(\w+)\s*(?:\[[^\]]*\])?\s*$", parameter)
        if match and parameter.strip() != "void":
            names.append(match[1] or match[2])
    return names


def members_of(body, kind):
    """The members of a struct, or the enumerators of an enum, with their comments."""
    found, comment, end = [], Comment(), 0
    token = re.compile(r"\s*(?:(/\*.*?\*/)|([^;/,]+(?:\([^;]*\))?)[;,]?)" if kind == "enumerator" else
                       r"\s*(?:(/\*.*?\*/)|([^;/]+);)", re.S)
    while body[end:].strip():
        match = token.match(body, end)
        if not match:
            raise ParseError(f"not a {kind}: {body[end:].strip()[:60]}")
        end = match.end()
        if match[1]:
            comment = parse_comment(match[1])
            continue
        declaration = one_line(match[2])
        name = re.search(r"\(\s*\*\s*(\w+)\s*\)", declaration) if kind == "member" else None
        name = name or re.match(r"(\w+)", declaration) if kind == "enumerator" else (
            name or re.search(r"(\w+)\s*(?:\[[^\]]*\])*$", declaration))
        found.append(Item(kind, name[1], declaration, comment))
        comment = Comment()
    return found


def declaration_at(text, position):
    """The item that starts at a position and where it ends; an item of no kind is to be left out."""
    match = DEFINE.match(text, position)
    if match:
        parameters = [name.strip() for name in (match[2] or "()")[1:-1].split(",") if name.strip()]
        item = Item("macro", match[1], f"{match[1]}{match[2] or ''}", Comment(), parameters=parameters)
        value = COMMENT.sub("", match[3]).strip()
        item.value = value if re.fullmatch(r"\w+", value) else ""
        return item, match.end()
    match = DIRECTIVE.match(text, position)
    if match:
        return None, match.end()
    match = ENUM.match(text, position)
    if match:
        return Item("enum", match[3], match[3], Comment(), members_of(match[2], "enumerator")), match.end()
    match = STRUCT.match(text, position)
    if match:
        return Item("struct", match[4], match[4], Comment(), members_of(match[3], "member")), match.end()
    match = OPAQUE.match(text, position)
    if match:
        return Item("struct", match[2], match[2], Comment()), match.end()
    match = CALLBACK.match(text, position)
    if match:
        declaration = one_line(re.sub(r"^typedef\s+", "", match[0]))
        return Item("callback", match[2], declaration, Comment(), parameters=parameter_names(match[3])), match.end()
    match = TYPEDEF.match(text, position)
    if match:
        return Item("type", match[2], one_line(match[1] + match[2]), Comment()), match.end()
    match = FUNCTION.match(text, position)
    if match:
        item = Item("function", match[2], one_line(match[0]), Comment(), parameters=parameter_names(match[3]))
        return item, match.end()
    line = text.count("\n", 0, position) + 1
    raise ParseError(f"line {line}: not a declaration that is known: {text[position:position + 60]!r}")


def parse(source, name):
    """The content of a header file."""
    includes = re.findall(r'#\s*include\s+["<](ftsort\w*\.h)[">]', source)
    guard = re.search(r"#ifndef\s+(\w+)\n\s*#define\s+\1\b", source)
    # Blank out, so that positions stay: the guard, and the lines for C++ only.
    if guard:
        source = source[:guard.start()] + " " * len(guard[0]) + source[guard.end():]
    source = CPLUSPLUS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    overview, items, comment, position = None, [], "", 0
    while True:
        match = re.compile(r"\s*(?://[^\n]*\s*)*").match(source, position)
        position = match.end()
        if position >= len(source):
            break
        match = COMMENT.match(source, position)
        if match:
            comment, position = match[0], match.end()
            if overview is None:
                overview, comment = comment_text(comment), ""
            continue
        try:
            item, position = declaration_at(source, position)
        except ParseError as error:
            raise ParseError(f"{name}: {error}") from None
        if item:
            item.comment = parse_comment(comment) if comment else Comment()
            items.append(item)
        comment = ""
    return Header(name, overview or "", [i for i in includes if i != name], items)


def headers(folder=INCLUDE):
    """All headers of a folder, in the order of the documentation."""
    def rank(path):
        return ORDER.index(path.name) if path.name in ORDER else len(ORDER), path.name

    return [parse(path.read_text(), path.name) for path in sorted(folder.glob("*.h"), key=rank)]


if __name__ == "__main__":
    for header in headers():
        print(header.name, "includes", header.includes)
        for item in header.items:
            print(f"  {item.kind:9} {item.comment.call:10} {item.name}: {item.comment.summary}")
