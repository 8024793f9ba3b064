#!/usr/bin/env python3
"""Writes the manual pages: man.py DIR makes DIR/man1 and DIR/man3.

Section 3 has ftsort(3), which lists the headers and functions, and one page for every function, structure,
callback, enumeration and type of include/*.h, made from the comments there. Section 1 has ftsort-mpirun(1), made from
that script. The man folders in DIR are replaced. Needs the standard library alone.
"""

import argparse
import functools
import pathlib
import re
import shutil
import textwrap

import header_api
import settings
from header_api import ROOT

CALLS = {
    "collective": "[C] This function is collective: all surviving ranks of the group call it, in the same order.",
    "local": "[L] This function is local: a rank calls it by itself.",
}
ESCAPES = {"\\": "\\e", "-": "\\-", "^": "\\(ha", "~": "\\(ti", "`": "\\(ga", "'": "\\(aq", '"': "\\(dq"}


@functools.cache
def version_and_date():
    """The version of the library, and the date of its release."""
    version = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    citation = ROOT / "CITATION.cff"
    date = re.search(r"^date-released: (\S+)", citation.read_text(), re.M) if citation.exists() else None
    return version, date[1] if date else ""


# ---- roff -------------------------------------------------------------------------------------------


def escaped(text, keep=""):
    """Text as roff shows it character by character."""
    text = "".join(c if c in keep else ESCAPES.get(c, c) for c in text)
    text = "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text.startswith(".") else text


def words(text):
    """A paragraph of a comment in lines of at most 80 bytes: names are bold, sentences start a line."""
    shown = []
    for kind, part in header_api.inline(text):
        # \\% keeps a name in one piece.
        shown.append(f"\\fB\\%{escaped(part)}\\fR" if kind == "code" else escaped(part, keep="-'\""))
    lines = []
    for sentence in re.split(r"(?<=[a-z0-9)R][.]) (?=[A-Z\\])", "".join(shown)):
        lines += textwrap.wrap(sentence, 80, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def code(text):
    """Lines that are shown as they are."""
    lines = [escaped(line) for line in text.split("\n")]
    return [".PP", ".in +4n", ".EX", *lines, ".EE", ".in"]


def blocks(text):
    """The paragraphs, lists and code of a comment; a list of lines."""
    lines = []
    for kind, content in header_api.blocks(text):
        if kind == "paragraph":
            lines += [".PP", words(content)]
        elif kind == "list":
            for item in content:
                lines += [".IP \\(bu 2", words(item)]
        else:
            lines += code(content)
    return lines


def without_first_break(lines):
    """A section starts with a paragraph of its own accord."""
    return lines[1:] if lines and lines[0] == ".PP" else lines


def section(title, lines):
    return [f".SH {title}", *without_first_break(lines)] if lines else []


def tagged(pairs):
    """A list of names with explanations."""
    lines = []
    for name, text in pairs:
        lines += [".TP", name, *without_first_break(blocks(text) if isinstance(text, str) else text)]
    return lines


def page(name, number, summary, sections):
    version, date = version_and_date()
    lines = [f'.TH {name.upper()} {number} "{date}" "ftsort {version}" "ftsort Manual"', ".ad l",
             *section("NAME", [f"{name} \\- {words(summary).replace(chr(10), ' ')}"])]
    for title, content in sections:
        lines += section(title, content)
    return "\n".join(lines) + "\n"


# ---- Pages of section 3 -----------------------------------------------------------------------------


def short(summary):
    """A summary for the line of the name, which has no capital and no full stop."""
    summary = summary.rstrip(".").replace("`", "")
    first, _, rest = summary.partition(" ")
    return f"{first.lower()} {rest}" if re.fullmatch(r"[A-Z][a-z]*,?", first) else summary


def parameters_of(declaration):
    """A prototype in lines of at most 78 characters."""
    head, _, inside = declaration.partition("(")
    if declaration.startswith(head + "(*"):
        name, _, inside = inside.partition(")(")
        head = f"{head}({name})"
    pieces = re.split(r",\s*", inside.removesuffix(")"))
    lines, line = [], head + "("
    margin = " " * min(len(line), 30)
    for index, piece in enumerate(pieces):
        piece += ")" if index == len(pieces) - 1 else ","
        if len(line) + len(piece) > 76 and line.strip() and not line.endswith("("):
            lines.append(line.rstrip())
            line = margin
        line += piece + " "
    return [*lines, line.rstrip()]


def synopsis(header, item):
    lines = [f"#include <{header.name}>", ""]
    if item.kind == "function":
        shown = parameters_of(item.declaration)
    elif item.kind == "callback":
        shown = parameters_of(f"typedef {item.declaration}")
    elif item.kind == "struct" and item.members:
        shown = [f"typedef struct {item.name} {{", *(f"    {m.declaration};" for m in item.members), f"}} {item.name}"]
    elif item.kind == "enum":
        shown = [f"typedef enum {item.name} {{", *(f"    {m.declaration}," for m in item.members), f"}} {item.name}"]
    else:
        shown = [f"typedef {'struct ' + item.name if item.kind == 'struct' else item.declaration}"]
        shown[0] += f" {item.name}" if item.kind == "struct" else ""
    shown[-1] += ";"
    return [".nf", *(f"\\fB{escaped(line)}\\fR" if line else "" for line in lines + shown), ".fi"]


def texts_of(item):
    """Everything that is said about an item."""
    comment = item.comment
    return " ".join([comment.text, comment.returns, *(text for _, _, text in comment.params), item.declaration,
                     *(f"{m.declaration} {m.comment.text}" for m in item.members)])


def see_also(item, known):
    """The pages of the functions and types that an item mentions."""
    mentioned = sorted({name for name in re.findall(r"\bftsort_\w+", texts_of(item)) if name in known} - {item.name})
    pages = ["\\fBftsort\\fR(3)", *(f"\\fB{escaped(name)}\\fR(3)" for name in mentioned)]
    return [",\n".join(pages)]


def described(item):
    comment = item.comment
    lines = blocks(comment.text)
    if comment.call:
        lines += [".PP", words(CALLS[comment.call])]
    return lines


def item_page(header, item, known):
    """The page of one declaration."""
    comment = item.comment
    parameters = []
    for direction, name, text in comment.params:
        mark = f" ({direction.replace(',', ', ')})" if "out" in direction else ""
        parameters.append((f"\\fI{escaped(name)}\\fR{mark}", text))
    returns = blocks(comment.returns) + tagged((f"\\fB{escaped(value)}\\fR", text) for value, text in comment.retvals)
    members = tagged((f"\\fB{escaped(m.declaration)}\\fR", m.comment.text) for m in item.members)
    return page(item.name, 3, short(comment.summary), [
        ("SYNOPSIS", synopsis(header, item)),
        ("DESCRIPTION", described(item)),
        ("PARAMETERS", tagged(parameters)),
        ("RETURN VALUE", returns),
        ("VALUES" if item.kind == "enum" else "MEMBERS", members),
        ("SEE ALSO", see_also(item, known)),
    ])


def overview_page(headers):
    """ftsort(3): the first comments of the headers, and lists of their declarations."""
    core = headers[0]
    includes = [f"#include <{header.name}>" for header in headers]
    group = next((item for item in core.items if item.name == "ftsort"), None)
    sections = [("SYNOPSIS", [".nf", *(f"\\fB{line}\\fR" for line in includes), ".fi"]),
                ("DESCRIPTION", blocks(core.body))]
    if group:
        sections.append(("GROUPS", [".PP", "\\fBtypedef struct ftsort ftsort;\\fR", *blocks(group.comment.text)]))
    for header in headers:
        title = header.title[:1].upper() + header.title[1:].rstrip(".")
        lines = blocks(f"{title}.\n\n{header.body}") if header is not core else []
        pairs = [(f"\\fB{escaped(item.name)}\\fR(3)", [words(item.comment.summary)])
                 for item in header.of_kind("function")]
        sections.append((f"FUNCTIONS OF {header.name.upper()}", lines + tagged(pairs)))
    macros = [(f"\\fB{escaped(item.declaration)}\\fR", [words(item.comment.summary)])
              for header in headers for item in header.of_kind("macro") if item.comment.summary]
    sections.append(("MACROS", tagged(macros)))
    types = [item for header in headers for kind in ("struct", "callback", "enum", "type")
             for item in header.of_kind(kind) if item.name != "ftsort"]
    sections.append(("TYPES", tagged((f"\\fB{escaped(item.name)}\\fR(3)", [words(item.comment.summary)])
                                     for item in types)))
    sections.append(("SEE ALSO", ["\\fBftsort\\-mpirun\\fR(1), \\fBmpirun\\fR(1)"]))
    return page("ftsort", 3, short(core.title), sections)


# ---- ftsort-mpirun(1) -------------------------------------------------------------------------------


def launcher_page(script):
    """The page of the launcher: its comments, and the variables that it reads with their defaults."""
    text = script.read_text()
    first = re.match(r"#![^\n]*\n((?:#[^\n]*\n)+)", text)[1]
    about = re.sub(r"(?m)^# ?", "", first).strip()
    summary, _, rest = about.partition(". ") if ". " in about.split("\n")[0] else about.partition("\n")
    summary = re.sub(r"^ftsort-mpirun:\s*", "", summary)
    notes = re.findall(r"(?m)((?:^# [^\n]*\n)+)(?!#)", text[text.index(first) + len(first):])
    notes = [note for note in notes if note not in (settings.BEGIN, settings.END)]
    notes = [".PP\n" + words(header_api.joined(re.sub(r"(?m)^# ?", "", note))) for note in notes]
    variables = re.findall(r'export (\w+)="\$\{\1-([^}]*)\}"', text)
    pairs = [(f"\\fB{escaped(name)}\\fR", f"Default: {value}") for name, value in variables]
    pairs.append(("\\fBMPIRUN\\fR", "The launcher that is run. Default: mpirun"))
    return page("ftsort-mpirun", 1, short(summary), [
        ("SYNOPSIS", ["\\fBftsort\\-mpirun\\fR [\\fImpirun\\-option\\fR ...] \\fIprogram\\fR [\\fIargument\\fR ...]"]),
        ("DESCRIPTION", [*blocks(rest), *notes]),
        ("ENVIRONMENT", [".PP", "A variable that is set already keeps its value. In an allocation of Slurm, SLURM_EXPORT_ENV "
                         "and SLURM_OVERLAP are set.", *tagged(pairs)]),
        ("SEE ALSO", ["\\fBmpirun\\fR(1), \\fBftsort\\fR(3), \\fBftsort_prepare\\fR(3)"]),
    ])


def pages(include=header_api.INCLUDE):
    """All pages by their names, as man3/ftsort.3."""
    headers = header_api.headers(include)
    items = [(header, item) for header in headers for item in header.items
             if item.kind != "macro" and item.name != "ftsort"]
    known = {item.name for _, item in items}
    found = {"man3/ftsort.3": overview_page(headers),
             "man1/ftsort-mpirun.1": launcher_page(ROOT / "scripts/ftsort-mpirun")}
    for header, item in items:
        found[f"man3/{item.name}.3"] = item_page(header, item, known)
    return found


def write(folder):
    """Writes all pages; returns their paths."""
    for name in ("man1", "man3"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    paths = []
    for name, text in pages().items():
        paths.append(folder / name)
        paths[-1].write_text(text)
    return paths


def main():
    parser = argparse.ArgumentParser(description="Writes the manual pages.")
    parser.add_argument("folder", type=pathlib.Path, help="where man1 and man3 are made")
    print(len(write(parser.parse_args().folder)), "manual pages")


if __name__ == "__main__":
    main()
