/* Measures the cost of fault tolerance: an all-reduce of 8 bytes to 64 MiB, and a binary-exchange FFT, in plain MPI, on
 * ftsort without a store, and on ftsort with the memory store, alternately within one run.
 *
 *   ftsort-mpirun -np 4 ./rounds_bench [REPETITIONS [GREATEST]]        (2^d ranks; GREATEST: log2 of bytes)
 *
 * The plain program makes the same exchanges (recursive doubling, MPI_Sendrecv) into existing buffers, and the same
 * computations. Times are those of the slowest rank in microseconds, as medians over the repetitions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_rounds.h"
#include "measure.h"

typedef struct complex_number {
  double re, im;
} complex_number;

enum { PLAIN, NONE, MEMORY, WAYS };

static int rank, ranks, fft; /* fft: whether an FFT is measured, or a sum */
static int dimensions, turns; /* `turns` exchanges, which cycle through the dimensions */
static size_t bytes;         /* of a state */
static complex_number *roots;
static size_t share, n; /* numbers of a node and of all nodes in the FFT */

static void butterflies(complex_number *out, const complex_number *low, const complex_number *high, int upper,
                        size_t first, size_t half)
{
  size_t i, stride = n / (2 * half);
  for (i = 0; i < share; i++) {
    complex_number a = low[i], b = high[i], w, d;
    if (!upper) {
      out[i].re = a.re + b.re;
      out[i].im = a.im + b.im;
      continue;
    }
    w = roots[(first + i - half) % (2 * half) * stride];
    d.re = a.re - b.re;
    d.im = a.im - b.im;
    out[i].re = d.re * w.re - d.im * w.im;
    out[i].im = d.re * w.im + d.im * w.re;
  }
}

/* Computes the new state of a node, from its state and the received one, into `out`, which may be the received one. */
static void combine(void *out, const void *state, const void *came, int node, int bit)
{
  size_t i;
  if (fft) {
    size_t dimension = 0;
    while (1 << dimension < bit) dimension++;
    butterflies((complex_number *)out, (const complex_number *)(node & bit ? came : state),
                (const complex_number *)(node & bit ? state : came), (node & bit) != 0, (size_t)node * share,
                share << dimension);
    return;
  }
  for (i = 0; i < bytes / 8; i++) ((uint64_t *)out)[i] = ((const uint64_t *)state)[i] + ((const uint64_t *)came)[i];
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t size, ftsort_buffer *next)
{
  void *place = ftsort_buffer_reuse(next, NULL);
  (void)user, (void)inbox;
  if (place == NULL || size != bytes) return 1;
  combine(place, task->state, place, task->node, 1 << task->dimension);
  return 0;
}

static char *plain(const void *input, char *one, char *other)
{
  int turn;
  memcpy(one, input, bytes); /* as in ftsort, the input is not changed */
  for (turn = 0; turn < turns; turn++) {
    int bit = 1 << (dimensions - 1 - turn % dimensions);
    char *swap = one;
    MPI_Sendrecv(one, (int)bytes, MPI_BYTE, rank ^ bit, 0, other, (int)bytes, MPI_BYTE, rank ^ bit, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    combine(other, one, other, rank, bit);
    one = other;
    other = swap;
  }
  return one;
}

#define MOST_TURNS 256

static double measure(ftsort *group, const void *input, char *one, char *other, const void *expected,
                      ftsort_stats *stats)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_result *result = NULL;
  ftsort_block state;
  static ftsort_round plan[MOST_TURNS];
  double start, own, slowest;
  int right = 1, turn;
  for (turn = 0; turn < turns; turn++) plan[turn].dimension = (uint32_t)(dimensions - 1 - turn % dimensions);
  rounds.plan = plan;
  rounds.round_count = (size_t)turns;
  rounds.absorb = absorb;
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  if (group == NULL) {
    char *end = plain(input, one, other);
    own = MPI_Wtime() - start;
    if (end != one) memcpy(one, end, bytes);
  } else {
    right = ftsort_rounds_run(group, &rounds, input, bytes, &result) == FTSORT_OK;
    own = MPI_Wtime() - start;
    ftsort_get_stats(group, stats);
    right = right && ftsort_result_block(result, 0, &state) == FTSORT_OK && state.count == bytes &&
            memcmp(state.data, expected, bytes) == 0;
    ftsort_result_free(result);
  }
  if (!right) {
    fprintf(stderr, "rank %d: %s\n", rank, group ? ftsort_last_error(group) : "wrong");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

/* Medians, in microseconds. */
static void compare(ftsort **groups, int repetitions, double *median)
{
  static double seconds[WAYS][1000];
  char *input = (char *)malloc(bytes), *one = (char *)malloc(bytes), *other = (char *)malloc(bytes);
  ftsort_stats stats = FTSORT_STATS_INIT;
  int way, k;
  size_t i;
  if (!input || !one || !other) MPI_Abort(MPI_COMM_WORLD, 1);
  for (i = 0; i < bytes / 8; i++) {
    double number = (double)((i + 1) * (size_t)(rank + 3) % 1009);
    int64_t whole = (int64_t)number;
    memcpy(input + 8 * i, fft ? (void *)&number : (void *)&whole, 8);
  }
  for (k = -1; k < repetitions; k++) /* the first one warms up */
    for (way = 0; way < WAYS; way++) {
      double took = measure(groups[way], input, one, other, one, &stats);
      if (k >= 0) seconds[way][k] = took;
    }
  for (way = 0; way < WAYS; way++) {
    qsort(seconds[way], (size_t)repetitions, sizeof(double), by_value);
    median[way] = 1e6 * seconds[way][repetitions / 2];
  }
  free(input);
  free(one);
  free(other);
}

/* Prints a line of the table. */
static void print_ratios(ftsort **groups, int repetitions)
{
  double median[WAYS];
  compare(groups, repetitions, median);
  if (rank == 0)
    printf("| %s | %d | %lu | %.0f | %.0f | %.0f | %.2f | %.2f |\n", fft ? "FFT" : "all-reduce", ranks,
           (unsigned long)bytes, median[PLAIN], median[NONE], median[MEMORY], median[NONE] / median[PLAIN],
           median[MEMORY] / median[PLAIN]);
  fflush(stdout);
}

/* Measures the cost of one more round with states of 8 bytes, and of a call without its rounds. */
static void print_costs(ftsort **groups, int repetitions)
{
  double few[WAYS], many[WAYS], round[WAYS];
  int way;
  bytes = 8;
  compare(groups, repetitions, few);
  turns += 100;
  compare(groups, repetitions, many);
  turns = dimensions;
  for (way = 0; way < WAYS; way++) round[way] = (many[way] - few[way]) / 100;
  if (rank == 0)
    printf("| ranks | a round: plain | no store | memory store | a call: no store | memory store |\n"
           "|---|---|---|---|---|---|\n| %d | %.1f | %.1f | %.1f | %.0f | %.0f |\n\n",
           ranks, round[PLAIN], round[NONE], round[MEMORY], few[NONE] - turns * round[NONE],
           few[MEMORY] - turns * round[MEMORY]);
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *groups[WAYS] = {NULL, NULL, NULL};
  int repetitions = argc > 1 ? atoi(argv[1]) : 21, greatest = argc > 2 ? atoi(argv[2]) : 26, log2, times;
  size_t i;

  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  config.store = FTSORT_STORE_NONE;
  if (ftsort_init(MPI_COMM_WORLD, &config, &groups[NONE]) != FTSORT_OK ||
      ftsort_init(MPI_COMM_WORLD, NULL, &groups[MEMORY]) != FTSORT_OK || ranks < 2 || (ranks & (ranks - 1)) != 0 ||
      repetitions < 1 || repetitions > 1000) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  while (1 << dimensions < ranks) dimensions++;
  turns = dimensions;
  print_costs(groups, repetitions);
  if (rank == 0)
    printf("| program | ranks | bytes of a node | plain | no store | memory store | ratio | ratio |\n"
           "|---|---|---|---|---|---|---|---|\n");
  for (log2 = 3; log2 <= greatest; log2 = log2 == 3 ? 10 : log2 + 4) {
    times = log2 > 20 ? (repetitions + 2) / 3 : repetitions;
    bytes = (size_t)1 << log2;
    print_ratios(groups, times);
  }
  fft = 1;
  for (log2 = 12; log2 <= greatest - 4; log2 += 5) {
    n = (size_t)1 << log2;
    share = n / (size_t)ranks;
    bytes = share * sizeof(complex_number);
    roots = (complex_number *)malloc(n * sizeof *roots);
    if (roots == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (i = 0; i < n; i++) {
      roots[i].re = cos(-2 * acos(-1.0) * (double)i / (double)n);
      roots[i].im = sin(-2 * acos(-1.0) * (double)i / (double)n);
    }
    print_ratios(groups, repetitions);
    free(roots);
  }
  ftsort_free(groups[NONE]);
  ftsort_leave(groups[MEMORY], 0);
  return 1;
}
