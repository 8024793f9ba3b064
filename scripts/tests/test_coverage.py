"""Tests the choice of the lines that the coverage counts."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import coverage

SOURCE = """fn commit() {
    if mutant(Mutant::One) {
        skip();
    }
    if finished || mutant(Mutant::Two) {
        end();
    }
    let next = if mutant(Mutant::Three) {
        old
    } else {
        new
    };
    match mutant(Mutant::Four) {
        true => verdict,
        false => confirmed,
    }
}

#[cfg(test)]
mod tests {
    fn helper() {}
}
"""


class Coverage(unittest.TestCase):
    def test_leaves_out_bodies_of_mutants_and_unit_tests(self):
        self.assertEqual(coverage.of_tests_or_mutants(SOURCE), {3, 9, 14, *range(19, 23)})

    def test_counts_a_file_for_its_innermost_module(self):
        self.assertEqual(coverage.module_of("engine/redundancy/versions.rs"), "engine/redundancy")
        self.assertEqual(coverage.module_of("engine/commit.rs"), "engine")
        self.assertEqual(coverage.module_of("faults.rs"), "faults.rs")
        self.assertIsNone(coverage.module_of("verify/mask.rs"))
        self.assertIsNone(coverage.module_of("tree/testing.rs"))


if __name__ == "__main__":
    unittest.main()
