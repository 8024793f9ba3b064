#!/usr/bin/env python3
"""Builds the documentation site: one folder of HTML pages that works from the disk, search included.

The pages are the README, every other *.md of the root, every docs/*.md, the API reference (made from the comments in
include/*.h), the C examples, and every file of the repository that one of them links to. If `cargo doc` was
run before, its pages are copied into the site. The generator is Sphinx with the theme Furo, because its search
index is a script, which a browser also loads from the disk; it is installed with pip into `.env/` (or
$FTSORT_ENV_DIR), pinned by version and hash. Prints the path of the first page.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import header_api
from header_api import ROOT

ENV = pathlib.Path(os.environ.get("FTSORT_ENV_DIR", ROOT / ".env")).absolute()
CONFIG = ROOT / "site"
OUTPUT = ROOT / "target/site"

# The order of docs/*.md; docs/glossary.md comes with the reference.
SECTIONS = (
    ("Guide", ("building", "packages", "headers", "sorting", "cpp", "fortran", "rust", "python", "command", "external",
               "rounds", "tree", "dgrp", "reliable", "fault-injection", "trace", "from-the-original")),
    ("Design", ("architecture", "failure-model", "evidence", "open-mpi", "papers", "hypercube-sorts")),
    ("Measurements", ("performance", "profile", "scale", "experiments")),
)
GLOSSARY = "glossary"

PICTURES = (".svg", ".png", ".jpg", ".gif")
LARGE = 200_000  # bytes of a file from which on it is not shown

LEXERS = {".c": "c", ".h": "c", ".rs": "rust", ".py": "python", ".sh": "bash", ".toml": "toml", ".json": "json",
          ".yml": "yaml", ".cmake": "cmake"}


# ---- The generator ----------------------------------------------------------------------------------


def generator():
    """The Python with Sphinx in it; installed if it is not there yet."""
    if sys.version_info < (3, 11):
        sys.exit(f"the site needs Python 3.11 or newer, and this is {sys.version.split()[0]}")
    requirements = CONFIG / "requirements.txt"
    key = hashlib.sha256(f"{sys.version} {requirements.read_text()}".encode()).hexdigest()[:8]
    folder = ENV / f"site-{key}"
    python, complete = folder / "bin/python", folder / "complete"
    if complete.exists():
        return python
    print("installing Sphinx ...", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    commands = [
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes",
         "--only-binary", ":all:", "-r", requirements],
    ]
    for command in commands:
        if subprocess.run(command).returncode != 0:
            sys.exit("Sphinx could not be installed: is python3-venv there, and does pip reach an index?")
    complete.touch()
    return python


# ---- Pages of Markdown ------------------------------------------------------------------------------

LINK = re.compile(r"(\]\(|^\[[^\]]+\]:[ \t]+)(?![a-z]+:|#|<)([^)\s#]+)(#[^)\s]*)?", re.M)
FENCE = re.compile(r"^(```+|~~~+).*?^\1[`~]*[ \t]*$", re.M | re.S)


class Staging:
    """The folder of sources that the generator reads, laid out as the repository is."""

    def __init__(self, folder):
        self.folder = folder
        self.wanted = []  # files of the repository that pages link to, without a page yet
        self.pages = {"README.md": "index.md"}  # path in the repository: path in the folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def page_of(self, path):
        """The page for a path of the repository; None if there is none such."""
        if path in self.pages:
            return self.pages[path]
        if path.startswith("include/") and path.endswith(".h"):
            return f"api/{pathlib.PurePath(path).stem}.rst"
        if not (ROOT / path).exists() or path in ("", "."):
            return None
        self.pages[path] = f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"
        self.wanted.append(path)
        return self.pages[path]

    def relink(self, text, origin):
        """The text of a file of the repository with links that fit its place in the folder."""
        here = os.path.dirname(self.pages[origin])

        def target(match):
            path = os.path.normpath(os.path.join(os.path.dirname(origin), match[2]))
            if path.startswith("docs/") and path.endswith(PICTURES):
                return match[0]
            page = self.page_of(path)
            if page is None:
                return match[0]
            anchor = match[3] or "" if page.endswith(".md") and not page.startswith("source/") else ""
            return f"{match[1]}{os.path.relpath(page, here or '.')}{anchor}"

        pieces, end = [], 0
        for fence in FENCE.finditer(text):
            pieces += [LINK.sub(target, text[end:fence.start()]), fence[0]]
            end = fence.end()
        return "".join(pieces) + LINK.sub(target, text[end:])

    def copy(self, origin, more=""):
        text = self.relink((ROOT / origin).read_text(), origin)
        self.write(self.pages[origin], text + more)

    def write_source(self, path):
        """A page that shows a file, or lists a folder."""
        front, full = "---\norphan: true\nnosearch: true\n---\n\n", ROOT / path
        if full.is_dir():
            files = sorted(file for file in full.iterdir() if not file.name.startswith((".", "__")))
            lines = []
            for file in files:
                name = file.name + ("/" if file.is_dir() else "")
                page = None if file.is_dir() else self.page_of(f"{path}/{file.name}")
                link = page and os.path.relpath(page, os.path.dirname(self.pages[path]))
                lines.append(f"- [`{name}`]({link})" if link else f"- `{name}`")
            self.write(self.pages[path], f"{front}# `{path}`\n\n" + "\n".join(lines) + "\n")
            return
        if path.startswith("c_examples/") and path.endswith(".c"):
            front = ""
        self.write(self.pages[path], f"{front}# `{path}`\n\n{shown(full)}")


def lexer_of(path, text):
    if path.name in ("CMakeLists.txt", "Makefile"):
        return "cmake" if path.suffix else "make"
    if text.startswith("#!"):
        return "python" if "python" in text.split("\n", 1)[0] else "bash"
    return LEXERS.get(path.suffix, "none")


def shown(path):
    """A file as a block of code."""
    if path.stat().st_size > LARGE:
        return f"A file of {path.stat().st_size} bytes.\n"
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return "A binary file.\n"
    fence = "`" * max(4, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{{code-block}} {lexer_of(path, text)}\n:force:\n\n{text.rstrip()}\n{fence}\n"


def first_sentence(path):
    """The first sentence of the comment at the top of an example."""
    match = re.match(r"\s*/\*(.*?)\*/|\s*((?://[^\n]*\n)+)", path.read_text(), re.S)
    if not match:
        return ""
    text = header_api.comment_text(f"/*{match[1] or re.sub(r'(?m)^//', '', match[2])}*/")
    return re.sub(rf"^{re.escape(path.name)}:\s*", "", header_api.Comment(text).summary)


def write_examples(staging):
    """The page that lists the examples; one page for each of them."""
    lines = ["# Examples", ""]
    toctree = ["```{toctree}", ":hidden:", ""]
    for path in sorted((ROOT / "c_examples").rglob("*.c"), key=lambda path: (len(path.parts), path)):
        name = str(path.relative_to(ROOT))
        page = staging.page_of(name)
        lines.append(f"- [`{name.removeprefix('c_examples/')}`]({page}): {first_sentence(path)}")
        toctree.append(page.removesuffix(".md"))
    staging.write("examples.md", "\n".join([*lines, "", *toctree, "```", ""]))


def rust_pages():
    """The newest folder that `cargo doc` made, or None."""
    targets = [os.environ.get("CARGO_TARGET_DIR"), ROOT / "target", *ROOT.glob("target/mpi-*")]
    folders = [pathlib.Path(target) / "doc" for target in targets if target]
    return max((folder for folder in folders if folder.is_dir()), key=lambda f: f.stat().st_mtime, default=None)


def write_rust(staging):
    """The page that leads to the pages of `cargo doc`; the folder with these, or None."""
    folder, crates = rust_pages(), []
    for manifest in [ROOT / "Cargo.toml", *sorted(ROOT.glob("crates/*/Cargo.toml"))]:
        text = manifest.read_text()
        name = re.search(r'^\[lib\][^\[]*?^name = "([^"]+)"', text, re.M) or re.search(r'^name = "([^"]+)"', text, re.M)
        summary = re.search(r'^description = "([^"]+)"', text, re.M)
        name = name[1].replace("-", "_")
        if folder and (folder / name / "index.html").exists():
            crates.append((name, summary[1] if summary else ""))
    if not crates:
        return None
    items = [f'- <a href="rust/{name}/index.html"><code>{name}</code></a>' + (f": {about}" if about else "")
             for name, about in crates]
    staging.write("rust.md", "# Rust documentation\n\nThe pages that `cargo doc` made from the sources.\n\n"
                  + "\n".join(items) + "\n")
    return folder


def toctree(caption, pages):
    pages = "\n".join(page.removesuffix(".md") for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def navigation(docs, rust):
    """The toctrees: all pages in their order."""
    trees = [toctree(caption, [f"docs/{stem}.md" for stem in stems]) for caption, stems in SECTIONS]
    reference = ["api/index", "examples", *(["rust"] if rust else []), f"docs/{GLOSSARY}.md"]
    project = [path.name for path in docs if path.parent == ROOT]
    return "".join([*trees, toctree("Reference", reference), toctree("Project", project)])


# ---- The API reference ------------------------------------------------------------------------------

SECTION_TITLES = {"function": "Functions", "struct": "Structures", "callback": "Callbacks",
                  "enum": "Enumerations", "type": "Types", "macro": "Macros"}
DIRECTIVES = {"function": "function", "struct": "struct", "callback": "type", "enum": "enum", "type": "type",
              "macro": "macro", "member": "member", "enumerator": "enumerator"}


def rst_inline(text):
    """A paragraph of a comment as reStructuredText."""
    parts = []
    for kind, words in header_api.inline(text):
        parts.append(f"``{words.strip()}``" if kind == "code" else re.sub(r"([\\*`_|])", r"\\\1", words))
    joined = "\\ ".join(parts)
    # A line that starts like a list, a field or a directive is text all the same.
    return "\\" + joined if re.match(r"[-+:.>]|\w+[.)]\s", joined) else joined


def rst_blocks(text):
    """The paragraphs, lists and code of a comment; a list of lines."""
    lines = []
    for kind, content in header_api.blocks(text):
        if kind == "paragraph":
            lines += [rst_inline(content), ""]
        elif kind == "list":
            lines += [f"- {rst_inline(item)}" for item in content] + [""]
        else:
            lexer = "c" if re.search(r"^\w[\w *]*\(.*\);", content, re.M) else "none"
            lines += [f".. code-block:: {lexer}", "   :force:", ""]
            lines += [f"   {line}".rstrip() for line in content.split("\n")] + [""]
    return lines


def rst_comment(item):
    comment, lines = item.comment, []
    if comment.call:
        lines += [".. rst-class:: call-kind", "", f"[{comment.call[0].upper()}] {comment.call}", ""]
    lines += rst_blocks(comment.text)
    if item.value:
        lines += [f"Value: ``{item.value}``", ""]
    for direction, name, text in comment.params:
        direction = f"({direction.replace(',', ', ')}) " if "out" in direction else ""
        lines.append(f":param {name}: {direction}{rst_inline(text)}")
    for value, text in comment.retvals:
        lines.append(f":retval {value}: {rst_inline(text)}")
    if comment.returns:
        lines.append(f":returns: {rst_inline(comment.returns)}")
    return lines + [""]


def rst_item(item, margin=""):
    """A declaration with its comment and its members; a list of lines."""
    lines = [f"{margin}.. c:{DIRECTIVES[item.kind]}:: {item.declaration}"]
    if margin:
        lines.append(f"{margin}   :no-contents-entry:")
    lines.append("")
    lines += [f"{margin}   {line}".rstrip() for line in rst_comment(item)]
    for member in item.members:
        lines += rst_item(member, margin + "   ")
    return lines


def sentence(text):
    """A title as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def underlined(title, mark):
    return [title, mark * len(title), ""]


def rst_header(header):
    """The page of a header."""
    lines = underlined(header.name, "=") + [rst_inline(sentence(header.title)), ""]
    if header.includes:
        lines += ["Includes " + ", ".join(f"``{name}``" for name in header.includes) + ".", ""]
    lines += rst_blocks(header.body)
    functions = header.of_kind("function")
    if functions:
        lines += underlined("Overview", "-")
        lines += [f"- ``{item.name}``: {rst_inline(item.comment.summary)}" for item in functions] + [""]
    for kind in header_api.KINDS:
        items = header.of_kind(kind)
        if items:
            lines += underlined(SECTION_TITLES[kind], "-")
            for item in items:
                lines += rst_item(item)
    return "\n".join(lines) + "\n"


def write_api(staging):
    headers = header_api.headers()
    for header in headers:
        staging.write(f"api/{pathlib.PurePath(header.name).stem}.rst", rst_header(header))
    lines = underlined("C API", "=")
    lines += ["The headers of the library. Every function, structure, member and constant is also in the",
              ":ref:`index <genindex>`.", ""]
    lines += [f"- ``{header.name}``: {rst_inline(header.title)}" for header in headers]
    lines += ["", ".. toctree::", "   :hidden:", ""]
    lines += [f"   {header.name} <{pathlib.PurePath(header.name).stem}>" for header in headers]
    staging.write("api/index.rst", "\n".join(lines) + "\n")


# ---- The site ---------------------------------------------------------------------------------------


def stage(folder):
    """Writes all sources; the folder of the Rust pages, if there is one."""
    staging = Staging(folder)
    docs = sorted([*(ROOT / "docs").rglob("*.md"), *(path for path in ROOT.glob("*.md") if path.name != "README.md")])
    for path in docs:
        name = str(path.relative_to(ROOT))
        staging.pages[name] = name
    for path in (ROOT / "docs").rglob("*"):
        if path.is_file() and path.suffix in PICTURES:
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    write_api(staging)
    write_examples(staging)
    rust = write_rust(staging)
    for path in docs:
        staging.copy(str(path.relative_to(ROOT)))
    staging.copy("README.md", navigation(docs, rust is not None))
    while staging.wanted:
        staging.write_source(staging.wanted.pop())
    return rust


def build(output=OUTPUT, strict=False):
    """Builds the site into a folder, which is replaced; returns whether that went well."""
    python = generator()
    source, draft = output.with_name(output.name + "-source"), output.with_name(output.name + "-draft")
    shutil.rmtree(draft, ignore_errors=True)
    rust = stage(source)
    command = [python, "-m", "sphinx", "--quiet", "-b", "html", "-c", CONFIG, "-d", source.with_name("site-doctrees"),
               "-E", *(["-W", "--keep-going"] if strict else []), source, draft]
    if subprocess.run(command).returncode != 0:
        return False
    if (source / "docs/pictures").is_dir():  # also for pictures in HTML, which the generator does not copy
        shutil.copytree(source / "docs/pictures", draft / "docs/pictures", dirs_exist_ok=True)
    if rust:
        shutil.copytree(rust, draft / "rust")
    shutil.rmtree(output, ignore_errors=True)
    draft.rename(output)
    return True


def main():
    parser = argparse.ArgumentParser(description="Builds the documentation site.")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT, help="the folder to write (target/site)")
    parser.add_argument("--strict", action="store_true", help="fail if the generator warns, as of a broken link")
    options = parser.parse_args()
    output = options.output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    if not build(output, options.strict):
        sys.exit("the site could not be built")
    print(output / "index.html")


if __name__ == "__main__":
    main()
