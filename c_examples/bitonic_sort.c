/* A fault-tolerant bitonic sort over ftsort_rounds_run (Batcher 1968; the 2024 paper's Algorithm 4, with merge-split):
 * an example of a data-oblivious algorithm with many rounds. The library also has a built-in bitonic sort, for any
 * records and shares: ftsort_run with FTSORT_BITONIC.
 *
 *   ftsort-mpirun -np 4 ./bitonic_sort 10000          (numbers for each node)
 *   FTSORT_FAULTS="half seed=6 window=30ms" ftsort-mpirun -np 7 ./bitonic_sort 10000
 *
 * In the first round every node sorts its numbers. Then follow log2(N) (log2(N) + 1) / 2 rounds: a node and its partner
 * exchange all of their numbers, one keeps the smaller half and the other the greater half. */
#include "rounds_example.h"

#define MAX_ROUNDS 512

static size_t count; /* numbers of a node */
static struct {
  uint32_t s, t; /* exchange along dimension t, in the stage that sorts subcubes of s + 1 dimensions */
} stages[MAX_ROUNDS];

static int32_t number(int node, size_t i)
{
  uint64_t x = ((uint64_t)node << 40) + i + 1;
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return (int32_t)(uint32_t)(x >> 32);
}

static int ascending(const void *a, const void *b)
{
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  int32_t *numbers = (int32_t *)ftsort_buffer_resize(state, count * sizeof *numbers);
  size_t i;
  (void)user;
  if (numbers == NULL) return 1;
  for (i = 0; i < count; i++) numbers[i] = number(node, i);
  return 0;
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  const int32_t *mine = (const int32_t *)task->state, *theirs = (const int32_t *)inbox;
  int32_t *kept = (int32_t *)ftsort_buffer_resize(next, task->state_bytes);
  uint32_t s = stages[task->round - 1].s, t = stages[task->round - 1].t;
  size_t i, one, other;
  (void)user, (void)bytes;
  if (kept == NULL) return 1;
  if (task->dimension == FTSORT_NO_EXCHANGE) {
    memcpy(kept, mine, task->state_bytes);
    qsort(kept, count, sizeof *kept, ascending);
  } else if (((task->node >> (s + 1) ^ task->node >> t) & 1) == 0) { /* keep the smaller half */
    for (i = one = other = 0; i < count; i++)
      kept[i] = mine[one] <= theirs[other] ? mine[one++] : theirs[other++];
  } else {
    for (i = one = other = count; i > 0; i--)
      kept[i - 1] = mine[one - 1] > theirs[other - 1] ? mine[--one] : theirs[--other];
  }
  return 0;
}

/* Compares with all numbers, sorted by the C library. */
static int is_right(const ftsort_block *state)
{
  static int32_t *all;
  size_t nodes = (size_t)1 << ftsort_dimension(group), k;
  if (all == NULL) {
    all = (int32_t *)malloc((nodes * count + 1) * sizeof *all);
    if (all == NULL) return 0;
    for (k = 0; k < nodes * count; k++) all[k] = number((int)(k / count), k % count);
    qsort(all, nodes * count, sizeof *all, ascending);
  }
  return state->count == count * sizeof *all &&
         memcmp(state->data, all + (size_t)state->node * count, state->count) == 0;
}

int main(int argc, char **argv)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_round plan[MAX_ROUNDS];
  uint32_t s, t, d, last = 0;
  group = make_group(&argc, &argv, NULL);
  count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
  d = ftsort_dimension(group);
  memset(plan, 0, sizeof plan); /* no round shares a value */
  plan[last++].dimension = FTSORT_NO_EXCHANGE;
  for (s = 0; s < d; s++)
    for (t = s + 1; t-- > 0; last++) {
      stages[last].s = s;
      stages[last].t = t;
      plan[last].dimension = t;
    }
  rounds.plan = plan;
  rounds.round_count = last;
  rounds.begin = begin; /* without emit, a node sends its whole state */
  rounds.absorb = absorb;
  run_and_leave(&rounds, is_right);
  return 1;
}
