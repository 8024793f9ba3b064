"""Tests the conversion of trace files to a table."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import timeline

TRACE = """[
{"ph":"M","name":"process_name","pid":3,"tid":0,"args":{"name":"rank 3"}},
{"ph":"B","name":"whole sort","pid":3,"tid":0,"ts":1000000,"args":{"call":1}},
{"ph":"X","name":"merge","pid":3,"tid":0,"ts":1002000,"dur":5000,"args":{"round":1,"epoch":0}},
{"ph":"X","name":"send","pid":3,"tid":0,"ts":1002500,"dur":0,"args":{"peer":1}},
{"ph":"i","name":"failure","pid":3,"tid":0,"s":"t","ts":1008000,"args":{"round":1,"rounds":3,"epoch":0,"rank":2}},
{"ph":"X","name":"exch"""


class Timeline(unittest.TestCase):
    def rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.3.json")
            path.write_text(TRACE, encoding="utf-8")
            return timeline.rows_of({3: timeline.events_of(path)})

    def test_reads_the_trace_of_a_killed_rank(self):
        span, moment = self.rows()
        self.assertEqual((span["name"], span["begin_ms"], span["end_ms"]), ("merge", "2.00", "7.00"))
        self.assertEqual((moment["name"], moment["of"], moment["begin_ms"]), ("failure", 2, "8.00"))

    def test_leaves_out_short_spans_and_no_moment(self):
        self.assertEqual([row["name"] for row in timeline.without_short_spans(self.rows(), 6)], ["failure"])


if __name__ == "__main__":
    unittest.main()
