/* Inputs that are protected before they are sorted, and results that are recovered after their ranks were killed.
 *
 *   redundancy DIR MODE STORE ALGORITHM [CORRUPTION]    (under mpirun)
 *
 * MODE: "result" sorts, "many" sorts many arrays by one call, "input" protects the input and sorts it again and again,
 * "keys" sorts it by two keys in turn, "update" replaces it before each sort, "states" runs rounds, "gather" gathers a
 * recovered result at one rank. The ranks kill themselves one after the other, the highest first, down to one, and each
 * time the survivors continue. STORE is memory, directory or reload; ALGORITHM is a number of ftsort_algorithm, or
 * "dense". CORRUPTION changes data, which FTSORT_CHECK_DIGEST must find and repair (docs/fault-injection.md). Rank 0, the
 * last survivor, prints that it is fine. In "keys" the highest rank kills itself in the middle of the first sort.
 *
 * MODE "killed" replaces a small input by a large one, and the last rank is killed meanwhile, STORE microseconds after
 * the call. All survivors have either the old or the new records. ALGORITHM "late": the others begin after that. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ftsort.h"
#include "ftsort_query.h"
#include "ftsort_rounds.h"
#include "ftsort_store.h"
#include "ftsort_verify.h"
#include "ftsort_tree.h"
#include "expect.h"

#define COUNT 3000
#define ARRAYS 20

typedef struct pair {
  uint32_t key, place;
} pair;

static const ftsort_record by_key = FTSORT_RECORD_MEMBER(pair, key, FTSORT_KEY_U32);
static const ftsort_record by_place = FTSORT_RECORD_MEMBER(pair, place, FTSORT_KEY_U32);

static void fill(pair *records, int owner)
{
  uint32_t i;
  for (i = 0; i < COUNT; i++) {
    records[i].place = (uint32_t)owner * COUNT + i;
    records[i].key = (records[i].place * 2654435761u) >> 20;
  }
}

static int reload(void *user, int32_t owner, ftsort_buffer *data)
{
  pair *records = (pair *)ftsort_buffer_resize(data, COUNT * sizeof *records);
  (void)user;
  if (records == NULL) return 1;
  fill(records, owner);
  return 0;
}

/* Kills the highest rank that is left, and returns once the others know it. */
static void lose_one(ftsort *group, int victim)
{
  if (rank == victim) raise(SIGKILL);
  while (!ftsort_is_failed(group, victim)) EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
}

/* The number of records in the blocks of this rank, which must be in order. */
static uint64_t count_blocks(const ftsort_result *result, int by)
{
  uint64_t found = 0;
  ftsort_block block;
  size_t index, i;
  for (index = 0; ftsort_result_block(result, index, &block) == FTSORT_OK; index++) {
    const pair *records = (const pair *)block.data;
    for (i = 1; i < block.count; i++) {
      if (by) EXPECT(records[i - 1].place < records[i].place);
      else EXPECT(records[i - 1].key <= records[i].key);
    }
    found += block.count;
  }
  return found;
}

/* At the last rank all records must be there, in order, each once. */
static void expect_all(const ftsort_result *result)
{
  char *seen = (char *)calloc((size_t)ranks, COUNT);
  uint64_t next = 0;
  uint32_t last = 0;
  ftsort_block block;
  size_t index, i;
  for (index = 0; ftsort_result_block(result, index, &block) == FTSORT_OK; index++) {
    const pair *records = (const pair *)block.data;
    EXPECT(block.count == 0 || block.offset == next);
    next += block.count;
    for (i = 0; i < block.count; i++) {
      EXPECT(records[i].key >= last);
      EXPECT(!seen[records[i].place]);
      seen[records[i].place] = 1;
      last = records[i].key;
    }
  }
  EXPECT(next == (uint64_t)ranks * COUNT);
  free(seen);
}

static void results(ftsort *group, const pair *mine)
{
  ftsort_result *result = NULL;
  ftsort_block before, after;
  uint64_t wrong = 0;
  int victim;
  EXPECT(ftsort_run(group, &by_key, mine, COUNT, &result) == FTSORT_OK);
  EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
  for (victim = ranks - 1; victim > 0; victim--) {
    EXPECT(ftsort_result_block(result, 0, &before) == FTSORT_OK);
    lose_one(group, victim);
    /* Without the inputs, too, a missing block is found. */
    EXPECT(ftsort_result_verify(group, result, NULL, 0, &wrong) == FTSORT_OK && wrong > 0);
    EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
    EXPECT(ftsort_result_verify(group, result, NULL, 0, &wrong) == FTSORT_OK && wrong == 0);
    EXPECT(ftsort_result_block(result, 0, &after) == FTSORT_OK);
    EXPECT(before.data == after.data && before.count == after.count);
    EXPECT(ftsort_lost_ranks(group, NULL, 0) == 0);
    count_blocks(result, 0);
  }
  expect_all(result);
  ftsort_result_free(result);
}

/* The records of a rank as arrays of different sizes, of which every second one is sorted by place. */
static void describe(ftsort_array *arrays, const pair *mine)
{
  size_t start = 0, a;
  for (a = 0; a < ARRAYS; a++) {
    size_t end = a + 1 == ARRAYS ? COUNT : start + (a * 37 + (size_t)rank * 11) % (2 * COUNT / ARRAYS);
    if (end > COUNT) end = COUNT;
    arrays[a].record = a % 2 ? &by_place : &by_key;
    arrays[a].data = mine + start;
    arrays[a].count = end - start;
    start = end;
  }
}

/* The recovery of any result brings the blocks of all arrays to their places. */
static void many(ftsort *group, const pair *mine)
{
  ftsort_array arrays[ARRAYS];
  ftsort_result *results[ARRAYS];
  uint64_t found = 0, total = 0;
  int victim, a;
  describe(arrays, mine);
  EXPECT(ftsort_run_many(group, arrays, ARRAYS, results) == FTSORT_OK);
  if (failures) return;
  for (victim = ranks - 1; victim > 0; victim--) {
    lose_one(group, victim);
    for (a = 0; a < ARRAYS; a++) {
      EXPECT(ftsort_result_recover(group, results[(a * 7 + victim) % ARRAYS]) == FTSORT_OK);
      EXPECT(ftsort_lost_ranks(group, NULL, 0) == 0);
    }
  }
  for (a = ARRAYS - 1; a >= 0; a--) {
    found += count_blocks(results[a], a % 2);
    total += ftsort_result_total(results[a]);
    ftsort_result_free(results[a]);
  }
  EXPECT(total == (uint64_t)ranks * COUNT && found == total);
}

static void inputs(ftsort *group, pair *mine)
{
  static const int32_t algorithms[] = {FTSORT_SAMPLESORT, FTSORT_QUICKMERGE, FTSORT_BITONIC, FTSORT_HYPERQUICKSORT,
                                       FTSORT_SAMPLESORT_2};
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_input *input = NULL;
  ftsort_result *result = NULL;
  int victim;
  EXPECT(ftsort_protect(group, &by_key, mine, COUNT, &input) == FTSORT_OK);
  memset(mine, 0, COUNT * sizeof *mine); /* the array is not needed any more */
  EXPECT(ftsort_set_algorithm(group, 99, FTSORT_PIVOT_SAMPLED) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "algorithm is 99") != NULL);
  EXPECT(ftsort_set_algorithm(group, rank == 0, FTSORT_PIVOT_SAMPLED) == FTSORT_ERR_ARGUMENT);
  for (victim = ranks - 1; victim > 0; victim--) {
    EXPECT(ftsort_set_algorithm(group, algorithms[victim % 5], FTSORT_PIVOT_SAMPLED) == FTSORT_OK);
    lose_one(group, victim);
    EXPECT(ftsort_run_protected(group, input, &by_place, &result) == FTSORT_OK);
    EXPECT(ftsort_result_total(result) == (uint64_t)ranks * COUNT);
    EXPECT(ftsort_get_stats(group, &stats) == FTSORT_OK && stats.algorithm == algorithms[victim % 5]);
    count_blocks(result, 1);
    ftsort_result_free(result);
  }
  EXPECT(ftsort_run_protected(group, input, NULL, &result) == FTSORT_OK);
  ftsort_input_free(input);
  expect_all(result);
  ftsort_result_free(result);
}

/* Copies of the input that are renewed in a sort by one key are sorted by another one later. */
static void keys(ftsort *group, pair *mine)
{
  ftsort_input *input = NULL;
  ftsort_result *result = NULL;
  int victim;
  EXPECT(ftsort_protect(group, &by_key, mine, COUNT, &input) == FTSORT_OK);
  memset(mine, 0, COUNT * sizeof *mine); /* the array is not needed any more */
  EXPECT(ftsort_run_protected(group, input, &by_place, &result) == FTSORT_OK);
  EXPECT(ftsort_is_failed(group, ranks - 1));
  count_blocks(result, 1);
  ftsort_result_free(result);
  for (victim = ranks - 2; victim > 0; victim--) {
    lose_one(group, victim);
    EXPECT(ftsort_run_protected(group, input, victim % 2 ? &by_place : NULL, &result) == FTSORT_OK);
    count_blocks(result, victim % 2);
    ftsort_result_free(result);
  }
  EXPECT(ftsort_run_protected(group, input, NULL, &result) == FTSORT_OK);
  ftsort_input_free(input);
  expect_all(result);
  ftsort_result_free(result);
}

/* Records of an update; `place` tells the owner, and `key` the update. */
static void fill_update(pair *records, size_t count, uint32_t update)
{
  size_t i;
  for (i = 0; i < count; i++) {
    records[i].place = (uint32_t)rank;
    records[i].key = update;
  }
}

/* The records of `owner` with the number `update` in the blocks of this rank. */
static uint64_t count_of(const ftsort_result *result, uint32_t owner, uint32_t update)
{
  uint64_t found = 0;
  ftsort_block block;
  size_t index, i;
  for (index = 0; ftsort_result_block(result, index, &block) == FTSORT_OK; index++) {
    const pair *records = (const pair *)block.data;
    for (i = 0; i < block.count; i++) found += records[i].place == owner && records[i].key == update;
  }
  return found;
}

static void updates(ftsort *group, pair *mine)
{
  ftsort_input *input = NULL;
  ftsort_result *result = NULL;
  uint32_t update = 0, owner;
  int victim;
  fill_update(mine, COUNT, update);
  EXPECT(ftsort_protect(group, &by_key, mine, COUNT, &input) == FTSORT_OK);
  for (victim = ranks - 1; victim > 0; victim--) {
    fill_update(mine, COUNT, ++update);
    EXPECT(ftsort_input_update(group, input, mine, COUNT) == FTSORT_OK);
    memset(mine, 0, COUNT * sizeof *mine); /* the array is not needed any more */
    lose_one(group, victim);
    EXPECT(ftsort_run_protected(group, input, NULL, &result) == FTSORT_OK);
    EXPECT(ftsort_result_total(result) == (uint64_t)ranks * COUNT);
    ftsort_result_free(result);
  }
  EXPECT(ftsort_run_protected(group, input, NULL, &result) == FTSORT_OK);
  /* The records of a rank that has failed are those of its last update. */
  for (owner = 0; owner < (uint32_t)ranks; owner++)
    EXPECT(count_of(result, owner, owner == 0 ? update : (uint32_t)ranks - owner) == COUNT);
  ftsort_result_free(result);
  ftsort_input_free(input);
}

/* Lets the system send SIGKILL to this process. */
static void kill_after(long microseconds)
{
  struct sigevent event;
  struct itimerspec at;
  timer_t timer;
  memset(&event, 0, sizeof event);
  memset(&at, 0, sizeof at);
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  at.it_value.tv_sec = microseconds / 1000000;
  at.it_value.tv_nsec = microseconds % 1000000 * 1000;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &at, NULL) != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The last rank is killed while it replaces the input; is_late: before the others have begun to do so. */
static void killed(ftsort *group, long microseconds, int is_late)
{
  const size_t old = 1000, new = 4000000;
  pair *mine = (pair *)malloc(new * sizeof *mine);
  ftsort_input *input = NULL;
  ftsort_result *result = NULL;
  ftsort_status status;
  uint64_t total;
  int was_known;
  if (mine == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  fill_update(mine, new, 0);
  EXPECT(ftsort_protect(group, &by_key, mine, old, &input) == FTSORT_OK);
  fill_update(mine, new, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == ranks - 1) kill_after(microseconds);
  else if (is_late) usleep((useconds_t)(2 * microseconds));
  was_known = ftsort_is_failed(group, ranks - 1);
  status = ftsort_input_update(group, input, mine, new);
  EXPECT(status == FTSORT_OK || status == FTSORT_ERR_DATA_LOST);
  while (!ftsort_is_failed(group, ranks - 1)) EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
  EXPECT(ftsort_run_protected(group, input, NULL, &result) == FTSORT_OK);
  total = ftsort_result_total(result);
  /* The last rank has old records beside the new ones of the others only if protect has found its failure. */
  if (status == FTSORT_OK) EXPECT(total == (was_known ? (uint64_t)(ranks - 1) * new + old : (uint64_t)ranks * new));
  else EXPECT(total == (uint64_t)ranks * old);
  EXPECT(!is_late || was_known || status == FTSORT_ERR_DATA_LOST);
  ftsort_result_free(result);
  ftsort_input_free(input);
  free(mine);
}

static int add(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  uint64_t sum = 0;
  (void)user;
  if (task->state_bytes == sizeof sum) memcpy(&sum, task->state, sizeof sum);
  if (bytes == sizeof sum) {
    uint64_t more;
    memcpy(&more, inbox, sizeof more);
    sum += more;
  }
  return ftsort_buffer_append(next, &sum, sizeof sum);
}

/* If a copy on rank 0 has changed, only rank 1 fails, so that another rank still has a right copy. */
static void states(ftsort *group, int has_changed)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_result *result = NULL;
  const uint64_t own = (uint64_t)1 << rank;
  ftsort_block block;
  size_t index;
  int victim;
  rounds.absorb = add;
  EXPECT(ftsort_rounds_run(group, &rounds, &own, sizeof own, &result) == FTSORT_OK);
  for (victim = has_changed ? 1 : ranks - 1; victim > 0; victim--) {
    lose_one(group, victim);
    EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
  }
  EXPECT(ftsort_result_count(result) >= (has_changed ? 1 : (size_t)ranks));
  for (index = 0; ftsort_result_block(result, index, &block) == FTSORT_OK; index++) {
    uint64_t sum;
    EXPECT(block.count == sizeof sum);
    memcpy(&sum, block.data, sizeof sum);
    EXPECT(sum == ((uint64_t)1 << ranks) - 1);
  }
  ftsort_result_free(result);
}

static uint64_t gathered;
static uint32_t last_key;

static int take(void *user, const void *records, size_t count)
{
  const pair *pairs = (const pair *)records;
  size_t i;
  (void)user;
  for (i = 0; i < count; i++) {
    if (pairs[i].key < last_key) return 1;
    last_key = pairs[i].key;
  }
  gathered += count;
  return 0;
}

static void gathers(ftsort *group, const pair *mine)
{
  ftsort_result *result = NULL;
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  options.has_sink = 1;
  EXPECT(ftsort_run(group, &by_key, mine, COUNT, &result) == FTSORT_OK);
  lose_one(group, ranks - 1);
  EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
  EXPECT(ftsort_gather_sorted(group, &options, result, take, NULL) == FTSORT_OK);
  EXPECT(gathered == (rank == 0 ? (uint64_t)ranks * COUNT : 0));
  ftsort_result_free(result);
}

static int corruptions;

static void count_corruptions(void *user, const ftsort_event *event)
{
  (void)user;
  corruptions += event->kind == FTSORT_EVENT_CORRUPT;
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  char fault[32];
  pair *mine = (pair *)malloc(COUNT * sizeof *mine);
  if (argc < 5 || mine == NULL) return 2;
  start_mpi(&argc, &argv);
  config.store_directory = argv[1];
  if (strcmp(argv[3], "directory") == 0) config.store = FTSORT_STORE_DIRECTORY;
  if (strcmp(argv[3], "parity") == 0) config.store = FTSORT_STORE_PARITY;
  if (strcmp(argv[3], "reload") == 0) {
    config.store = FTSORT_STORE_RELOAD;
    config.reload = reload;
  }
  if (argc == 6) {
    config.checks = FTSORT_CHECK_DIGEST;
    config.faults = argv[5];
    config.on_event = count_corruptions;
    if (strcmp(argv[2], "states") == 0) config.replicas = 2;
  }
  if (strcmp(argv[2], "keys") == 0) {
    snprintf(fault, sizeof fault, "%d@2.begin", ranks - 1);
    config.faults = fault;
  }
  config.dense = strcmp(argv[4], "dense") == 0;
  config.algorithm = config.dense ? FTSORT_AUTO : atoi(argv[4]);
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  fill(mine, rank);
  if (strcmp(argv[2], "result") == 0) results(group, mine);
  else if (strcmp(argv[2], "many") == 0) many(group, mine);
  else if (strcmp(argv[2], "input") == 0) inputs(group, mine);
  else if (strcmp(argv[2], "keys") == 0) keys(group, mine);
  else if (strcmp(argv[2], "update") == 0) updates(group, mine);
  else if (strcmp(argv[2], "killed") == 0) killed(group, atol(argv[3]), strcmp(argv[4], "late") == 0);
  else if (strcmp(argv[2], "gather") == 0) gathers(group, mine);
  else states(group, argc == 6);
  EXPECT((argc == 6) == (corruptions > 0));
  if (failures) fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
  else if (rank == 0) printf("redundancy: fine\n");
  free(mine);
  ftsort_leave(group, failures != 0);
  return 1;
}
