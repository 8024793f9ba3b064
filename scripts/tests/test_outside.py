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


def inputs():
    return [f"input {rank} " + " ".join(map(str, digest)) for rank, digest in enumerate(INPUTS)]


def output(blocks, statuses, lost="-", freed=None):
    """Returns the lines of three ranks that sort once and print their blocks."""
    lines = inputs()
    lines += [f"enter {rank} 10.5" for rank in range(3)]
    for rank, status in statuses.items():
        lines += [f"return {rank} 11.{rank} {status}", f"lost {rank} {lost}"]
    lines += ["block " + " ".join(map(str, words)) for words in blocks]
    lines += [f"free {rank} 12" for rank in (statuses if freed is None else freed)]
    return "\n".join(lines)


def outcome_of(text, killed, ranges=lambda wanted: []):
    return random_kills.judge(random_kills.Report(text), 3, set(killed), ranges)[0]


class Outcomes(unittest.TestCase):
    def test_of_complete_and_lost_results(self):
        self.assertEqual(outcome_of(output(BLOCKS, {0: 0, 1: 0, 2: 0}), []), "right")
        self.assertEqual(outcome_of(output(BLOCKS, {0: 0, 2: 0}), [1]), "right")
        self.assertEqual(outcome_of(output([], {0: -40, 2: -40}, "1"), [1]), "lost")

    def test_of_bad_results(self):
        self.assertEqual(outcome_of(output([], {0: -40, 2: -40}, "2"), [1]), "wrong")
        self.assertEqual(outcome_of(output([], {0: -40, 2: -40}), [1]), "wrong")
        self.assertEqual(outcome_of(output(BLOCKS, {0: 0, 2: -40}, "1"), [1]), "wrong")
        self.assertEqual(outcome_of(output(BLOCKS, {0: -61, 2: -61}), [1]), "wrong")
        self.assertEqual(outcome_of(output(BLOCKS, {0: 0, 2: 0}, freed=[0]), [1]), "crash")
        self.assertEqual(outcome_of(output(BLOCKS[:1], {0: 0, 1: 0, 2: 0}), []), "wrong")
        self.assertEqual(outcome_of(output(BLOCKS, {0: 0, 2: 0}) + "\nchanged 2 2", [1]), "wrong")

    def test_of_short_results(self):
        right = lambda wanted: [words[2:6] for words in BLOCKS if words[2:4] in set(wanted)]
        short = output(BLOCKS[:2], {0: 0, 1: 0})
        self.assertEqual(outcome_of(short, [2], right), "short")
        self.assertEqual(outcome_of(short, [2], lambda wanted: [(0, 2, 0, 0)]), "wrong")
        # The killed rank's block is there, and another one is missing.
        self.assertEqual(outcome_of(output(BLOCKS[1:], {0: 0, 1: 0}), [2], right), "wrong")

    def test_of_times(self):
        report = random_kills.Report(output(BLOCKS, {0: 0, 2: 0}))
        self.assertAlmostEqual(random_kills.Report(output(BLOCKS, {0: 0, 1: 0, 2: 0})).length("returned"), 0.7)
        self.assertEqual((report.moment(0), report.moment(1)), ("after", "call"))


def written(rank, blocks, ends, failed="-"):
    """Returns the lines of a rank that sorts and writes its blocks. `ends`: the statuses of the sort and of recoveries."""
    lines = [f"enter {rank} 10", f"return {rank} 11 {ends[0]}", f"lost {rank} -"]
    lines += ["block " + " ".join(map(str, (rank, *words[1:]))) for words in blocks]
    lines += [line for status in ends[1:] for line in (f"recovered {rank} 12 {status}", f"lost {rank} -")]
    return lines + ([] if failed is None else [f"written {rank} 13 {failed}", f"free {rank} 14"])


class WrittenOutputs(unittest.TestCase):
    def outcome(self, killed, *ranks):
        lines = inputs() + [line for lines in ranks for line in lines]
        right = lambda wanted: [words[2:6] for words in BLOCKS if words[2:4] in set(wanted)]
        return outcome_of("\n".join(lines), killed, right)

    def test_consist_of_the_blocks_of_survivors(self):
        victim = written(2, BLOCKS[2:], [0], None)
        rebuilt = written(1, BLOCKS[1:], [0, 0], "2")
        self.assertEqual(self.outcome([2], written(0, BLOCKS[:1], [0, 0], "2"), rebuilt, victim), "right")
        # The killed rank has written its block, but the survivors have found its failure and not recovered the block.
        hole = written(1, BLOCKS[1:2], [0, 0], "2")
        self.assertEqual(self.outcome([2], written(0, BLOCKS[:1], [0, 0], "2"), hole, victim), "short")

    def test_contain_the_blocks_of_a_rank_that_is_killed_after_the_agreement(self):
        ranks = [written(0, BLOCKS[:1], [0]), written(1, BLOCKS[1:2], [0])]
        self.assertEqual(self.outcome([2], *ranks, written(2, BLOCKS[2:], [0], None)), "right")
        self.assertEqual(self.outcome([2], *ranks, written(2, [], [0], None)), "short")

    def test_must_be_agreed_on(self):
        victim = written(2, BLOCKS[2:], [0], None)
        rebuilt = written(1, BLOCKS[1:], [0, 0], "2")
        self.assertEqual(self.outcome([2], written(0, BLOCKS[:1], [0, 0], "-"), rebuilt, victim), "wrong")
        self.assertEqual(self.outcome([2], written(0, BLOCKS[:1], [0], "2"), rebuilt, victim), "wrong")
        # A living rank counts as failed.
        rebuilt = written(1, BLOCKS[1:], [0, 0], "0,2")
        self.assertEqual(self.outcome([2], written(0, BLOCKS[:1], [0, 0], "0,2"), rebuilt, victim), "wrong")

    def test_can_be_lost_in_a_recovery(self):
        lost = lambda rank: [line.replace(f"lost {rank} -", f"lost {rank} 2") for line in written(rank, [], [0, -40])]
        self.assertEqual(self.outcome([2], lost(0), lost(1), written(2, [], [0], None)), "lost")
        self.assertEqual(self.outcome([1, 2], lost(0), written(1, [], [0], None), written(2, [], [0], None)), "lost")

    def test_of_each_sort_must_be_complete(self):
        first = [written(rank, [BLOCKS[rank]], [0]) for rank in range(3)]
        second = written(0, BLOCKS, [0, 0, 0], "1,2")
        self.assertEqual(self.outcome([1, 2], *first, second), "right")
        self.assertEqual(self.outcome([1, 2], *first, written(0, BLOCKS[:2], [0, 0, 0], "1,2")), "short")
        self.assertEqual(self.outcome([1, 2], first[0], first[1], written(2, [], [0]), second), "short")
        self.assertEqual(self.outcome([2], *first, second), "wrong")

    def test_losses_and_short_results_are_failures_in_some_modes(self):
        row = {"store": "memory:1", "moments": "call"}
        bad = lambda mode, outcome, **more: random_kills.is_bad({**row, "mode": mode, "outcome": outcome, **more})
        self.assertEqual([bad(mode, "lost") for mode in random_kills.MODES], [False, True, False, True])
        self.assertEqual([bad(mode, "short") for mode in random_kills.MODES], [False, False, True, True])
        self.assertEqual([bad(mode, "lost", store="none") for mode in random_kills.MODES], [False] * 4)
        self.assertFalse(bad("free", "lost", moments="before"))
        self.assertTrue(bad("free", "lost", moments="kept"))
        self.assertTrue(all(bad(mode, outcome) for mode in random_kills.MODES for outcome in random_kills.BAD))


class SuccessiveKills(unittest.TestCase):
    def test_leave_one_rank_and_wait_for_all_survivors(self):
        again, steps = random_kills.draw_successive("cell", 3, 4, 0.5)
        self.assertTrue(0 <= again < 4)
        self.assertEqual(len({rank for _, rank in steps}), 3)
        self.assertTrue(all(0 <= delay <= 0.5 for delay, _ in steps))
        sender = outside.SuccessiveKills("program", steps)
        sender.start, sender.pids = 100.0, [0, 0, 0, 0]
        for line in ["whole 0 101 -", "whole 3 102 1", "whole 2 102.1 1", "whole 0 102.5 1", "whole 3 102.7 1",
                     "whole 3 103 1,2", "whole 0 103 1", "whole 0 104 1,2"]:
            sender.lines.put(line.split()[1:])
        self.assertAlmostEqual(sender.end_of_recovery({1}), 2.5)
        self.assertAlmostEqual(sender.end_of_recovery({1, 2}), 4)
        sender.over.set()
        self.assertIsNone(sender.end_of_recovery({1, 2, 3}))


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



def steps(*ends, done=True, begun=0, kinds="sort", group="default"):
    """Returns the Steps of a rank that ended steps of these kinds, the last of which counts for all further ones, and began
    `begun` more."""
    lines, kinds = [], kinds.split()
    kind_of = lambda number: kinds[min(number, len(kinds)) - 1]
    for number, end in enumerate(ends, 1):
        lines += [f"begin {number} {kind_of(number)} {group}", f"end {number} {end}"]
    lines += [f"begin {len(ends) + 1} {kind_of(len(ends) + 1)} {group}"] * begun + ["done"] * done
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

    def test_what_was_protected_survives_as_many_failures_as_there_are_copies(self):
        lost = "-40 0 0 1 0"
        for kinds, group, accepted in [("keep recover", "default", False), ("protect again", "default", False),
                                       ("protect update", "default", True), ("keep sort recover", "default", False),
                                       ("sort", "default", True), ("keep recover", "none", True),
                                       ("protect again", "reload-bitonic", False), ("keep recover", "reload-bitonic", True)]:
            ends = ["0 7 7 - 0"] * (len(kinds.split()) - 1)
            survivor = steps(*ends, lost, kinds=kinds, group=group)
            killed = steps(*["0 0 7 - 0"] * len(ends), done=False, begun=1, kinds=kinds, group=group)
            self.assertEqual(self.judge({1}, survivor, killed) == [], accepted, (kinds, group))
        # Two ranks were killed since the result was made, or one of them before.
        killed = steps("0 0 7 - 0", done=False, kinds="keep")
        survivor = steps("0 7 7 - 0", lost, kinds="keep recover")
        self.assertEqual(self.judge({1, 2}, survivor, killed, killed), [])
        earlier = steps(done=False)
        survivor = steps("0 7 7 - 0", "0 7 7 - 0", lost, kinds="sort keep recover")
        killed = steps("0 0 7 - 0", "0 0 7 - 0", done=False, kinds="sort keep")
        self.assertEqual(len(self.judge({1, 2}, survivor, earlier, killed)), 1)

    def test_the_table_counts_the_outcomes_of_steps(self):
        # The killed rank may have been in the last step already, and the others may have repeated the first one.
        survivor = steps("0 7 7 - 0", "0 4 7 - 0", "-40 0 0 1 0", kinds="sort keep recover")
        killed = steps("0 0 7 - 0", done=False, begun=1, kinds="sort keep")
        figures = chaos.figures_of({0: survivor, 1: killed}, {1})
        rows = {row["kind"]: [row[name] for name in chaos.FIELDS[2:]] for row in chaos.table_of(figures)}
        self.assertEqual(rows, {"sort": [1, 1, 1, 0, 0], "keep": [1, 1, 0, 1, 0], "recover": [1, 1, 0, 0, 1]})


if __name__ == "__main__":
    unittest.main()
