"""Tests the check of licences, sources and versions of dependencies."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import dependencies


def metadata(*packages):
    """Packages as cargo describes them: name, version, licence, source, kind of use by ftsort (None: in the library)."""
    described = [("ftsort", "1.0.0", "MIT", None, None), *packages]
    duplicates = [(name, version, "MIT", dependencies.REGISTRY, "dev")
                  for name in dependencies.DUPLICATES for version in ("1.0.0", "2.0.0")]
    described += duplicates
    packages = [{"id": f"{name} {version}", "name": name, "version": version, "license": licence, "source": source}
                for name, version, licence, source, _ in described]
    uses = [{"pkg": f"{name} {version}", "dep_kinds": [{"kind": kind}]} for name, version, _, _, kind in described[1:]]
    nodes = [{"id": one["id"], "deps": uses if one["name"] == "ftsort" else []} for one in packages]
    return {"packages": packages, "resolve": {"nodes": nodes}}


class Dependencies(unittest.TestCase):
    def test_evaluates_licence_expressions(self):
        for licence in ("MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "Apache-2.0 / MIT", "(MIT OR GPL-3.0) AND Unicode-3.0",
                        "GPL-3.0 AND ISC OR MIT", "Apache-2.0 WITH LLVM-exception OR GPL-2.0"):
            self.assertTrue(dependencies.is_allowed(licence), licence)
        for licence in (None, "", "GPL-3.0", "MIT AND GPL-3.0", "MIT OR", "(MIT", "MIT)", "(MIT OR ISC) AND GPL-3.0",
                        "GPL-2.0 WITH LLVM-exception", "MITX"):
            self.assertFalse(dependencies.is_allowed(licence), licence)

    def test_finds_each_violation(self):
        registry = dependencies.REGISTRY
        self.assertEqual(dependencies.violations(metadata(("a", "1.0.0", "MIT", registry, None))), [])
        for packages, word in [
            ([("a", "1.0.0", "GPL-3.0", registry, "dev")], "licence"),
            ([("a", "1.0.0", "MIT", "git+https://example.org/a", None)], "source"),
            ([("a", "1.0.0", "MIT", registry, None), ("a", "2.0.0", "MIT", registry, None)], "versions"),
            ([("cbindgen", "1.0.0", "MPL-2.0", registry, None)], "licence"),
        ]:
            found = dependencies.violations(metadata(*packages))
            self.assertEqual(len(found), 1, found)
            self.assertIn(word, found[0])
        self.assertEqual(dependencies.violations(metadata(("cbindgen", "1.0.0", "MPL-2.0", registry, "dev"))), [])

    def test_an_exception_that_is_not_needed_is_reported(self):
        without = metadata()
        without["packages"] = [one for one in without["packages"] if one["id"] != "syn 2.0.0"]
        self.assertEqual(dependencies.unused_exceptions(metadata()), [])
        self.assertIn("remove it", dependencies.unused_exceptions(without)[0])


if __name__ == "__main__":
    unittest.main()
