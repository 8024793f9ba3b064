/* Algorithms for a ring or a mesh on ftsort_rounds_run: a stencil on a torus, which tolerates failures.
 *
 *   ftsort-mpirun -np 8 ./mesh 50 20 1                                (2 rows of 4 tiles, 50 x 50 cells each, 20 steps)
 *   FTSORT_FAULTS="2@3.send 0@8" ftsort-mpirun -np 4 ./mesh 50 20 0   (a ring of 4 tiles; kills two ranks)
 *
 * A cell becomes the sum of itself and its four neighbours, modulo a prime. The rows and the columns of tiles are
 * numbered by Gray codes, so that neighbours on the mesh differ in one bit of their node, and are neighbours on the
 * hypercube. A step of the stencil takes one round for each dimension. In the round of dimension s a node gets the
 * borders of the one neighbour that it has across s; a pair that is no pair of neighbours on the mesh exchanges
 * nothing. In the last round of a step all borders have arrived, and the cells are computed. */
#include "rounds_example.h"

#define PRIME 1000003u

enum { AXES = 2 }; /* axis 0: up and down, between rows; axis 1: left and right, between columns */

static unsigned size, steps, dimensions, bits_of[AXES];

/* A state: the cells of the tile, then four borders of its neighbours: above, below, left, right. */
static size_t state_words(void) { return (size_t)size * size + 4 * size; }

/* The place on the axis of the tile with this Gray code: the inverse of place xor (place >> 1). */
static unsigned place_of(unsigned code)
{
  unsigned place = 0;
  for (; code > 0; code >>= 1) place ^= code;
  return place;
}

/* The place of a node on an axis: the columns have the lower bits of the node. */
static unsigned place(int node, int axis)
{
  unsigned bits = axis == 0 ? (unsigned)node >> bits_of[1] : (unsigned)node & ((1u << bits_of[1]) - 1);
  return place_of(bits);
}

static uint32_t start_cell(unsigned row, unsigned column) { return (row * 7919u + column * 104729u + 17u) % PRIME; }

/* Copies the first or the last line of cells across an axis. */
static void copy_border(const uint32_t *cells, int axis, int last, uint32_t *border)
{
  unsigned i, at = last ? size - 1 : 0;
  for (i = 0; i < size; i++) border[i] = axis == 0 ? cells[at * size + i] : cells[i * size + at];
}

/* On an axis with one tile, the tile is its own neighbour. */
static void close_short_axes(uint32_t *state)
{
  int axis;
  for (axis = 0; axis < AXES; axis++)
    if (bits_of[axis] == 0) {
      uint32_t *borders = state + (size_t)size * size + 2 * (size_t)axis * size;
      copy_border(state, axis, 1, borders);
      copy_border(state, axis, 0, borders + size);
    }
}

static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  uint32_t *cells = (uint32_t *)ftsort_buffer_resize(state, state_words() * sizeof *cells);
  unsigned i, j;
  (void)user;
  if (cells == NULL) return 1;
  for (i = 0; i < size; i++)
    for (j = 0; j < size; j++)
      cells[i * size + j] = start_cell(place(node, 0) * size + i, place(node, 1) * size + j);
  close_short_axes(cells);
  return 0;
}

/* The axis of a round, and whether the partner is the next tile and the previous one (both on an axis with two). */
static int neighbours(const ftsort_task *task, int *next, int *previous)
{
  int axis = task->dimension < bits_of[1] ? 1 : 0;
  unsigned last = (1u << bits_of[axis]) - 1, mine = place(task->node, axis), other = place(task->partner, axis);
  *next = other == ((mine + 1) & last);
  *previous = mine == ((other + 1) & last);
  return axis;
}

/* Sends the first and the last line to a neighbour on the mesh. */
static int emit(void *user, const ftsort_task *task, ftsort_buffer *outbox)
{
  int next, previous, axis;
  uint32_t *lines;
  (void)user;
  axis = neighbours(task, &next, &previous);
  if (!next && !previous) return 0;
  lines = (uint32_t *)ftsort_buffer_resize(outbox, 2 * size * sizeof *lines);
  if (lines == NULL) return 1;
  copy_border((const uint32_t *)task->state, axis, 0, lines);
  copy_border((const uint32_t *)task->state, axis, 1, lines + size);
  return 0;
}

static uint32_t cell_at(const uint32_t *state, unsigned i, unsigned j, int down, int right)
{
  const uint32_t *borders = state + (size_t)size * size;
  if (down < 0 && i == 0) return borders[j];
  if (down > 0 && i == size - 1) return borders[size + j];
  if (right < 0 && j == 0) return borders[2 * size + i];
  if (right > 0 && j == size - 1) return borders[3 * size + i];
  return state[(i + (unsigned)down) * size + (j + (unsigned)right)];
}

/* Computes all cells from the tile and its borders. */
static void compute(const uint32_t *from, uint32_t *to)
{
  unsigned i, j;
  for (i = 0; i < size; i++)
    for (j = 0; j < size; j++)
      to[i * size + j] = (cell_at(from, i, j, 0, 0) + cell_at(from, i, j, -1, 0) + cell_at(from, i, j, 1, 0) +
                          cell_at(from, i, j, 0, -1) + cell_at(from, i, j, 0, 1)) % PRIME;
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next_state)
{
  const uint32_t *lines = (const uint32_t *)inbox;
  uint32_t *state = (uint32_t *)ftsort_buffer_resize(next_state, state_words() * sizeof *state);
  (void)user;
  if (state == NULL) return 1;
  memcpy(state, task->state, state_words() * sizeof *state);
  if (task->dimension != FTSORT_NO_EXCHANGE && bytes > 0) {
    int next, previous, axis = neighbours(task, &next, &previous);
    uint32_t *borders = state + (size_t)size * size + 2 * (size_t)axis * size;
    if (bytes != 2 * size * sizeof *lines) return 1;
    if (previous) memcpy(borders, lines + size, size * sizeof *lines);
    if (next) memcpy(borders + size, lines, size * sizeof *lines);
  }
  if (dimensions == 0 || task->round % dimensions == 0) {
    uint32_t *whole = (uint32_t *)malloc(state_words() * sizeof *whole);
    if (whole == NULL) return 1;
    memcpy(whole, state, state_words() * sizeof *whole);
    compute(whole, state);
    free(whole);
    close_short_axes(state);
  }
  return 0;
}

/* Computes the whole torus in this process, and compares a tile. */
static int is_right(const ftsort_block *state)
{
  unsigned rows = size << bits_of[0], columns = size << bits_of[1], step, i, j;
  unsigned top = place((int)state->node, 0) * size, left = place((int)state->node, 1) * size;
  const uint32_t *cells = (const uint32_t *)state->data;
  uint32_t *now = (uint32_t *)malloc((size_t)rows * columns * sizeof *now);
  uint32_t *next = (uint32_t *)malloc((size_t)rows * columns * sizeof *next), *old;
  int right = now != NULL && next != NULL && state->count == state_words() * sizeof *cells;
  for (i = 0; right && i < rows * columns; i++) now[i] = start_cell(i / columns, i % columns);
  for (step = 0; right && step < steps; step++) {
    for (i = 0; i < rows; i++)
      for (j = 0; j < columns; j++) {
        unsigned up = (i + rows - 1) % rows, down = (i + 1) % rows;
        unsigned before = (j + columns - 1) % columns, after = (j + 1) % columns;
        next[i * columns + j] = (now[i * columns + j] + now[up * columns + j] + now[down * columns + j] +
                                 now[i * columns + before] + now[i * columns + after]) % PRIME;
      }
    old = now;
    now = next;
    next = old;
  }
  for (i = 0; right && i < size; i++)
    for (j = 0; right && j < size; j++) right = cells[i * size + j] == now[(top + i) * columns + left + j];
  free(now);
  free(next);
  return right;
}

int main(int argc, char **argv)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_round *plan;
  size_t i;
  group = make_group(&argc, &argv, NULL);
  size = argc > 1 ? (unsigned)atoi(argv[1]) : 50;
  steps = argc > 2 ? (unsigned)atoi(argv[2]) : 20;
  bits_of[0] = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
  dimensions = ftsort_dimension(group);
  if (size < 1 || size > 10000 || steps < 1 || bits_of[0] > dimensions) {
    fprintf(stderr, "usage: mesh SIZE STEPS LOG2_ROWS, with at most %u for LOG2_ROWS\n", dimensions);
    leave_with(group, 2);
  }
  bits_of[1] = dimensions - bits_of[0];
  rounds.round_count = (size_t)steps * (dimensions > 0 ? dimensions : 1);
  plan = (ftsort_round *)calloc(rounds.round_count, sizeof *plan);
  if (plan == NULL) fail_alone("mesh: no memory for the plan");
  for (i = 0; i < rounds.round_count; i++)
    plan[i].dimension = dimensions > 0 ? (uint32_t)(i % dimensions) : FTSORT_NO_EXCHANGE;
  rounds.plan = plan;
  rounds.begin = begin;
  rounds.emit = emit;
  rounds.absorb = absorb;
  run_and_leave(&rounds, is_right);
  return 1;
}
