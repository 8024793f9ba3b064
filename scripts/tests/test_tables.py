"""Tests the tables of the scripts, and the tables of the documentation."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tables

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Tables(unittest.TestCase):
    def test_reads_the_rows_that_it_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "new", "table.csv")
            tables.write(path, [{"a": 1, "b": "x, y"}, {"a": 2.5, "b": ""}], "Made by: a test")
            self.assertEqual(tables.read_numbers(path), [{"a": 1, "b": "x, y"}, {"a": 2.5, "b": None}])
            self.assertEqual(tables.comment_of(path), "Made by: a test")

    def test_continues_a_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "table.csv")
            for value in (1, 2):
                with tables.Appender(path, ["a"]) as file:
                    file.add({"a": value})
            self.assertEqual([row["a"] for row in tables.read(path)], ["1", "2"])

    def test_every_table_of_the_documentation_names_its_command(self):
        files = list((ROOT / "docs" / "data").glob("*.csv"))
        self.assertTrue(files)
        for file in files:
            self.assertTrue(tables.comment_of(file).startswith("Made by: "), file.name)
            self.assertTrue(tables.read(file), file.name)

    def test_every_picture_is_small_and_follows_the_colour_scheme(self):
        files = list((ROOT / "docs" / "pictures").glob("*.svg"))
        self.assertTrue(files)
        for file in files:
            self.assertLess(file.stat().st_size, 100_000, file.name)
            self.assertRegex(file.read_text(encoding="utf-8"), r"prefers-color-scheme:\s*dark", file.name)


if __name__ == "__main__":
    unittest.main()
