/* The transpose of a matrix that lies across the ranks, fault-tolerant: node v has a strip of rows, and gets
 * as many columns. log2(N) rounds, in each of which a node sends half of what it has.
 *
 *   ftsort-mpirun -np 4 ./transpose 64            (64 rows for each node)
 *   FTSORT_FAULTS="half seed=5 window=20ms" ftsort-mpirun -np 6 ./transpose 64
 *
 * A state is N square blocks. Block b of node v is on its way from v to b at first; in the round of a
 * dimension, node v sends those blocks whose numbers differ from v there, and they change places with what
 * comes. In the end block b of node v has come from b. A last round, in which nobody sends anything,
 * turns each block around. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort.h"

static size_t side; /* of a block */
static int nodes;
static ftsort *group;

static int64_t element(size_t row, size_t column) { return (int64_t)(row * 1000003 + column); }

static size_t block_bytes(void) { return side * side * sizeof(int64_t); }

/* The rows of a node, cut into blocks. */
static void fill(int node, int64_t *blocks)
{
  size_t row, column;
  int to;
  for (to = 0; to < nodes; to++)
    for (row = 0; row < side; row++)
      for (column = 0; column < side; column++)
        *blocks++ = element((size_t)node * side + row, (size_t)to * side + column);
}

/* What the home of a node brings; for a node without one, too, since the matrix has rows for all nodes. */
static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  int64_t *blocks = (int64_t *)ftsort_buffer_resize(state, (size_t)nodes * block_bytes());
  (void)user;
  if (blocks == NULL) return 1;
  fill(node, blocks);
  return 0;
}

static int goes(const ftsort_task *task, int block) { return ((block ^ task->node) >> task->dimension) & 1; }

static int emit(void *user, const ftsort_task *task, ftsort_buffer *outbox)
{
  const char *state = (const char *)task->state;
  char *out = (char *)ftsort_buffer_resize(outbox, task->state_bytes / 2);
  int block;
  (void)user;
  if (out == NULL) return 1;
  for (block = 0; block < nodes; block++)
    if (goes(task, block)) {
      memcpy(out, state + (size_t)block * block_bytes(), block_bytes());
      out += block_bytes();
    }
  return 0;
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  const char *came = (const char *)inbox;
  char *state = (char *)ftsort_buffer_resize(next, task->state_bytes);
  size_t row, column;
  int block;
  (void)user, (void)bytes;
  if (state == NULL) return 1;
  memcpy(state, task->state, task->state_bytes);
  for (block = 0; block < nodes; block++) {
    char *place = state + (size_t)block * block_bytes();
    if (task->dimension == FTSORT_NO_EXCHANGE) {
      const int64_t *before = (const int64_t *)task->state + (size_t)block * side * side;
      for (row = 0; row < side; row++)
        for (column = 0; column < side; column++)
          ((int64_t *)place)[column * side + row] = before[row * side + column];
    } else if (goes(task, block)) { /* they come in the order in which the partner has them: ours */
      memcpy(place, came, block_bytes());
      came += block_bytes();
    }
  }
  return 0;
}

static int is_right(const ftsort_state *state)
{
  const int64_t *found = (const int64_t *)state->data;
  size_t row, column;
  int from;
  for (from = 0; from < nodes; from++)
    for (row = 0; row < side; row++)
      for (column = 0; column < side; column++)
        if (*found++ != element((size_t)from * side + column, (size_t)state->node * side + row)) return 0;
  return state->bytes == (size_t)nodes * block_bytes();
}

static void give_up(const char *what)
{
  fprintf(stderr, "rank %d: %s: %s\n", (int)ftsort_self(group), what, ftsort_last_error(group));
  ftsort_leave(group, 1);
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_round plan[32];
  ftsort_rounds_result *result = NULL;
  ftsort_state state;
  int64_t *mine;
  size_t i, died;
  uint32_t s, d;
  int right = 1;

  side = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
  config.reload = begin;
  ftsort_prepare();
  MPI_Init(&argc, &argv);
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  d = ftsort_dimension(group);
  nodes = 1 << d;
  for (s = 0; s <= d; s++) {
    plan[s].dimension = s < d ? s : FTSORT_NO_EXCHANGE;
    plan[s].share = 0;
  }
  rounds.plan = plan;
  rounds.round_count = d + 1;
  rounds.begin = begin;
  rounds.emit = emit;
  rounds.absorb = absorb;
  mine = (int64_t *)malloc((size_t)nodes * block_bytes() + 1);
  if (mine == NULL) give_up("malloc");
  fill(ftsort_self(group), mine);
  do { /* who dies after the end takes its states along: the others do it again */
    ftsort_rounds_result_free(result);
    if (ftsort_rounds_run(group, &rounds, mine, (size_t)nodes * block_bytes(), &result) != FTSORT_OK)
      give_up("ftsort_rounds_run");
    if (ftsort_fault_check(group, &died) != FTSORT_OK) give_up("ftsort_fault_check");
  } while (died > 0);
  for (i = 0; ftsort_rounds_result_state(result, i, &state) == FTSORT_OK; i++) {
    int fine = is_right(&state);
    printf("node %d on rank %d: %s\n", (int)state.node, (int)ftsort_self(group), fine ? "right" : "WRONG");
    right &= fine;
  }
  ftsort_rounds_result_free(result);
  free(mine);
  ftsort_leave(group, right ? 0 : 1);
  return 1;
}
