/* Runs an operation of ftsort_query.h or ftsort_tree.h while a rank is killed with SIGKILL, and compares its result with
 * the whole input.
 *
 *   queries OPERATION KILL      (under mpirun, 2 to 8 ranks)
 *
 * OPERATION: by_key, argsort, positions, unique, group_by, select, quantiles or top; gather (of a sorted result, to rank
 * 0), gather_to_killed (to rank 1) or merge (of sorted lists). KILL: the time at which rank 1 kills itself, in
 * microseconds after the start of the operation; -N: when round N is committed; 0: never. The survivors recover the
 * result and compare it. The lowest one prints "queries: fine", or "queries: lost" if the rank was killed before its
 * input was protected, which cannot happen in a gather. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort.h"
#include "ftsort_query.h"
#include "ftsort_tree.h"

/* More than an input that is sorted without rounds. */
enum { COUNT = 60000, MOST_RANKS = 8, KEYS = 5000, WANTED = 5 };

struct item {
  int32_t key;
  uint32_t place; /* ascends with rank and position */
};

static long kills;
static size_t gathered; /* records that this rank has received */

static void kill_myself(void *user, const ftsort_event *event)
{
  (void)user;
  if (kills < 0 && rank == 1 && event->kind == FTSORT_EVENT_ROUND && event->round == -kills) kill(getpid(), SIGKILL);
}

static void on_alarm(int signal_number)
{
  (void)signal_number;
  kill(getpid(), SIGKILL);
}

static void start_timer(void)
{
  struct itimerval time = {{0, 0}, {0, 0}};
  if (kills <= 0 || rank != 1) return;
  signal(SIGALRM, on_alarm);
  time.it_value.tv_sec = kills / 1000000;
  time.it_value.tv_usec = kills % 1000000;
  setitimer(ITIMER_REAL, &time, NULL);
}

static void fill(struct item *items, int owner)
{
  uint32_t state = 2463534242u + 7919u * (uint32_t)owner, i;
  for (i = 0; i < COUNT; i++) {
    state = state * 1664525u + 1013904223u;
    items[i].key = (int32_t)((state >> 8) % KEYS) - KEYS / 2;
    items[i].place = (uint32_t)owner * COUNT + i;
  }
}

static int order(const void *a, const void *b)
{
  const struct item *one = (const struct item *)a, *other = (const struct item *)b;
  if (one->key != other->key) return one->key < other->key ? -1 : 1;
  return one->place < other->place ? -1 : one->place > other->place;
}

/* The expected result: elements of up to three columns. */
struct rows {
  size_t count, columns, width[3];
  unsigned char *data[3];
};

static void add_column(struct rows *rows, size_t width)
{
  rows->width[rows->columns] = width;
  rows->data[rows->columns] = (unsigned char *)calloc((size_t)ranks * COUNT + 1, width);
  if (rows->data[rows->columns++] == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
}

static void set_cell(struct rows *rows, size_t column, size_t row, const void *value)
{
  memcpy(rows->data[column] + row * rows->width[column], value, rows->width[column]);
}

static uint64_t top_count(void) { return (uint64_t)ranks * COUNT / 3; }

/* One row for each record: its columns are those of the operation. */
static void expect_records(struct rows *rows, const char *operation, const struct item *sorted)
{
  size_t n = (size_t)ranks * COUNT, i;
  rows->count = strcmp(operation, "top") == 0 ? (size_t)top_count() : n;
  add_column(rows, strcmp(operation, "by_key") == 0 ? 4 : 8);
  if (strcmp(operation, "by_key") == 0) add_column(rows, 4);
  for (i = 0; i < rows->count; i++) {
    uint64_t place = sorted[i].place, position = i;
    if (strcmp(operation, "by_key") == 0) {
      set_cell(rows, 0, i, &sorted[i].key);
      set_cell(rows, 1, i, &sorted[i].place);
    } else if (strcmp(operation, "argsort") == 0) set_cell(rows, 0, i, &place);
    else if (strcmp(operation, "positions") == 0) set_cell(rows, 0, (size_t)place, &position);
    else set_cell(rows, 0, i, &sorted[i]);
  }
}

/* One row for each key. */
static void expect_groups(struct rows *rows, const char *operation, const struct item *sorted)
{
  size_t n = (size_t)ranks * COUNT, i, start = 0;
  int sums = strcmp(operation, "group_by") == 0;
  uint64_t sum = 0;
  add_column(rows, 8);
  add_column(rows, 8);
  if (sums) add_column(rows, 4);
  for (i = 0; i < n; i++) {
    uint64_t count = i + 1 - start;
    sum += sorted[i].place;
    if (i + 1 < n && sorted[i + 1].key == sorted[i].key) continue;
    set_cell(rows, 0, rows->count, &sorted[start]);
    set_cell(rows, 1, rows->count, sums ? &sum : &count);
    if (sums) set_cell(rows, 2, rows->count, &sorted[i].place); /* the greatest */
    rows->count++;
    start = i + 1;
    sum = 0;
  }
}

/* Compares the blocks of this rank with the rows at their offsets, and returns the number of their elements. */
static uint64_t compare_blocks(const ftsort_result *result, const struct rows *rows)
{
  uint64_t found = 0;
  ftsort_block block;
  size_t i, column, width;
  const void *data;
  EXPECT(ftsort_result_columns(result) == rows->columns);
  for (i = 0; i < ftsort_result_count(result); i++) {
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    if (block.offset + block.count > rows->count) failures++;
    if (block.offset + block.count > rows->count) break;
    for (column = 0; column < rows->columns; column++) {
      EXPECT(ftsort_result_column(result, i, column, &data, &width) == FTSORT_OK);
      EXPECT(width == rows->width[column]);
      EXPECT(memcmp(data, rows->data[column] + block.offset * width, block.count * width) == 0);
    }
    EXPECT(ftsort_result_column(result, i, column, &data, &width) == FTSORT_ERR_ARGUMENT);
    found += block.count;
  }
  return found;
}

static ftsort_status run_on_columns(ftsort *group, const struct item *mine, ftsort_result **result)
{
  static const ftsort_record key = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  int32_t *keys = (int32_t *)malloc(COUNT * sizeof *keys);
  uint32_t *values = (uint32_t *)malloc(COUNT * sizeof *values);
  ftsort_status status;
  int i;
  if (keys == NULL || values == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (i = 0; i < COUNT; i++) keys[i] = mine[i].key;
  for (i = 0; i < COUNT; i++) values[i] = mine[i].place;
  status = ftsort_sort_by_key(group, &key, keys, values, sizeof *values, COUNT, result);
  free(keys);
  free(values);
  return status;
}

/* Finds single records, which all ranks receive. */
static ftsort_status find_records(ftsort *group, const char *operation, const ftsort_record *record,
                                  const struct item *mine, const struct item *sorted)
{
  uint64_t n = (uint64_t)ranks * COUNT, positions[WANTED] = {n / 2, 0, n - 1, 7, n / 2};
  static const double fractions[WANTED] = {0.5, 0.0, 1.0, 0.25, 0.999};
  struct item found[WANTED];
  ftsort_status status;
  int i;
  if (strcmp(operation, "select") == 0)
    status = ftsort_select(group, record, mine, COUNT, positions, WANTED, found);
  else {
    status = ftsort_quantiles(group, record, mine, COUNT, fractions, WANTED, found);
    for (i = 0; i < WANTED; i++) {
      double place = fractions[i] * (double)n;
      positions[i] = (uint64_t)place + (place > (double)(uint64_t)place);
      if (positions[i] > 0) positions[i]--;
    }
  }
  for (i = 0; i < WANTED && status == FTSORT_OK; i++)
    EXPECT(memcmp(&found[i], &sorted[positions[i]], sizeof found[i]) == 0);
  return status;
}

static int receive(void *user, const void *records, size_t count)
{
  const struct item *sorted = (const struct item *)user;
  const int has_room = gathered + count <= (size_t)ranks * COUNT;
  EXPECT(has_room && memcmp(records, sorted + gathered, count * sizeof *sorted) == 0);
  gathered += count;
  return 0;
}

/* Sorts, and brings the result to one rank, which receives each record once. The kill is in the second part. */
static ftsort_status gather(ftsort *group, int sink, const ftsort_record *record, const struct item *mine,
                            struct item *sorted)
{
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
  ftsort_result *result = NULL;
  ftsort_record stable = *record;
  ftsort_status status;
  stable.stable = 1;
  options.has_sink = 1;
  options.sink = sink;
  EXPECT(ftsort_run(group, &stable, mine, COUNT, &result) == FTSORT_OK);
  start_timer();
  status = ftsort_gather_sorted(group, &options, result, receive, sorted);
  ftsort_result_free(result);
  EXPECT(status == FTSORT_OK && ftsort_tree_get_info(group, &info) == FTSORT_OK);
  EXPECT(info.executor != rank || gathered == (size_t)ranks * COUNT);
  return status;
}

/* Merges the sorted lists of all ranks on one rank. */
static ftsort_status merge(ftsort *group, const ftsort_record *record, const struct item *mine,
                           const struct item *sorted)
{
  const size_t bytes = (size_t)ranks * COUNT * sizeof *sorted;
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort_result *result = NULL;
  struct item *list = (struct item *)malloc(COUNT * sizeof *list);
  ftsort_block block;
  ftsort_status status;
  if (list == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  memcpy(list, mine, COUNT * sizeof *list);
  qsort(list, COUNT, sizeof *list, order);
  options.operation = FTSORT_TREE_SORTED;
  options.record = record;
  options.ordered = 1;
  start_timer();
  status = ftsort_tree_merge(group, &options, list, COUNT * sizeof *list, &result);
  if (result != NULL) {
    EXPECT(ftsort_result_block(result, 0, &block) == FTSORT_OK);
    EXPECT(block.count == bytes && memcmp(block.data, sorted, bytes) == 0);
  }
  ftsort_result_free(result);
  free(list);
  return status;
}

static ftsort_status run(ftsort *group, const char *operation, const struct item *mine, struct item *sorted,
                         struct rows *rows, ftsort_result **result)
{
  static const ftsort_record record = FTSORT_RECORD_MEMBER(struct item, key, FTSORT_KEY_I32);
  static const ftsort_aggregate aggregates[] = {
    {FTSORT_SUM, FTSORT_KEY_U32, offsetof(struct item, place)},
    {FTSORT_GREATEST, FTSORT_KEY_U32, offsetof(struct item, place)}};
  int grouped = strcmp(operation, "unique") == 0 || strcmp(operation, "group_by") == 0;
  if (strncmp(operation, "gather", 6) == 0)
    return gather(group, strcmp(operation, "gather") != 0, &record, mine, sorted);
  if (strcmp(operation, "merge") == 0) return merge(group, &record, mine, sorted);
  if (strcmp(operation, "select") == 0 || strcmp(operation, "quantiles") == 0) {
    start_timer();
    return find_records(group, operation, &record, mine, sorted);
  }
  if (grouped) expect_groups(rows, operation, sorted);
  else expect_records(rows, operation, sorted);
  start_timer();
  if (strcmp(operation, "by_key") == 0) return run_on_columns(group, mine, result);
  if (strcmp(operation, "argsort") == 0) return ftsort_argsort(group, &record, mine, COUNT, result);
  if (strcmp(operation, "positions") == 0) return ftsort_positions(group, &record, mine, COUNT, result);
  if (strcmp(operation, "unique") == 0) return ftsort_unique(group, &record, mine, COUNT, result);
  if (strcmp(operation, "top") == 0) return ftsort_top(group, &record, mine, COUNT, top_count(), result);
  return ftsort_group_by(group, &record, aggregates, 2, mine, COUNT, result);
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  ftsort_status status;
  struct rows rows = {0, 0, {0, 0, 0}, {NULL, NULL, NULL}};
  struct item *sorted, *mine;
  uint64_t found = 0, total = 0;
  size_t new_failures = 0;
  MPI_Comm comm;
  int owner, is_lost, was_failed;
  if (argc != 3) return 2;
  start_mpi(&argc, &argv);
  if (ranks < 2 || ranks > MOST_RANKS) return 2;
  sorted = (struct item *)malloc((size_t)(ranks + 1) * COUNT * sizeof *sorted);
  if (sorted == NULL) return 2;
  config.on_event = kill_myself;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (owner = 0; owner < ranks; owner++) fill(sorted + owner * COUNT, owner);
  mine = sorted + ranks * COUNT;
  memcpy(mine, sorted + rank * COUNT, COUNT * sizeof *sorted);
  qsort(sorted, (size_t)ranks * COUNT, sizeof *sorted, order);
  kills = atol(argv[2]);
  status = run(group, argv[1], mine, sorted, &rows, &result);
  is_lost = kills > 0 && status == FTSORT_ERR_DATA_LOST && ftsort_is_failed(group, 1);
  EXPECT(status == FTSORT_OK || is_lost);
  EXPECT(ftsort_fault_check(group, &new_failures) == FTSORT_OK);
  was_failed = ftsort_is_failed(group, 1);
  if (result != NULL) {
    EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
    found = compare_blocks(result, &rows);
    EXPECT(ftsort_comm(group, &comm) == FTSORT_OK);
    MPI_Allreduce(&found, &total, 1, MPI_UINT64_T, MPI_SUM, comm);
    /* A rank that is killed in the recovery or later may take its block along. */
    if (kills <= 0 || was_failed || !ftsort_is_failed(group, 1)) EXPECT(total == rows.count);
    EXPECT(ftsort_result_total(result) == rows.count);
  }
  if (kills < 0) EXPECT(ftsort_is_failed(group, 1));
  if (failures) fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
  else if (rank == 0) printf("queries: %s\n", is_lost ? "lost" : "fine");
  ftsort_result_free(result);
  for (owner = 0; owner < 3; owner++) free(rows.data[owner]);
  free(sorted);
  ftsort_leave(group, failures != 0);
  return 1;
}
