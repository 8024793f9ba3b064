/* A fault-tolerant transpose of a distributed matrix: node v has a strip of rows, and gets the same number of columns.
 * It takes log2(N) rounds, in each of which a node sends half of its blocks.
 *
 *   ftsort-mpirun -np 4 ./transpose 64            (64 rows for each node)
 *   FTSORT_FAULTS="half seed=5 window=20ms" ftsort-mpirun -np 6 ./transpose 64
 *
 * A state is N square blocks. At first block b of node v must go from v to b. In the round of a dimension, node v
 * exchanges the blocks with numbers that differ from v in this dimension for the received ones. In the end block b of
 * node v is from node b. A last round without an exchange transposes each block. */
#include "rounds_example.h"

static size_t side; /* of a block */
static int nodes;

static int64_t element(size_t row, size_t column) { return (int64_t)(row * 1000003 + column); }

static size_t block_bytes(void) { return side * side * sizeof(int64_t); }

/* The rows of a node, cut into blocks. */
static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  int64_t *blocks = (int64_t *)ftsort_buffer_resize(state, (size_t)nodes * block_bytes());
  size_t row, column;
  int to;
  (void)user;
  if (blocks == NULL) return 1;
  for (to = 0; to < nodes; to++)
    for (row = 0; row < side; row++)
      for (column = 0; column < side; column++)
        *blocks++ = element((size_t)node * side + row, (size_t)to * side + column);
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
    } else if (goes(task, block)) { /* received in the partner's order, which is the same */
      memcpy(place, came, block_bytes());
      came += block_bytes();
    }
  }
  return 0;
}

static int is_right(const ftsort_block *state)
{
  const int64_t *found = (const int64_t *)state->data;
  size_t row, column;
  int from;
  for (from = 0; from < nodes; from++)
    for (row = 0; row < side; row++)
      for (column = 0; column < side; column++)
        if (*found++ != element((size_t)from * side + column, (size_t)state->node * side + row)) return 0;
  return state->count == (size_t)nodes * block_bytes();
}

int main(int argc, char **argv)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_round plan[32];
  uint32_t s, d;
  group = make_group(&argc, &argv, NULL);
  side = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
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
  run_and_leave(&rounds, is_right);
  return 1;
}
