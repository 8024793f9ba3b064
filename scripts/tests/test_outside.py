"""Tests the parts of the kills from outside that need no MPI: instants, intervals, digests and verdicts."""

import math
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import chaos
import outside
import random_kills

MASK = random_kills.MASK


class Intervals(unittest.TestCase):
    def test_contain_the_share_and_stay_within_0_and_1(self):
        for runs in (1, 7, 500):
            for count in (0, 1, runs // 2, runs):
                low, high = outside.interval(count, runs)
                self.assertTrue(0 <= low <= count / runs <= high <= 1, (count, runs))

    def test_have_the_values_of_wilson(self):
        low, high = outside.interval(10, 100)
        self.assertAlmostEqual(low, 0.0552, places=4)
        self.assertAlmostEqual(high, 0.1744, places=4)
        self.assertAlmostEqual(outside.interval(0, 500)[1], 0.0076, places=4)
        self.assertEqual(outside.interval(0, 0), (0.0, 1.0))


class Instants(unittest.TestCase):
    def test_are_uniform_over_the_whole_call_and_all_ranks(self):
        runs, ranks, length = 8000, 8, 0.25
        drawn = [random_kills.draw("cell", seed, ranks, length) for seed in range(runs)]
        for part in range(10):
            found = sum(part <= at / length * 10 < part + 1 for _, at in drawn)
            self.assertLess(abs(found - runs / 10), 5 * math.sqrt(runs * 0.09))
        for rank in range(ranks):
            found = sum(victim == rank for victim, _ in drawn)
            self.assertLess(abs(found - runs / ranks), 5 * math.sqrt(runs / ranks))

    def test_follow_the_seed(self):
        self.assertEqual(random_kills.draw("cell", 3, 8, 1), random_kills.draw("cell", 3, 8, 1))
        self.assertNotEqual(random_kills.draw("cell", 3, 8, 1), random_kills.draw("cell", 4, 8, 1))


class Plans(unittest.TestCase):
    def test_leave_a_survivor_and_continue_each_stopped_rank(self):
        kinds = set()
        for seed in range(300):
            plan = chaos.plan_of(seed, 4, 0.5)
            self.assertEqual(plan, chaos.plan_of(seed, 4, 0.5))
            victims = [rank for _, rank, number in plan if number == signal.SIGKILL]
            self.assertEqual(len(set(victims)), len(victims))
            self.assertLess(len(victims), 4)
            self.assertEqual([at for at, _, _ in plan], sorted(at for at, _, _ in plan))
            for rank in range(4):
                numbers = [number for _, other, number in plan if other == rank and number != signal.SIGKILL]
                self.assertEqual(numbers.count(signal.SIGSTOP), numbers.count(signal.SIGCONT))
                self.assertNotEqual(numbers[-1:], [signal.SIGSTOP])
                kinds.update(numbers)
            kinds.add(len(victims))
        self.assertEqual(kinds, {0, 1, 2, 3, signal.SIGSTOP, signal.SIGCONT})


def block(node, offset, keys, ordered=1):
    """Returns a block whose records are their own hashes."""
    folded = 0
    for key in keys:
        folded ^= key
    first, last = (keys[0], keys[-1]) if keys else (0, 0)
    return (node, node, offset, len(keys), sum(keys) & MASK, folded, first, last, ordered)


INPUTS = [(2, 5 + 1, 5 ^ 1), (2, 3 + 9, 3 ^ 9), (1, 7, 7)]
BLOCKS = [block(0, 0, [1, 3]), block(1, 2, []), block(2, 2, [5, 7, 9])]


class Digests(unittest.TestCase):
    def verdict(self, blocks):
        return random_kills.combine(INPUTS, blocks)

    def test_accept_a_sorted_result_in_any_order_of_lines(self):
        self.assertEqual(self.verdict(BLOCKS), ("right", []))
        self.assertEqual(self.verdict(BLOCKS[::-1]), ("right", []))

    def test_sums_wrap_around(self):
        large = [(2, (MASK + MASK) & MASK, 0)]
        self.assertEqual(random_kills.combine(large, [block(0, 0, [MASK]), block(1, 1, [MASK])]), ("right", []))

    def test_name_missing_ranges(self):
        self.assertEqual(self.verdict(BLOCKS[:2]), ("short", [(2, 3)]))
        self.assertEqual(self.verdict(BLOCKS[1:]), ("short", [(0, 2)]))

    def test_find_wrong_results(self):
        for wrong in [
            [block(0, 0, [1, 4]), *BLOCKS[1:]],
            [block(0, 0, [3, 1], ordered=0), *BLOCKS[1:]],
            [block(0, 0, [1, 6]), BLOCKS[1], block(2, 2, [5, 7, 9])],
            [block(0, 0, [1, 3, 3]), *BLOCKS[1:]],
            [*BLOCKS, block(3, 5, [9])],
            [*BLOCKS, BLOCKS[1]],
            [block(1, 0, [1, 3]), block(0, 2, [5, 7, 9])],
        ]:
            verdict, _ = self.verdict(wrong)
            self.assertNotIn(verdict, ("right", "short"), wrong)


def output(blocks, statuses, lost="", freed=None):
    """Returns the lines of three ranks."""
    lines = [f"input {rank} " + " ".join(map(str, digest)) for rank, digest in enumerate(INPUTS)]
    for rank, status in statuses.items():
        lines += [f"enter {rank} 10.5", f"return {rank} 11.{rank} {status}", f"lost {rank} {lost}"]
    lines += ["block " + " ".join(map(str, words)) for words in blocks]
    lines += [f"free {rank} 12" for rank in (statuses if freed is None else freed)]
    return "\n".join(lines)


class Outcomes(unittest.TestCase):
    def judge(self, text, victim, ranges=lambda wanted: []):
        return random_kills.judge(random_kills.Report(text), 3, victim, ranges)[0]

    def test_of_complete_and_lost_results(self):
        self.assertEqual(self.judge(output(BLOCKS, {0: 0, 1: 0, 2: 0}), None), "right")
        self.assertEqual(self.judge(output(BLOCKS, {0: 0, 2: 0}), 1), "right")
        self.assertEqual(self.judge(output([], {0: -40, 2: -40}, "1"), 1), "lost")

    def test_of_bad_results(self):
        self.assertEqual(self.judge(output([], {0: -40, 2: -40}, "2"), 1), "wrong")
        self.assertEqual(self.judge(output([], {0: -40, 2: -40}), 1), "wrong")
        self.assertEqual(self.judge(output(BLOCKS, {0: 0, 2: -40}, "1"), 1), "wrong")
        self.assertEqual(self.judge(output(BLOCKS, {0: -61, 2: -61}), 1), "wrong")
        self.assertEqual(self.judge(output(BLOCKS, {0: 0, 2: 0}, freed=[0]), 1), "crash")
        self.assertEqual(self.judge(output(BLOCKS[:1], {0: 0, 1: 0, 2: 0}), None), "wrong")

    def test_of_short_results(self):
        right = lambda wanted: [words[2:6] for words in BLOCKS if words[2:4] in set(wanted)]
        short = output(BLOCKS[:2], {0: 0, 1: 0})
        self.assertEqual(self.judge(short, 2, right), "short")
        self.assertEqual(self.judge(short, 2, lambda wanted: [(0, 2, 0, 0)]), "wrong")
        # The killed rank's block is there, and another one is missing.
        self.assertEqual(self.judge(output(BLOCKS[1:], {0: 0, 1: 0}), 2, right), "wrong")

    def test_of_times(self):
        self.assertAlmostEqual(random_kills.Report(output(BLOCKS, {0: 0, 2: 0})).length(), 0.7)


class Traces(unittest.TestCase):
    def test_the_protection_of_a_call_is_within_it(self):
        events = [{"name": "protect", "ts": at, "dur": 100_000} for at in (1_000_000, 3_000_000)]
        events.append({"name": "store", "ts": 3_500_000, "dur": 10})
        self.assertAlmostEqual(random_kills.unprotected(events, 2.9, 4), 0.2)
        self.assertIsNone(random_kills.unprotected(events, 5, 6))

    def test_means_are_over_ranks(self):
        traces = {rank: [{"name": "protect", "ts": 1_000_000, "dur": 1e5 * (rank + 1)}] for rank in (0, 1)}
        lines = "turn 0 0 0.25 1.0 2.0\nturn 1 0 0.75 1.0 3.0\n"
        ((turn, copy, exposed, sort),) = random_kills.measured(lines, traces)
        self.assertEqual((turn, copy, sort), (0, 0.5, 1.5))
        self.assertAlmostEqual(exposed, 0.15)



def steps(*ends, done=True, begun=0):
    """Returns the Steps of a rank that ended these sorts and began `begun` more."""
    lines = []
    for number, end in enumerate(ends, 1):
        lines += [f"begin {number} sort default", f"end {number} {end}"]
    lines += [f"begin {len(ends) + 1} sort default"] * begun + ["done"] * done
    return chaos.Steps("\n".join(lines))


class Chaos(unittest.TestCase):
    def judge(self, killed, *ranks):
        return chaos.judge(dict(enumerate(ranks)), killed)

    def test_accepts_complete_results(self):
        self.assertEqual(self.judge(set(), steps("0 3 7 - 0"), steps("0 4 7 - 0")), [])

    def test_a_rank_that_is_killed_in_a_step_takes_its_part_along(self):
        whole = steps("0 4 7 - 0", "0 6 6 - 0")
        self.assertEqual(self.judge({1}, whole, steps("0 3 7 - 0", done=False, begun=1)), [])
        self.assertEqual(self.judge({1}, whole, steps(done=False, begun=1)), [])
        # It was killed in the first step, so that the second one is complete without it.
        short = steps("0 7 7 - 0", "0 7 7 - 0", "0 5 6 - 0")
        self.assertEqual(len(self.judge({1}, short, steps(done=False, begun=1))), 1)

    def test_data_are_lost_only_with_killed_ranks(self):
        killed = steps(done=False, begun=1)
        self.assertEqual(self.judge({1}, steps("-40 0 0 1 0"), killed), [])
        self.assertEqual(len(self.judge({1}, steps("-40 0 0 0 0"), killed)), 1)
        self.assertEqual(len(self.judge({1}, steps("-40 0 0 - 0"), killed)), 1)

    def test_finds_problems(self):
        fine = steps("0 3 7 - 0")
        for other in [steps("0 3 7 - 0"), steps("0 5 7 - 0"), steps("0 4 8 - 0"), steps("0 4 7 - 1"), steps("-61 4 7 - 0"),
                      steps("0 4 7 - 0", done=False), steps("-40 4 7 1 0")]:
            self.assertTrue(self.judge(set(), fine, other))

    def test_inputs_that_can_be_reloaded_are_never_lost(self):
        ends = {0: ("-40", 0, 0, frozenset({1}), 0)}
        problems = lambda group: list(chaos.problems_of_step(1, "sort", group, ends, {1: True}))
        self.assertEqual((len(problems("reload")), len(problems("none"))), (1, 0))


if __name__ == "__main__":
    unittest.main()
