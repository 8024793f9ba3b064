"""Sphinx configuration of the documentation site; scripts/build_site.py runs it.

Beside the settings it makes links of code words: the name of a C function, type, member or constant leads to
its place in the API reference, the path of a page or of an example to that page.
"""

import pathlib
import re

from docutils import nodes

ROOT = pathlib.Path(__file__).resolve().parent.parent

project = "ftsort"
version = release = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
author = "the ftsort developers"
project_copyright = author

extensions = ["myst_parser"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = []
highlight_language = "none"
myst_heading_anchors = 6
primary_domain = "c"
c_maximum_signature_line_length = 72
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"ftsort {version}"
html_static_path = [str(pathlib.Path(__file__).parent / "static")]
html_css_files = ["style.css"]
html_js_files = ["local.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False


def object_links(app):
    """The place of every C name: (page, anchor)."""
    links = {}
    for name, _, kind, page, anchor, _ in app.env.get_domain("c").get_objects():
        if kind == "functionParam":
            continue
        links[name] = page, anchor
        if kind == "enumerator":
            links.setdefault(name.rpartition(".")[2], (page, anchor))
    return links


def page_links(app):
    """The pages that a path in the text can mean."""
    links = {}
    for page in app.env.found_docs:
        links[f"{page}.md"] = page
        if page.startswith("api/") and page != "api/index":
            header = page.removeprefix("api/") + ".h"
            links[header] = links[f"include/{header}"] = page
        if page.startswith("source/"):
            links[page.removeprefix("source/")] = page
            if page.startswith("source/c_examples/"):
                links.setdefault(page.rpartition("/")[2], page)
    return links


def link_code(app, doctree, docname):
    """Wraps code words that name something in a link to it."""
    objects, pages = object_links(app), page_links(app)
    for node in list(doctree.findall(nodes.literal)):
        parent = node.parent
        if any(isinstance(up, (nodes.reference, nodes.title)) for up in (parent, parent.parent)):
            continue
        text = node.astext()
        page, anchor = objects.get(text.removesuffix("()"), (pages.get(text), None))
        if page is None or (page == docname and anchor is None):
            continue
        target = app.builder.get_relative_uri(docname, page) + (f"#{anchor}" if anchor else "")
        link = nodes.reference("", "", internal=True, refuri=target)
        parent.replace(node, link)
        link += node


def setup(app):
    app.connect("doctree-resolved", link_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
