/* Measures the sorts that McMillin and Ni compare (1989, Figures 6 to 8), on MPI.
 *
 *   ftsort-mpirun -np 8 ./reliable [-b records of a rank] [-n repetitions] [-c copies]
 *
 *   by_hand        a bitonic sort with MPI_Sendrecv alone: the paper's S_NR, which tolerates no failure; only on 2^d
 *                  ranks
 *   plain          ftsort's bitonic sort, which tolerates process failures
 *   checked        the same with the three checks of 1989: the paper's S_FT, corrected (docs/reliable.md)
 *   digest         the same with FTSORT_CHECK_DIGEST instead of them
 *   host           rank 0 gathers all records, sorts them, and scatters them
 *   host_verifies  `plain`; rank 0 gathers all records before and after the sort, sorts the first, and compares
 *
 * All sort the same random 32-bit integers, in turn, so that noise of the machine affects all alike. A time is that of
 * the slowest rank, from a barrier to its sorted block. After the clock has stopped, every block is compared with the
 * expected one. Prints a line for each sort: the median, the least and the greatest time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ftsort.h"
#include "ftsort_verify.h"
#include "measure.h"

enum { BY_HAND, PLAIN, CHECKED, DIGEST, HOST, HOST_VERIFIES, PLANS };
static const char *const names[PLANS] = {"by_hand", "plain", "checked", "digest", "host", "host_verifies"};
#define MOST_REPETITIONS 1000

static int rank, ranks;
static size_t block = 1, total;
/* The input of this rank, its sorted block, and memory for a block of another rank; memory for all records on the
 * host. */
static int32_t *input, *sorted, *other, *merged, *before, *after, *scratch, *expected;
static ftsort *groups[HOST]; /* PLAIN, CHECKED and DIGEST */

static void give_up(const char *why)
{
  fprintf(stderr, "rank %d: %s\n", rank, why);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int32_t *room(size_t records)
{
  int32_t *place = (int32_t *)malloc(records * sizeof(int32_t) + 1);
  if (!place) give_up("no memory");
  return place;
}

/* Sorts on one processor: radix sort for many records, insertion sort for few. */
static void sort_here(int32_t *data, size_t count, int32_t *spare)
{
  size_t i, k, place[256];
  int shift;
  if (count < 64) {
    for (i = 1; i < count; i++) {
      int32_t x = data[i];
      for (k = i; k > 0 && data[k - 1] > x; k--) data[k] = data[k - 1];
      data[k] = x;
    }
    return;
  }
  for (shift = 0; shift < 32; shift += 8) {
    uint32_t flip = shift == 24 ? 0x80 : 0; /* negative numbers come first */
    int32_t *swap = data;
    memset(place, 0, sizeof place);
    for (i = 0; i < count; i++) place[((uint32_t)data[i] >> shift & 255) ^ flip]++;
    for (i = k = 0; k < 256; k++) {
      size_t many = place[k];
      place[k] = i;
      i += many;
    }
    for (i = 0; i < count; i++) spare[place[((uint32_t)data[i] >> shift & 255) ^ flip]++] = data[i];
    data = spare;
    spare = swap;
  }
}

/* Keeps the smaller or the greater half of two sorted blocks. */
static void split_merged(int smaller)
{
  int32_t *swap = sorted;
  size_t i, a, b;
  if (smaller) {
    for (i = a = b = 0; i < block; i++) merged[i] = sorted[a] <= other[b] ? sorted[a++] : other[b++];
  } else {
    for (i = a = b = block; i-- > 0;) merged[i] = sorted[a - 1] > other[b - 1] ? sorted[--a] : other[--b];
  }
  sorted = merged;
  merged = swap;
}

static void by_hand(void)
{
  int stage, step, dimension = 0;
  while (1 << dimension < ranks) dimension++;
  memcpy(sorted, input, block * sizeof *sorted);
  sort_here(sorted, block, merged);
  for (stage = 0; stage < dimension; stage++)
    for (step = stage; step >= 0; step--) {
      int partner = rank ^ 1 << step;
      MPI_Sendrecv(sorted, (int)block, MPI_INT32_T, partner, 0, other, (int)block, MPI_INT32_T, partner, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      split_merged(((rank >> (stage + 1) ^ rank >> step) & 1) == 0);
    }
}

static void by_group(ftsort *group)
{
  static const ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_result *result = NULL;
  ftsort_block own;
  if (ftsort_run(group, &record, input, block, &result) != FTSORT_OK) give_up(ftsort_last_error(group));
  if (ftsort_result_block(result, 0, &own) != FTSORT_OK || own.count != block) give_up("another block");
  memcpy(sorted, own.data, block * sizeof *sorted);
  ftsort_result_free(result);
}

static void gather(const int32_t *from, int32_t *into)
{
  MPI_Gather(from, (int)block, MPI_INT32_T, into, (int)block, MPI_INT32_T, 0, MPI_COMM_WORLD);
}

static void by_host(void)
{
  gather(input, before);
  if (rank == 0) sort_here(before, total, scratch);
  MPI_Scatter(before, (int)block, MPI_INT32_T, sorted, (int)block, MPI_INT32_T, 0, MPI_COMM_WORLD);
}

static void verified_by_host(void)
{
  int right = 1;
  gather(input, before);
  by_group(groups[PLAIN]);
  gather(sorted, after);
  if (rank == 0) {
    sort_here(before, total, scratch);
    right = memcmp(before, after, total * sizeof *after) == 0;
  }
  MPI_Bcast(&right, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (!right) give_up("the host finds the result wrong");
}

static double time_of(int plan)
{
  double seconds, slowest;
  memset(sorted, 0, block * sizeof *sorted);
  MPI_Barrier(MPI_COMM_WORLD);
  seconds = MPI_Wtime();
  if (plan == BY_HAND) by_hand();
  else if (plan == HOST) by_host();
  else if (plan == HOST_VERIFIES) verified_by_host();
  else by_group(groups[plan]);
  seconds = MPI_Wtime() - seconds;
  if (memcmp(sorted, expected + (size_t)rank * block, block * sizeof *sorted) != 0) give_up("the result is wrong");
  MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static void prepare(uint32_t copies)
{
  const uint32_t predicates = FTSORT_CHECK_PROGRESS | FTSORT_CHECK_FEASIBILITY | FTSORT_CHECK_CONSISTENCY;
  ftsort_config config = FTSORT_CONFIG_INIT;
  int plan;
  size_t i;
  config.algorithm = FTSORT_BITONIC;
  config.store = copies == 0 ? FTSORT_STORE_NONE : FTSORT_STORE_MEMORY;
  config.replicas = copies;
  for (plan = PLAIN; plan <= DIGEST; plan++) {
    config.checks = plan == CHECKED ? predicates : plan == DIGEST ? FTSORT_CHECK_DIGEST : 0;
    if (ftsort_init(MPI_COMM_WORLD, &config, &groups[plan]) != FTSORT_OK) give_up(ftsort_last_error(NULL));
  }
  total = block * (size_t)ranks;
  input = room(block), sorted = room(block), other = room(block), merged = room(block);
  before = room(total), after = room(total), scratch = room(total), expected = room(total);
  for (i = 0; i < total; i++) expected[i] = (int32_t)(uint32_t)mix(i);
  memcpy(input, expected + (size_t)rank * block, block * sizeof *input);
  sort_here(expected, total, scratch);
}

int main(int argc, char **argv)
{
  static double seconds[PLANS][MOST_REPETITIONS];
  int repetitions = 9, option, plan, n;
  uint32_t copies = 0;

  while ((option = getopt(argc, argv, "b:n:c:")) != -1) {
    if (option == 'b') block = strtoull(optarg, NULL, 10);
    else if (option == 'n') repetitions = atoi(optarg);
    else if (option == 'c') copies = (uint32_t)atoi(optarg);
    else return 2;
  }
  if (repetitions < 1 || repetitions > MOST_REPETITIONS || block < 1 || block > 1 << 28) return 2;

  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  prepare(copies);
  for (n = -2; n < repetitions; n++) /* the first two warm up */
    for (plan = ranks & (ranks - 1) ? PLAIN : BY_HAND; plan < PLANS; plan++) {
      double slowest = time_of(plan);
      if (n >= 0) seconds[plan][n] = slowest;
    }
  for (plan = ranks & (ranks - 1) ? PLAIN : BY_HAND; rank == 0 && plan < PLANS; plan++) {
    qsort(seconds[plan], (size_t)repetitions, sizeof(double), by_value);
    printf("reliable plan=%s ranks=%d block=%llu copies=%u repetitions=%d median=%.7f least=%.7f most=%.7f\n",
           names[plan], ranks, (unsigned long long)block, copies, repetitions, seconds[plan][repetitions / 2],
           seconds[plan][0],
           seconds[plan][repetitions - 1]);
  }
  fflush(stdout);
  free(input), free(sorted), free(other), free(merged);
  free(before), free(after), free(scratch), free(expected);
  ftsort_free(groups[DIGEST]);
  ftsort_free(groups[CHECKED]);
  ftsort_leave(groups[PLAIN], 0);
  return 1;
}
