"""Tests that the set-up and the build decide in the same way whether an MPI has ULFM."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import setup

USED = re.compile(r"\bMPIX_\w+")


def in_sources():
    """Returns the MPIX functions that the Rust sources call or import."""
    found = set()
    for file in (setup.ROOT / "src").rglob("*.rs"):
        found |= set(re.findall(r"\bMPIX_Comm_\w+(?=\(| as )", file.read_text(encoding="utf-8")))
    return found


class Probe(unittest.TestCase):
    def setUp(self):
        self.probe = set(USED.findall(setup.ULFM_PROBE.read_text(encoding="utf-8")))

    def test_uses_every_function_that_the_sources_call(self):
        self.assertTrue(in_sources())
        self.assertLessEqual(in_sources(), self.probe)

    def test_is_the_probe_of_the_build(self):
        build = (setup.ROOT / "build.rs").read_text(encoding="utf-8")
        self.assertIn('include_str!("src/ulfm/probe.c")', build)


if __name__ == "__main__":
    unittest.main()
