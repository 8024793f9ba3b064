"""Tests of scripts/header_api.py and of the pages that are made from it: python3 -m unittest discover scripts/tests"""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import build_site  # noqa: E402
import check_site  # noqa: E402
import header_api  # noqa: E402
import man  # noqa: E402

SAMPLE = r"""/* sample.h: an example.
 *
 * Its text.
 *   code(1);
 */
#ifndef SAMPLE_H
#define SAMPLE_H

/* Generated: do not edit. */

#include <stddef.h>
#include "ftsort.h"

/* No limit. */
#define SAMPLE_NONE UINT32_MAX /* sample_options.pair */

#define SAMPLE_PLAIN(T, KIND) \
  { sizeof(T), (KIND) }

/**
 * Colours.
 */
typedef enum sample_colour {
  /**
   * Red; not green, not blue.
   */
  SAMPLE_RED = 1,
  SAMPLE_GREEN,
} sample_colour;

/**
 * Hidden.
 */
typedef struct sample sample;

/** A number. */
typedef int32_t sample_status;

/**
 * Compares.
 */
typedef int (*sample_fn)(void *user,
                         const void *a);

typedef struct sample_options {
  /**
   * First.
   */
  size_t struct_size;
  const struct sample *const *list;
  int32_t pair[2];
  int (*call)(void *user, int x);
} sample_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes `it` of i.e. nothing: slowly. [C]
 *
 * - one
 * - two,
 *   longer
 *
 * \param[in] list what is read,
 * in two lines.
 * \param[out] out the sum.
 * \retval -1 failed.
 * \return 0; see \p out.
 */
sample_status sample_make(const struct sample *const *list,
                          int (*call)(void *user, int x), double out[3]);

/** Ends. [L] */
void sample_end(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SAMPLE_H */
"""


class Parsing(unittest.TestCase):
    def setUp(self):
        self.header = header_api.parse(SAMPLE, "sample.h")
        self.items = {item.name: item for item in self.header.items}

    def test_finds_every_declaration_in_order(self):
        kinds = [(item.kind, item.name) for item in self.header.items]
        self.assertEqual(kinds, [
            ("macro", "SAMPLE_NONE"), ("macro", "SAMPLE_PLAIN"), ("enum", "sample_colour"), ("struct", "sample"),
            ("type", "sample_status"), ("callback", "sample_fn"), ("struct", "sample_options"),
            ("function", "sample_make"), ("function", "sample_end")])

    def test_reads_the_first_comment_and_the_includes(self):
        self.assertEqual(self.header.title, "an example.")
        self.assertEqual(header_api.blocks(self.header.body), [("paragraph", "Its text."), ("code", "code(1);")])
        self.assertEqual(self.header.includes, ["ftsort.h"])

    def test_reads_members_and_enumerators(self):
        members = [(member.name, member.declaration) for member in self.items["sample_options"].members]
        self.assertEqual(members, [
            ("struct_size", "size_t struct_size"), ("list", "const struct sample *const *list"),
            ("pair", "int32_t pair[2]"), ("call", "int (*call)(void *user, int x)")])
        colours = self.items["sample_colour"].members
        self.assertEqual([colour.declaration for colour in colours], ["SAMPLE_RED = 1", "SAMPLE_GREEN"])
        self.assertEqual([colour.name for colour in colours], ["SAMPLE_RED", "SAMPLE_GREEN"])
        self.assertEqual(colours[0].comment.text, "Red; not green, not blue.")
        self.assertEqual(colours[1].comment.text, "")

    def test_takes_a_comment_apart(self):
        comment = self.items["sample_make"].comment
        self.assertEqual(comment.call, "collective")
        self.assertEqual(comment.summary, "Makes `it` of i.e. nothing: slowly.")
        self.assertEqual(comment.params, [("in", "list", "what is read, in two lines."), ("out", "out", "the sum.")])
        self.assertEqual(comment.retvals, [("-1", "failed.")])
        self.assertEqual(comment.returns, "0; see `out`.")
        self.assertEqual(header_api.blocks(comment.text)[1], ("list", ["one", "two, longer"]))
        self.assertEqual(self.items["sample_end"].comment.call, "local")

    def test_names_parameters(self):
        self.assertEqual(self.items["sample_make"].parameters, ["list", "call", "out"])
        self.assertEqual(self.items["sample_end"].parameters, [])
        self.assertEqual(self.items["sample_fn"].parameters, ["user", "a"])
        self.assertEqual(self.items["SAMPLE_PLAIN"].parameters, ["T", "KIND"])
        self.assertEqual(self.items["SAMPLE_NONE"].value, "UINT32_MAX")

    def test_rejects_a_construct_that_it_does_not_know(self):
        with self.assertRaisesRegex(header_api.ParseError, "bad.h: line 2"):
            header_api.parse("/* x */\nint a = 1;\n", "bad.h")

    def test_divides_text_into_words_and_code(self):
        self.assertEqual(header_api.inline("see `x` or ftsort_run()"),
                         [("text", "see "), ("code", "x"), ("text", " or "), ("code", "ftsort_run()")])


class RealHeaders(unittest.TestCase):
    def test_no_function_of_the_headers_is_missed(self):
        for path in header_api.INCLUDE.glob("*.h"):
            text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            names = set(re.findall(r"\b(ftsort_\w+)\s*\((?=[^;{}]*\)\s*;)", text))
            header = header_api.parse(path.read_text(), path.name)
            self.assertLessEqual(names, {item.name for item in header.items}, path.name)

    def test_no_line_of_a_manual_page_is_an_accidental_request(self):
        requests = {"TH", "SH", "PP", "TP", "IP", "nf", "fi", "in", "EX", "EE", "ad"}
        for name, text in man.pages().items():
            for line in text.split("\n"):
                if line.startswith((".", "'")):
                    self.assertIn(line[1:].split(" ")[0], requests, f"{name}: {line}")


class Navigation(unittest.TestCase):
    def test_every_document_has_a_place_in_the_navigation(self):
        listed = [stem for _, stems in build_site.SECTIONS for stem in stems] + [build_site.GLOSSARY]
        self.assertEqual(sorted(listed), sorted(path.stem for path in (ROOT / "docs").glob("*.md")))


class Links(unittest.TestCase):
    def test_links_follow_files_to_their_pages(self):
        staging = build_site.Staging(pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())))
        staging.pages["docs/rounds.md"] = "docs/rounds.md"
        text = ("[a](../README.md#x) [b](../include/ftsort.h#L3) [c](../c_examples/hello.c) [d](rounds.md#y)"
                " [e](https://mpi-forum.org) [f](#z)\n```\n[g](../README.md)\n```\n")
        self.assertEqual(staging.relink(text, "docs/rounds.md"), (
            "[a](../index.md#x) [b](../api/ftsort.rst) [c](../source/c_examples/hello.c.md) [d](rounds.md#y)"
            " [e](https://mpi-forum.org) [f](#z)\n```\n[g](../README.md)\n```\n"))

    def test_broken_links_and_missing_anchors_are_found(self):
        site = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (site / "a.html").write_text('<p id="here"><a href="b.html#there"></a><a href="#here"></a><img src="c.png">')
        (site / "b.html").write_text('<a href="a.html#here"></a><a href="https://mpi-forum.org"></a>')
        self.assertEqual(check_site.broken_links(site), [
            "a.html: b.html#there: the page has no such anchor", "a.html: c.png: there is no such file"])


if __name__ == "__main__":
    unittest.main()
