"""Tests that hangs are excused only if the memory of Open MPI is laid out as queues.py expects."""

import contextlib
import io
import pathlib
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import launch
import queues

SEGMENT = 1 << 24
MESSAGE = 1 << 32 | 7616


def header(first, last, fast_boxes=32, padding=(0,) * 5):
    return queues.HEADER.pack(first, last, fast_boxes, *padding)


class Header(unittest.TestCase):
    def queue(self, *words, **more):
        return queues.Queue(0, header(*words, **more), SEGMENT, 4)

    def test_accepts_an_empty_queue(self):
        self.assertFalse(self.queue(queues.FREE, queues.FREE).is_broken())

    def test_accepts_a_queue_with_a_message(self):
        self.assertFalse(self.queue(MESSAGE, MESSAGE).is_broken())

    def test_recognises_a_broken_queue(self):
        self.assertTrue(self.queue(queues.FREE, MESSAGE).is_broken())

    def test_rejects_an_entry_of_an_unknown_rank(self):
        with self.assertRaises(queues.LayoutUnknown):
            self.queue(queues.FREE, 4 << 32 | 7616)

    def test_rejects_an_address_outside_of_the_segment(self):
        with self.assertRaises(queues.LayoutUnknown):
            self.queue(1 << 32 | SEGMENT, queues.FREE)

    def test_rejects_a_pointer(self):
        with self.assertRaises(queues.LayoutUnknown):
            self.queue(0x7F2D85000000, queues.FREE)

    def test_rejects_a_zeroed_segment(self):
        with self.assertRaises(queues.LayoutUnknown):
            self.queue(0, 0, fast_boxes=0)

    def test_rejects_other_data_behind_the_entries(self):
        with self.assertRaises(queues.LayoutUnknown):
            self.queue(queues.FREE, MESSAGE, padding=(0, 0, 1, 0, 0))
        with self.assertRaises(queues.LayoutUnknown):
            self.queue(queues.FREE, MESSAGE, fast_boxes=-1)


class Version(unittest.TestCase):
    def test_accepts_the_known_version(self):
        queues.check_version({"OMPI_VERSION": "5.0.11"}, {queues.LIBRARY})

    def test_rejects_other_versions_and_libraries(self):
        for version, library in (("5.1.0", queues.LIBRARY), ("4.1.6", queues.LIBRARY), ("", queues.LIBRARY),
                                 ("5.0.11", "libopen-pal.so.90")):
            with self.assertRaises(queues.LayoutUnknown):
                queues.check_version({"OMPI_VERSION": version}, {library})


class Launch(unittest.TestCase):
    def test_an_unknown_layout_is_reported_and_excuses_nothing(self):
        reason = queues.LayoutUnknown("another layout")
        errors = io.StringIO()
        with unittest.mock.patch.object(queues, "broken_queues", side_effect=reason), contextlib.redirect_stderr(errors):
            ranks, message = launch.broken_queues(0, "program")
        self.assertEqual(ranks, [])
        for text in (message, errors.getvalue()):
            self.assertIn("another layout", text)
            self.assertIn("counts as a hang", text)


if __name__ == "__main__":
    unittest.main()
