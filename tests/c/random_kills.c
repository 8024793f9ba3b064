/* The program of scripts/random_kills.py: a sort in which ranks are killed from outside at any instant.
 *
 *   random_kills sort DIR STORE REPLICAS COUNT SEED MODE AGAIN HOLD    (under mpirun)
 *   random_kills measure DIR STORE REPLICAS COUNT SEED TURNS           (under mpirun)
 *   random_kills check RANKS COUNT SEED OFFSET:COUNT...                (without mpirun)
 *
 * Every rank has COUNT random integers of 32 bits. STORE is memory, directory or none.
 *
 * "sort" has four modes. "call" sorts by ftsort_run. "protected" calls ftsort_protect before the start, and sorts by
 * ftsort_run_protected. "free" sorts by ftsort_run and behaves like a program that writes its output: it reads every
 * block several times and prints its digest, agrees that all ranks have done so, and recovers the result and prints the
 * rebuilt blocks until an agreement finds no new failure. "successive" protects its input and writes its results in the
 * same way. It sorts again until a sort returns with at least AGAIN failed ranks. Then it releases the input, and keeps
 * the result until HOLD ranks have failed. The other modes ignore AGAIN and HOLD.
 *
 * "sort" prints lines, each with the rank and some with the seconds of the monotonic clock. RANKS are joined by commas;
 * "-" stands for none. The lines from "enter" to "free" belong to one sort.
 *
 *   input RANK COUNT SUM XOR           the digest of the rank's records, before the sort
 *   enter RANK SECONDS                 ftsort_run or ftsort_run_protected begins
 *   return RANK SECONDS STATUS         it has returned
 *   lost RANK RANKS                    the ranks of ftsort_lost_ranks
 *   block RANK NODE OFFSET COUNT SUM XOR FIRST LAST ORDERED
 *   changed RANK NODE                  a block differs from its digest of before
 *   recovered RANK SECONDS STATUS      ftsort_result_recover has returned
 *   whole RANK SECONDS RANKS           the data tolerate the next failure, after these ranks have failed ("successive")
 *   written RANK SECONDS RANKS         an agreement found all blocks printed; these ranks had failed by then
 *   free RANK SECONDS                  ftsort_result_free has returned
 *
 * Digests and order are computed without ftsort; the script combines those of all ranks. "check" sorts the records of
 * all ranks by qsort and prints the digest of each named range of positions: "range OFFSET COUNT SUM XOR".
 *
 * "measure" sorts TURNS times, with a trace DIR/trace.RANK.json. Before each sort every rank sends its records to the
 * next rank by MPI_Sendrecv. It prints "turn RANK NUMBER COPY ENTER RETURN": the seconds of the copy, and the seconds
 * since 1970 at the entry of ftsort_run and at its return. */
#include <string.h>

#include "ftsort.h"
#include "outside.h"

static const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
static int rank, ranks;

struct digest {
  uint64_t sum, folded;
};

/* The digests of the blocks that this rank has written, by node. */
struct output {
  struct digest digests[64];
  char written[64];
};

/* A rank reads each block so many times before it prints the digest, so that the time after a sort is about as long as
 * the sort. */
static const int passes = 6;

static struct digest digest_of(const int32_t *keys, size_t count)
{
  struct digest digest = {0, 0};
  size_t i;
  for (i = 0; i < count; i++) {
    uint64_t bits = mix((uint32_t)keys[i]);
    digest.sum += bits;
    digest.folded ^= bits * 0x9e3779b97f4a7c15u;
  }
  return digest;
}

static int is_ordered(const int32_t *keys, size_t count)
{
  size_t i;
  for (i = 1; i < count; i++)
    if (keys[i] < keys[i - 1]) return 0;
  return 1;
}

static int32_t *allocate(size_t count)
{
  int32_t *keys = (int32_t *)malloc(count * sizeof *keys + 1);
  if (keys == NULL) abort();
  return keys;
}

static void fill(int32_t *keys, size_t count, uint64_t seed, int owner)
{
  const uint64_t place = mix(seed) ^ (uint64_t)owner << 40;
  size_t i;
  for (i = 0; i < count; i++) keys[i] = (int32_t)mix(place + i);
}

static ftsort *group_of(char **arg, const char *trace)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  config.store = strcmp(arg[1], "directory") == 0 ? FTSORT_STORE_DIRECTORY
                 : strcmp(arg[1], "none") == 0    ? FTSORT_STORE_NONE
                 : strcmp(arg[1], "parity") == 0  ? FTSORT_STORE_PARITY
                                                  : FTSORT_STORE_MEMORY;
  config.store_directory = arg[0];
  config.replicas = config.parity = (uint32_t)atoi(arg[2]);
  config.trace = trace;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return group;
}

/* Joins the numbers of failed ranks with commas; returns how many there are. */
static int failed_ranks(const ftsort *group, char *text, size_t size)
{
  int other, count = 0;
  text[0] = '\0';
  for (other = 0; other < ranks; other++) {
    if (!ftsort_is_failed(group, other)) continue;
    snprintf(text + strlen(text), size - strlen(text), "%s%d", count++ ? "," : "", other);
  }
  if (count == 0) snprintf(text, size, "-");
  return count;
}

static void say_failed(const ftsort *group, const char *word)
{
  char text[256];
  failed_ranks(group, text, sizeof text);
  say(1, "%s %d %.6f %s\n", word, rank, seconds_of(CLOCK_MONOTONIC), text);
}

static int count_failed(const ftsort *group)
{
  char text[256];
  return failed_ranks(group, text, sizeof text);
}

static void print_lost(const ftsort *group)
{
  char text[256] = "";
  int32_t lost[32];
  size_t count = ftsort_lost_ranks(group, lost, 32), i;
  for (i = 0; i < count && i < 32; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? "," : "", (int)lost[i]);
  say(1, "lost %d %s\n", rank, count ? text : "-");
}

/* Prints the blocks that have not been printed yet, and reads the others again. */
static void print_blocks(const ftsort_result *result, struct output *output, int reads)
{
  ftsort_block block;
  size_t i;
  for (i = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++) {
    const int32_t *keys = (const int32_t *)block.data;
    struct digest digest = digest_of(keys, block.count), *before = &output->digests[block.node];
    int left;
    for (left = reads; !output->written[block.node] && left > 1; left--) {
      const struct digest same = digest_of(keys, block.count);
      if (memcmp(&same, &digest, sizeof same) != 0) say(1, "changed %d %d\n", rank, (int)block.node);
    }
    if (output->written[block.node]) {
      if (memcmp(before, &digest, sizeof digest) != 0) say(1, "changed %d %d\n", rank, (int)block.node);
      continue;
    }
    say(1, "block %d %d %llu %zu %llu %llu %d %d %d\n", rank, (int)block.node, (unsigned long long)block.offset,
        block.count, (unsigned long long)digest.sum, (unsigned long long)digest.folded, block.count ? keys[0] : 0,
        block.count ? keys[block.count - 1] : 0, is_ordered(keys, block.count));
    *before = digest;
    output->written[block.node] = 1;
  }
}

static int is_fine(const ftsort *group, ftsort_status status)
{
  if (status != FTSORT_OK) fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
  return status == FTSORT_OK;
}

/* Writes all blocks, also those of ranks that fail meanwhile, and keeps the result until `hold` ranks have failed.
 * Returns 0 after an error. */
static int write_result(ftsort *group, ftsort_result *result, int hold)
{
  struct output output;
  size_t failures;
  memset(&output, 0, sizeof output);
  do {
    uint32_t written = 1;
    print_blocks(result, &output, passes);
    if (!is_fine(group, ftsort_agree(group, &written, &failures))) return 0;
    if (failures > 0) {
      const ftsort_status status = ftsort_result_recover(group, result);
      say(1, "recovered %d %.6f %d\n", rank, seconds_of(CLOCK_MONOTONIC), (int)status);
      print_lost(group);
      if (!is_fine(group, status)) return 0;
      if (hold > 0) say_failed(group, "whole");
    }
  } while (failures > 0 || count_failed(group) < hold);
  say_failed(group, "written");
  return 1;
}

/* Sorts once. `again`, `hold`: see above. Returns whether to sort again. */
static int sort_once(ftsort *group, ftsort_input **held, const int32_t *input, size_t count, int writes, int again,
                     int hold)
{
  ftsort_result *result = NULL;
  ftsort_status status;
  const int is_successive = hold > 0;
  double end;
  int fine, is_last;

  say(1, "enter %d %.6f\n", rank, seconds_of(CLOCK_MONOTONIC));
  status = *held ? ftsort_run_protected(group, *held, NULL, &result) : ftsort_run(group, &i32, input, count, &result);
  end = seconds_of(CLOCK_MONOTONIC);
  say(1, "return %d %.6f %d\n", rank, end, (int)status);
  print_lost(group);
  fine = is_fine(group, status);
  is_last = !is_successive || count_failed(group) >= again;
  if (is_successive && fine) {
    /* The result has redundancy of its own; the copies of the input are renewed by sorts only. */
    if (is_last) ftsort_input_free(*held);
    if (is_last) *held = NULL;
    say_failed(group, "whole");
  }
  if (fine && writes) {
    fine = write_result(group, result, is_last ? hold : 0);
  } else {
    struct output output;
    memset(&output, 0, sizeof output);
    print_blocks(result, &output, 1);
  }
  ftsort_result_free(result);
  say(1, "free %d %.6f\n", rank, seconds_of(CLOCK_MONOTONIC));
  return fine && !is_last;
}

static int sort(char **arg)
{
  const size_t count = strtoull(arg[3], NULL, 10);
  const char *mode = arg[5];
  const int is_successive = strcmp(mode, "successive") == 0, writes = is_successive || strcmp(mode, "free") == 0;
  const int again = is_successive ? atoi(arg[6]) : 0, hold = is_successive ? atoi(arg[7]) : 0;
  int32_t *input = allocate(count);
  struct digest digest;
  ftsort *group = group_of(arg, "");
  ftsort_input *held = NULL;

  fill(input, count, strtoull(arg[4], NULL, 10), rank);
  digest = digest_of(input, count);
  say(1, "input %d %zu %llu %llu\n", rank, count, (unsigned long long)digest.sum, (unsigned long long)digest.folded);
  if ((is_successive || strcmp(mode, "protected") == 0) &&
      !is_fine(group, ftsort_protect(group, &i32, input, count, &held)))
    MPI_Abort(MPI_COMM_WORLD, 1);
  if (held != NULL) { /* the caller's array is not needed any more */
    free(input);
    input = NULL;
  }
  start_together(rank, ranks);
  while (sort_once(group, &held, input, count, writes, again, hold)) continue;
  ftsort_input_free(held);
  free(input);
  ftsort_leave(group, 0);
  return 1;
}

static int measure(char **arg)
{
  const size_t count = strtoull(arg[3], NULL, 10);
  const int turns = atoi(arg[5]);
  int32_t *input = allocate(count), *copy = allocate(count);
  char trace[512];
  ftsort *group;
  int turn;

  snprintf(trace, sizeof trace, "%s/trace", arg[0]);
  group = group_of(arg, trace);
  fill(input, count, strtoull(arg[4], NULL, 10), rank);
  for (turn = -1; turn < turns; turn++) { /* the first turn warms up */
    ftsort_result *result = NULL;
    double times[4];
    MPI_Barrier(MPI_COMM_WORLD);
    times[0] = seconds_of(CLOCK_MONOTONIC);
    MPI_Sendrecv(input, (int)count, MPI_INT32_T, (rank + 1) % ranks, 0, copy, (int)count, MPI_INT32_T,
                 (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    times[1] = seconds_of(CLOCK_MONOTONIC);
    MPI_Barrier(MPI_COMM_WORLD);
    times[2] = seconds_of(CLOCK_REALTIME);
    if (ftsort_run(group, &i32, input, count, &result) != FTSORT_OK) {
      fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    times[3] = seconds_of(CLOCK_REALTIME);
    ftsort_result_free(result);
    if (turn >= 0) say(1, "turn %d %d %.6f %.6f %.6f\n", rank, turn, times[1] - times[0], times[2], times[3]);
  }
  free(input);
  free(copy);
  ftsort_leave(group, 0);
  return 1;
}

static int compare(const void *a, const void *b)
{
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static int check(int words, char **arg)
{
  const size_t count = strtoull(arg[1], NULL, 10), total = count * strtoull(arg[0], NULL, 10);
  int32_t *all = allocate(total);
  int i;
  for (i = 0; i < atoi(arg[0]); i++) fill(all + (size_t)i * count, count, strtoull(arg[2], NULL, 10), i);
  qsort(all, total, sizeof *all, compare);
  for (i = 3; i < words; i++) {
    char *rest;
    const size_t offset = strtoull(arg[i], &rest, 10), length = *rest ? strtoull(rest + 1, NULL, 10) : 0;
    struct digest digest;
    if (offset > total || length > total - offset) {
      fprintf(stderr, "%s is not within the %zu records\n", arg[i], total);
      return 1;
    }
    digest = digest_of(all + offset, length);
    printf("range %zu %zu %llu %llu\n", offset, length, (unsigned long long)digest.sum,
           (unsigned long long)digest.folded);
  }
  free(all);
  return 0;
}

int main(int argc, char **argv)
{
  const char *mode = argc > 1 ? argv[1] : "";
  if (argc > 5 && strcmp(mode, "check") == 0) return check(argc - 2, argv + 2);
  if ((argc != 10 || strcmp(mode, "sort") != 0) && (argc != 8 || strcmp(mode, "measure") != 0)) {
    fprintf(stderr, "the first lines of random_kills.c describe the arguments\n");
    return 2;
  }
  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > (int)(sizeof((struct output *)0)->written)) MPI_Abort(MPI_COMM_WORLD, 2);
  return argc == 10 ? sort(argv + 2) : measure(argv + 2);
}
