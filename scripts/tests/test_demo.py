"""Tests the progress that the demonstration shows."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import demo

OUTPUT = """protected
round 1 of 3
failed 2
executor 2 is 3
replay 2 of 3
restored 2 by 3 from a copy
round 2 of 3
recovered
finished 0 seconds 1.5 replayed 1 peak 2048
"""


class Progress(unittest.TestCase):
    def test_counts_rounds_failures_and_recoveries(self):
        progress = demo.Progress(4)
        messages = [progress.read(line) for line in OUTPUT.splitlines()]
        self.assertEqual((progress.round, progress.rounds, progress.replays, progress.restored), (2, 3, 1, 1))
        self.assertEqual((progress.failed, progress.executors), ([2], {2: 3}))
        self.assertEqual((progress.seconds(), progress.peak()), (1.5, 2048))
        self.assertEqual(messages[0], "the input is protected")
        self.assertEqual(messages[7], "the blocks of failed ranks are recovered")
        self.assertEqual(messages[2], "rank 2 was killed; 3 of 4 ranks go on")
        self.assertEqual(messages[5], "rank 3 has restored block 2 from a copy")

    def test_shows_errors_and_no_other_output(self):
        progress = demo.Progress(4)
        self.assertEqual(progress.read("rank 1: cannot write"), "rank 1: cannot write")
        self.assertIsNone(progress.read("some other line"))
        self.assertIsNone(progress.read(""))


if __name__ == "__main__":
    unittest.main()
