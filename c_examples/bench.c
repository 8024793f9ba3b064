/* Measures the sort: 2^K random numbers over all ranks, the same for every run.
 *
 *   ftsort-mpirun -np 4 ./bench [-k K] [-t i32|u64|f64] [-s memory|directory|none] [-d DIR]
 *                               [-c replicas] [-n repetitions] [-a algorithm] [-p] [-x]   (-a: its number
 *                               in ftsort_algorithm; -p: the papers' pivots; -x: blocks are checked)
 *
 * Prints a table of phases, and one line for machines. Times are those of the slowest rank in each
 * phase; the median over the repetitions counts. Inputs are made before the clock starts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ftsort.h"

enum { TOTAL, SORT, EXCHANGE, MERGE, STORE, COMMIT, REPAIR, PHASES };
static const char *const names[PHASES] = {"total", "sort", "exchange", "merge", "store", "commit", "repair"};

static uint64_t mix(uint64_t x) /* splitmix64 */
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void read_phases(const ftsort_stats *stats, double *seconds)
{
  seconds[TOTAL] = stats->total_seconds;
  seconds[SORT] = stats->sort_seconds;
  seconds[EXCHANGE] = stats->exchange_seconds;
  seconds[MERGE] = stats->merge_seconds;
  seconds[STORE] = stats->store_seconds;
  seconds[COMMIT] = stats->commit_seconds;
  seconds[REPAIR] = stats->repair_seconds;
}

/* Is every block in order, and do all of them have the right number of records? */
static int is_right(const ftsort_result *result, const char *type, uint64_t total)
{
  ftsort_block block;
  size_t i, k;
  for (i = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++)
    for (k = 1; k < block.count; k++)
      if (type[0] == 'i' ? ((const int32_t *)block.data)[k - 1] > ((const int32_t *)block.data)[k]
          : type[0] == 'u' ? ((const uint64_t *)block.data)[k - 1] > ((const uint64_t *)block.data)[k]
                           : ((const double *)block.data)[k - 1] > ((const double *)block.data)[k])
        return 0;
  return ftsort_result_total(result) == total;
}

static void *make_input(const char *type, int rank, size_t count, size_t bytes)
{
  char *data = (char *)malloc(count * bytes + 1);
  size_t i;
  for (i = 0; data && i < count; i++) {
    uint64_t bits = mix((uint64_t)rank << 40 | i);
    double number = (double)bits - 9e18; /* no NaN, which would not compare */
    memcpy(data + i * bytes, type[0] == 'f' ? (const void *)&number : (const void *)&bits, bytes);
  }
  return data;
}

int main(int argc, char **argv)
{
  static double seconds[PHASES][100];
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort *group = NULL;
  const char *type = "i32", *store = "memory";
  int k = 22, repetitions = 5, option, rank, ranks, n, phase;
  unsigned long long peak, resident, most[2], mine[2];
  struct rusage usage;
  size_t count;
  void *data;

  while ((option = getopt(argc, argv, "k:t:s:d:c:n:a:px")) != -1) {
    if (option == 'k') k = atoi(optarg);
    else if (option == 't') type = optarg;
    else if (option == 's') store = optarg;
    else if (option == 'd') config.store_directory = optarg;
    else if (option == 'a') config.algorithm = atoi(optarg);
    else if (option == 'c') config.replicas = (uint32_t)atoi(optarg);
    else if (option == 'n') repetitions = atoi(optarg);
    else if (option == 'p') config.pivot = FTSORT_PIVOT_PAPER;
    else if (option == 'x') config.checks = FTSORT_CHECK_DIGEST;
    else return 2;
  }
  if (repetitions < 1 || repetitions > 100) return 2;
  if (type[0] != 'i') record.record_bytes = 8;
  record.key = type[0] == 'i' ? FTSORT_KEY_I32 : type[0] == 'u' ? FTSORT_KEY_U64 : FTSORT_KEY_F64;
  config.store = store[0] == 'd' ? FTSORT_STORE_DIRECTORY : store[0] == 'n' ? FTSORT_STORE_NONE : FTSORT_STORE_MEMORY;

  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  count = ((size_t)1 << k) / (size_t)ranks;
  data = make_input(type, rank, count, record.record_bytes);
  for (n = -1; n < repetitions; n++) { /* the first one warms up */
    ftsort_result *result = NULL;
    double own[PHASES], slowest[PHASES];
    MPI_Barrier(MPI_COMM_WORLD);
    if (ftsort_run(group, &record, data, count, &result) != FTSORT_OK ||
        !is_right(result, type, (uint64_t)count * (uint64_t)ranks)) {
      fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    ftsort_result_free(result);
    ftsort_get_stats(group, &stats);
    read_phases(&stats, own);
    MPI_Allreduce(own, slowest, PHASES, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (phase = 0; n >= 0 && phase < PHASES; phase++) seconds[phase][n] = slowest[phase];
  }
  getrusage(RUSAGE_SELF, &usage);
  mine[0] = stats.peak_bytes;
  mine[1] = (unsigned long long)usage.ru_maxrss * 1024;
  MPI_Allreduce(mine, most, 2, MPI_UNSIGNED_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
  peak = most[0];
  resident = most[1];
  if (rank == 0) {
    double records = (double)count * ranks;
    for (phase = 0; phase < PHASES; phase++)
      qsort(seconds[phase], (size_t)repetitions, sizeof(double), by_value);
    printf("ftsort-bench type=%s log2=%d ranks=%d store=%s replicas=%u", type, k, ranks, store, config.replicas);
    for (phase = 0; phase < PHASES; phase++) printf(" %s=%.6f", names[phase], seconds[phase][repetitions / 2]);
    printf(" peak=%llu resident=%llu input=%zu\n", peak, resident, count * record.record_bytes);
    for (phase = 0; phase < PHASES; phase++)
      printf("  %-9s %8.3f ns a record  %5.1f %%\n", names[phase], seconds[phase][repetitions / 2] / records * 1e9,
             100 * seconds[phase][repetitions / 2] / seconds[TOTAL][repetitions / 2]);
    printf("  memory    %8.2f times a rank's input\n", (double)peak / (double)(count * record.record_bytes));
  }
  free(data);
  ftsort_leave(group, 0);
  return 1;
}
