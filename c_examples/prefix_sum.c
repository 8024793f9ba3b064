/* A fault-tolerant all-reduce and prefix sum: prefix_sum_mpi.c with ftsort_rounds_run. Every node has an array. In the
 * end it has, element by element, the sums over all nodes up to itself, and the sums over all nodes.
 *
 *   ftsort-mpirun -np 4 ./prefix_sum 1000000
 *   FTSORT_FAULTS="half seed=3 window=30ms" ftsort-mpirun -np 5 ./prefix_sum 1000000      (kills two ranks)
 *
 * A state is two arrays: the sums up to this node, and the sums over all nodes that the node has heard of. In the
 * round of dimension s a node receives its partner's second array and adds it to its own; the upper node of the two
 * also adds it to its first array. */
#include <stdio.h>
#include <stdlib.h>

#include "ftsort_rounds.h"
#include "leave.h"

static size_t count; /* numbers in an array; the same on all ranks */
static ftsort *group;

static int64_t number(int node, size_t i) { return (int64_t)((node + 1) * 31 + (int64_t)i * 7) % 1009; }

/* Generates the state of a node: the input of its home rank, or zeros if it has none. */
static int make_state(int node, ftsort_buffer *state)
{
  int64_t *sums = (int64_t *)ftsort_buffer_resize(state, 2 * count * sizeof *sums); /* contains zeros */
  size_t i;
  if (sums == NULL) return 1;
  for (i = 0; i < count && node < ftsort_ranks(group); i++) sums[i] = sums[count + i] = number(node, i);
  return 0;
}

static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  (void)user;
  return make_state(node, state);
}

/* Sends the second half of the state, without a copy. */
static int emit(void *user, const ftsort_task *task, ftsort_buffer *outbox)
{
  (void)user;
  return ftsort_buffer_pass(outbox, task->state_bytes / 2, task->state_bytes / 2);
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  const int64_t *state = (const int64_t *)task->state, *came = (const int64_t *)inbox;
  int64_t *sums = (int64_t *)ftsort_buffer_resize(next, task->state_bytes);
  size_t i;
  (void)user;
  if (sums == NULL || bytes != task->state_bytes / 2) return 1;
  for (i = 0; i < count; i++) {
    sums[i] = state[i] + (task->is_upper ? came[i] : 0);
    sums[count + i] = state[count + i] + came[i];
  }
  return 0;
}

static int is_right(const ftsort_block *state)
{
  const int64_t *sums = (const int64_t *)state->data;
  size_t i;
  int node;
  for (i = 0; i < count; i++) {
    int64_t upto = 0, all = 0;
    for (node = 0; node < ftsort_ranks(group); node++) {
      all += number(node, i);
      if (node <= state->node) upto += number(node, i);
    }
    if (sums[i] != upto || sums[count + i] != all) return 0;
  }
  return state->count == 2 * count * sizeof *sums;
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_result *result = NULL;
  ftsort_block state;
  int64_t *mine;
  size_t i, new_failures;
  uint32_t right = 1;

  count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
  config.reload = begin; /* any rank can generate the input of a failed rank */
  rounds.ascending = 1;
  rounds.begin = begin;
  rounds.emit = emit;
  rounds.absorb = absorb;

  group = make_group(&argc, &argv, &config);
  mine = (int64_t *)malloc((2 * count + 1) * sizeof *mine);
  if (mine == NULL) fail_alone("prefix_sum: no memory for the numbers");
  for (i = 0; i < count; i++) mine[i] = mine[count + i] = number(ftsort_rank(group), i);
  do { /* repeated if a rank fails after the last round, with its states */
    ftsort_result_free(result);
    check(group, ftsort_rounds_run(group, &rounds, mine, 2 * count * sizeof *mine, &result));
    check(group, ftsort_fault_check(group, &new_failures));
  } while (new_failures > 0);
  for (i = 0; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
    int fine = is_right(&state);
    printf("node %d on rank %d: %s\n", (int)state.node, (int)ftsort_rank(group), fine ? "right" : "WRONG");
    right &= (uint32_t)fine;
  }
  ftsort_result_free(result);
  free(mine);
  if (ftsort_agree(group, &right, NULL) != FTSORT_OK) right = 0; /* whether the states of all ranks are right */
  leave_with(group, right ? 0 : 1);
  return 1;
}
