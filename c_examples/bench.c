/* Measures sorts of 2^K random records over all ranks. The records are the same in every run.
 *
 *   ftsort-mpirun -np 4 ./bench [-k K] [-t i32|u64|f64|pairs] [-s STORE] [-d DIR]
 *                               [-c replicas] [-n repetitions] [-a algorithm] [-p] [-x checks] [-f faults]
 *                               [-b STORE] [-m arrays]
 *
 * STORE  memory, released (memory with release_after_run), directory, synced (a directory with store_sync), reload,
 *        none, parity, or bare (parity with release_after_run)
 * -c  the replicas of the store memory, or the shares of the store parity
 * -a  a number of ftsort_algorithm
 * -p  the papers' pivots
 * -x  the sum of numbers of ftsort_check
 * -b  a second store to compare with: every sort is paired with one that uses this store, alternately before and
 *     after it, so that noise of the machine affects both. `beside` is the median ratio of their times.
 * -m  divides the records of each rank into so many arrays, and compares one ftsort_run_many (`many`) with one ftsort_run
 *     for each array (`each`), in turns. Both are seconds of the slowest rank, and `ratio` is the median of each / many.
 * -f  the failures of one more sort, as in FTSORT_FAULTS. MPI's collectives are not usable after a failure, so each
 *     survivor prints a line. `struck` is the time of the last agreement on a failure, `made` the time of generating
 *     inputs of failed ranks since then, and `peak` the largest memory in bytes.
 *
 * Prints one line for scripts and a table of phases. The time of a phase is that of the slowest rank; the output has
 * medians over the repetitions. Inputs are generated before the clock starts. One sort before the
 * repetitions warms up; `first` is its time.
 * `allreduce` is the time of an MPI_Allreduce of one number. `off` is the greatest difference between the records of a rank
 * before and after a sort. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ftsort.h"
#include "ftsort_query.h"
#include "ftsort_verify.h"
#include "leave.h"
#include "measure.h"

enum { TOTAL, SORT, EXCHANGE, MERGE, STORE, COMMIT, REPAIR, PHASES };
static const char *const names[PHASES] = {"total", "sort", "exchange", "merge", "store", "commit", "repair"};

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

typedef struct pair {
  uint64_t key, value;
} pair;

/* Whether the record is less than the one before it. */
static int is_less(const char *type, const void *data, size_t k)
{
  if (type[0] == 'i') return ((const int32_t *)data)[k] < ((const int32_t *)data)[k - 1];
  if (type[0] == 'u') return ((const uint64_t *)data)[k] < ((const uint64_t *)data)[k - 1];
  if (type[0] == 'f') return ((const double *)data)[k] < ((const double *)data)[k - 1];
  return ((const pair *)data)[k].key < ((const pair *)data)[k - 1].key;
}

/* Whether every block is in order, and the total is right. */
static int is_right(const ftsort_result *result, const char *type, uint64_t total)
{
  ftsort_block block;
  size_t i, k;
  for (i = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++)
    for (k = 1; k < block.count; k++)
      if (is_less(type, block.data, k)) return 0;
  return ftsort_result_total(result) == total;
}

/* The number of records of the result on this rank. */
static size_t records_here(const ftsort_result *result)
{
  ftsort_block block;
  size_t i, records = 0;
  for (i = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++) records += block.count;
  return records;
}

/* One loop for each type, because the time counts if an input is generated again during a sort. */
static void fill(const char *type, int rank, size_t count, void *data)
{
  const uint64_t seed = (uint64_t)rank << 40;
  size_t i;
  if (type[0] == 'i')
    for (i = 0; i < count; i++) ((int32_t *)data)[i] = (int32_t)mix(seed | i);
  else if (type[0] == 'u')
    for (i = 0; i < count; i++) ((uint64_t *)data)[i] = mix(seed | i);
  else if (type[0] == 'f')
    for (i = 0; i < count; i++) ((double *)data)[i] = (double)mix(seed | i) - 9e18; /* never a NaN */
  else
    for (i = 0; i < count; i++) {
      ((pair *)data)[i].key = mix(seed | i);
      ((pair *)data)[i].value = 0;
    }
}

/* All that the generation of an input needs; the time of the last agreement on a failure; and the seconds of
 * generating inputs since then. */
typedef struct recipe {
  const char *type;
  size_t count, bytes;
  double struck, made;
} recipe;

/* Sorts once, and returns the seconds of the slowest rank in each phase. `off` becomes the greatest difference between this
 * rank's records before and after a sort. Returns 0 if the sort fails or the result is wrong. */
static int sort_once(ftsort *group, const ftsort_record *record, const recipe *input, const void *data, double *slowest,
                     size_t *off)
{
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_result *result = NULL;
  double own[PHASES];
  size_t records, difference;
  int ranks, sorted;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  sorted = ftsort_run(group, record, data, input->count, &result) == FTSORT_OK;
  /* Checks the result only after all ranks have left the sort, since ranks may share a processor. */
  MPI_Barrier(MPI_COMM_WORLD);
  if (!sorted || !is_right(result, input->type, (uint64_t)input->count * (uint64_t)ranks)) return 0;
  records = records_here(result);
  difference = records > input->count ? records - input->count : input->count - records;
  if (difference > *off) *off = difference;
  ftsort_result_free(result);
  ftsort_get_stats(group, &stats);
  read_phases(&stats, own);
  MPI_Allreduce(own, slowest, PHASES, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return 1;
}

/* Sorts all arrays, together or one after the other. Returns the seconds of the slowest rank, or -1 if a sort fails or
 * a result is wrong. */
static double sort_arrays(ftsort *group, const ftsort_array *arrays, size_t count, const char *type, int together)
{
  ftsort_result **results = (ftsort_result **)calloc(count, sizeof *results);
  ftsort_status status = results ? FTSORT_OK : FTSORT_ERR_MEMORY;
  double start, seconds, slowest;
  size_t i;
  int ranks, right = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  if (together && status == FTSORT_OK) status = ftsort_run_many(group, arrays, count, results);
  for (i = 0; !together && i < count && status == FTSORT_OK; i++)
    status = ftsort_run(group, arrays[i].record, arrays[i].data, arrays[i].count, &results[i]);
  seconds = MPI_Wtime() - start;
  for (i = 0; i < count && status == FTSORT_OK; i++) {
    right = right && is_right(results[i], type, (uint64_t)arrays[i].count * (uint64_t)ranks);
    ftsort_result_free(results[i]);
  }
  free(results);
  if (status != FTSORT_OK || !right) return -1;
  MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

/* Compares ftsort_run_many with ftsort_run for each array, and prints the medians of all repetitions. */
static void compare_many(ftsort *group, const ftsort_record *record, const recipe *input, const char *data, int arrays,
                         int repetitions)
{
  static double seconds[2][100], ratios[100];
  ftsort_array *all = (ftsort_array *)calloc((size_t)arrays, sizeof *all);
  size_t each = input->count / (size_t)arrays;
  int i, n, rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (i = 0; all && i < arrays; i++) {
    all[i].record = record;
    all[i].data = data + (size_t)i * each * record->record_bytes;
    all[i].count = each;
  }
  for (n = -1; n < repetitions; n++) { /* the first one warms up */
    int turn;
    for (turn = 0; turn < 2; turn++) {
      int together = (turn + n) & 1;
      double time = all ? sort_arrays(group, all, (size_t)arrays, input->type, together) : -1;
      if (time < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      if (n >= 0) seconds[together][n] = time;
    }
    if (n >= 0) ratios[n] = seconds[0][n] / seconds[1][n];
  }
  if (rank == 0)
    printf("ftsort-bench type=%s ranks=%d arrays=%d records=%zu each=%.6f many=%.6f ratio=%.2f\n", input->type, ranks,
           arrays, each, median(seconds[0], repetitions), median(seconds[1], repetitions), median(ratios, repetitions));
  free(all);
}

static int reload(void *user, int32_t rank, ftsort_buffer *out)
{
  recipe *input = (recipe *)user;
  double start = MPI_Wtime();
  void *data = ftsort_buffer_resize(out, input->count * input->bytes);
  if (!data) return 1;
  fill(input->type, rank, input->count, data);
  input->made += MPI_Wtime() - start;
  return 0;
}

static void note(void *user, const ftsort_event *event)
{
  recipe *input = (recipe *)user;
  if (event->kind != FTSORT_EVENT_FAILURE) return;
  input->struck = MPI_Wtime();
  input->made = 0;
}

static double seconds_of_allreduce(void)
{
  enum { TIMES = 200 };
  double start, one = 1, sum;
  int i;
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  for (i = 0; i < TIMES; i++) MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return (MPI_Wtime() - start) / TIMES;
}

static int is_released(const char *store) { return strcmp(store, "released") == 0 || strcmp(store, "bare") == 0; }

/* Makes a group of all ranks with this store. */
static ftsort *group_with(ftsort_store store, ftsort_config *config)
{
  ftsort *group = NULL;
  config->store = store;
  config->reload = store == FTSORT_STORE_RELOAD ? reload : NULL;
  if (ftsort_init(MPI_COMM_WORLD, config, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return group;
}

/* Sorts with failures, and prints the outcome of this rank. */
static int sort_with_failures(ftsort_config config, const ftsort_record *record, recipe *input, const void *data,
                              int rank, int ranks)
{
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort *group;
  ftsort_result *result;
  ftsort_status status;
  double start;
  int right;
  config.on_event = note;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  start = input->struck = MPI_Wtime();
  input->made = 0;
  status = ftsort_run(group, record, data, input->count, &result);
  ftsort_get_stats(group, &stats);
  /* This agreement also waits until all ranks have left the sort. */
  if (status == FTSORT_OK) status = ftsort_fault_check(group, NULL);
  right = status == FTSORT_OK && is_right(result, input->type, (uint64_t)input->count * (uint64_t)ranks);
  if (!right) fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
  printf("ftsort-suffered rank=%d outcome=%s total=%.6f repair=%.6f struck=%.6f made=%.6f faults=%d replayed=%d "
         "records=%zu peak=%llu\n",
         rank, right ? "right" : "lost", stats.total_seconds, stats.repair_seconds, input->struck - start,
         input->made, (int)stats.failures, (int)stats.rounds_replayed, right ? records_here(result) : 0,
         (unsigned long long)stats.peak_bytes);
  ftsort_result_free(result);
  leave_with(group, right ? 0 : 1);
  return 1;
}

/* The index of a word in a list that ends with NULL, or -1. */
static int place_of(const char *word, const char *const *words)
{
  int k;
  for (k = 0; words[k]; k++)
    if (!strcmp(words[k], word)) return k;
  return -1;
}

int main(int argc, char **argv)
{
  static const char *const types[] = {"i32", "u64", "f64", "pairs", NULL};
  static const char *const stores[] = {"memory", "released", "directory", "synced", "reload", "none",
                                       "parity", "bare", NULL};
  static const ftsort_store kinds[] = {FTSORT_STORE_MEMORY,    FTSORT_STORE_MEMORY, FTSORT_STORE_DIRECTORY,
                                       FTSORT_STORE_DIRECTORY, FTSORT_STORE_RELOAD, FTSORT_STORE_NONE,
                                       FTSORT_STORE_PARITY,    FTSORT_STORE_PARITY};
  static double seconds[PHASES][100], ratios[100];
  ftsort_config config = FTSORT_CONFIG_INIT;
  const ftsort_record numbers = FTSORT_RECORD_PLAIN(uint64_t, FTSORT_KEY_U64);
  const ftsort_record floats = FTSORT_RECORD_PLAIN(double, FTSORT_KEY_F64);
  const ftsort_record pairs = FTSORT_RECORD_MEMBER(pair, key, FTSORT_KEY_U64);
  ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort *group, *neighbour = NULL;
  const char *type = "i32", *store = "memory", *beside = NULL, *faults = NULL;
  int k = 22, repetitions = 5, arrays = 0, option, rank, ranks, n, phase;
  unsigned long long peak, resident, most[3], mine[3];
  struct rusage usage;
  recipe input;
  size_t count, off = 0;
  char *data;
  double allreduce, first = 0;

  while ((option = getopt(argc, argv, "k:t:s:b:d:c:n:a:f:x:m:p")) != -1) {
    if (option == 'k') k = atoi(optarg);
    else if (option == 't') type = optarg;
    else if (option == 's') store = optarg;
    else if (option == 'b') beside = optarg;
    else if (option == 'd') config.store_directory = optarg;
    else if (option == 'a') config.algorithm = atoi(optarg);
    else if (option == 'c') config.replicas = config.parity = (uint32_t)atoi(optarg);
    else if (option == 'n') repetitions = atoi(optarg);
    else if (option == 'f') faults = optarg;
    else if (option == 'm') arrays = atoi(optarg);
    else if (option == 'p') config.pivot = FTSORT_PIVOT_PAPER;
    else if (option == 'x') config.checks = (uint32_t)atoi(optarg);
    else return 2;
  }
  if (repetitions < 1 || repetitions > 100 || place_of(type, types) < 0 || place_of(store, stores) < 0 ||
      (beside && place_of(beside, stores) < 0)) {
    fprintf(stderr, "bench: -t %s, -s %s, -b %s or -n %d is not valid\n", type, store, beside ? beside : "",
            repetitions);
    return 2;
  }
  record = type[0] == 'u' ? numbers : type[0] == 'f' ? floats : type[0] == 'p' ? pairs : record;
  config.user = &input;
  config.faults = "";

  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  config.store_sync = beside && strcmp(beside, "synced") == 0;
  config.release_after_run = beside && is_released(beside);
  if (beside) neighbour = group_with(kinds[place_of(beside, stores)], &config);
  config.store_sync = strcmp(store, "synced") == 0;
  config.release_after_run = is_released(store);
  group = group_with(kinds[place_of(store, stores)], &config);
  count = ((size_t)1 << k) / (size_t)ranks;
  input.type = type;
  input.count = count;
  input.bytes = record.record_bytes;
  data = (char *)malloc(count * record.record_bytes + 1);
  if (!data) MPI_Abort(MPI_COMM_WORLD, 1);
  fill(type, rank, count, data);
  if (arrays > 0) {
    compare_many(group, &record, &input, data, arrays, repetitions);
    free(data);
    ftsort_leave(group, 0);
    return 1;
  }
  allreduce = seconds_of_allreduce();
  for (n = -1; n < repetitions; n++) { /* the first one warms up */
    double slowest[PHASES], other[PHASES];
    int turn;
    for (turn = 0; turn < 2; turn++) {
      ftsort *now = (turn + n) % 2 ? group : neighbour;
      if (now && !sort_once(now, &record, &input, data, now == group ? slowest : other, &off)) {
        fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(now));
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
    if (n < 0) first = slowest[TOTAL];
    for (phase = 0; n >= 0 && phase < PHASES; phase++) seconds[phase][n] = slowest[phase];
    if (n >= 0 && beside) ratios[n] = slowest[TOTAL] / other[TOTAL];
  }
  ftsort_get_stats(group, &stats);
  getrusage(RUSAGE_SELF, &usage);
  mine[0] = stats.peak_bytes;
  mine[1] = (unsigned long long)usage.ru_maxrss * 1024;
  mine[2] = off;
  MPI_Allreduce(mine, most, 3, MPI_UNSIGNED_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
  peak = most[0];
  resident = most[1];
  if (rank == 0) {
    double records = (double)count * ranks;
    double typical[PHASES];
    for (phase = 0; phase < PHASES; phase++) typical[phase] = median(seconds[phase], repetitions);
    printf("ftsort-bench type=%s log2=%d ranks=%d store=%s replicas=%u", type, k, ranks, store, config.replicas);
    for (phase = 0; phase < PHASES; phase++) printf(" %s=%.6f", names[phase], typical[phase]);
    if (beside) printf(" beside=%.4f", median(ratios, repetitions));
    printf(" first=%.6f", first);
    printf(" peak=%llu resident=%llu input=%zu allreduce=%.9f off=%llu\n", peak, resident, count * record.record_bytes,
           allreduce, most[2]);
    for (phase = 0; phase < PHASES; phase++)
      printf("  %-9s %8.3f ns per record  %5.1f %%\n", names[phase], typical[phase] / records * 1e9,
             100 * typical[phase] / typical[TOTAL]);
    printf("  memory    %8.2f times a rank's input\n", (double)peak / (double)(count * record.record_bytes));
  }
  ftsort_free(neighbour); /* releases the files of its last result */
  if (faults) {
    ftsort_free(group);
    config.faults = faults;
    return sort_with_failures(config, &record, &input, data, rank, ranks);
  }
  free(data);
  ftsort_leave(group, 0);
  return 1;
}
