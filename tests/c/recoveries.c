/* Recovers results again after ranks have failed during or after a recovery, and uses results and protected inputs that have
 * moved after failures. Ranks are killed with SIGKILL.
 *
 *   recoveries spare   three ranks: rank 1 fails after the sort, and rank 2, the spare, as soon as it has received blocks. The
 *                      result has two replicas.
 *   recoveries reload  four ranks: rank 1 fails after the sort, and two ranks at once after the recovery. The result has one
 *                      replica, but a callback loads all inputs again.
 *   recoveries gather  three ranks: rank 0 gathers a result, and kills rank 1 when it has the first piece. The spare takes over,
 *                      and executes its home node too, whose records rank 0 has.
 *   recoveries moved   four ranks: a result without redundancy, made while rank 2 was excluded as slow, is gathered after rank 2
 *                      has failed. The spare executes its node, whose records another rank has.
 *   recoveries orders  four ranks: ranks 3 and 2 fail between sorts of a protected input by two keys. Equal keys keep the order
 *                      of the input.
 *   recoveries comm    three ranks: rank 1 fails, and the survivors end a group with a communicator of survivors, which is left
 *                      to MPI.
 *
 * Rank 0 has all records at the end, and prints a line. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ftsort_all.h"
#include "monitored.h"

enum { COUNT = 50000 };

static int kills_itself, loaded;

static void kill_myself(void *user, const ftsort_event *event)
{
  (void)user;
  if (event->kind == FTSORT_EVENT_RESTORED && kills_itself) kill(getpid(), SIGKILL);
}

static int32_t key_of(int owner, int i)
{
  return (int32_t)((uint32_t)(owner * COUNT + i) * 2654435761u);
}

static int load(void *user, int32_t owner, ftsort_buffer *out)
{
  int32_t *keys = (int32_t *)ftsort_buffer_resize(out, COUNT * sizeof(int32_t));
  int k;
  (void)user;
  if (!keys) return 1;
  for (k = 0; k < COUNT; k++) keys[k] = key_of(owner, k);
  loaded++;
  return 0;
}

/* The library's calls of this function come here. */
static int freed;

int MPI_Comm_free(MPI_Comm *comm)
{
  freed++;
  return PMPI_Comm_free(comm);
}

static void find_failure(ftsort *group, int failed)
{
  while (!ftsort_is_failed(group, failed)) EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
}

static int finish(ftsort *group)
{
  printf("recoveries: rank %d %s\n", rank, failures ? "wrong" : "right");
  ftsort_leave(group, failures > 0);
  return 1;
}

/* More than one piece of a gather. 6 of 10 keys are 0, the others 1: nodes 1 and 3, of rank 1, have no records. */
enum { MANY = 700000 };

static int pid_of_1;
static size_t gathered, ones;

static int consume(void *user, const void *records, size_t count)
{
  size_t k;
  (void)user;
  if (gathered == 0) kill(pid_of_1, SIGKILL);
  for (k = 0; k < count; k++) {
    EXPECT(((const int32_t *)records)[k] == (gathered + k >= 2 * MANY / 10 * 6));
    ones += ((const int32_t *)records)[k] == 1;
  }
  gathered += count;
  return 0;
}

static int gather(void)
{
  ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  int32_t *keys = (int32_t *)malloc(MANY * sizeof *keys);
  int k;
  EXPECT(ranks == 3);
  for (k = 0; k < MANY; k++) keys[k] = k % 10 >= 6;
  pid_of_1 = (int)getpid();
  MPI_Bcast(&pid_of_1, 1, MPI_INT, 1, MPI_COMM_WORLD);
  config.spares = 1;
  config.algorithm = FTSORT_HYPERQUICKSORT;
  config.pivot = FTSORT_PIVOT_PAPER;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  EXPECT(ftsort_run(group, &record, keys, rank < 2 ? MANY : 0, &result) == FTSORT_OK);
  options.has_sink = 1;
  EXPECT(ftsort_gather_sorted(group, &options, result, consume, NULL) == FTSORT_OK);
  EXPECT(ftsort_is_failed(group, 1));
  EXPECT(rank != 0 || (gathered == 2 * MANY && ones == 2 * MANY / 10 * 4));
  ftsort_result_free(result);
  return finish(group);
}

static int in_order(void *user, const void *records, size_t count)
{
  static int32_t last = INT32_MIN;
  size_t k;
  (void)user;
  for (k = 0; k < count; k++) {
    EXPECT(((const int32_t *)records)[k] >= last);
    last = ((const int32_t *)records)[k];
  }
  gathered += count;
  return 0;
}

static int moved(void)
{
  ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_monitor_options watch;
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  static int32_t keys[COUNT];
  int k, sorts, has_records = 1;
  EXPECT(ranks == 4);
  for (k = 0; k < COUNT; k++) keys[k] = key_of(rank, k);
  config.spares = 1;
  config.algorithm = FTSORT_BITONIC;
  config.release_after_run = 1;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  is_slow = rank == 2;
  watch = options_for(FTSORT_MONITOR_FOREGROUND);
  EXPECT(ftsort_monitor_start(group, &watch, NULL) == FTSORT_OK);
  for (sorts = 0; sorts < 10000 && has_records; sorts++) {
    ftsort_result_free(result);
    EXPECT(ftsort_run(group, &record, keys, rank < 3 ? COUNT : 0, &result) == FTSORT_OK);
    has_records = ftsort_result_count(result) > 0;
    MPI_Bcast(&has_records, 1, MPI_INT, 2, MPI_COMM_WORLD);
  }
  EXPECT(!has_records);
  if (rank == 2) kill(getpid(), SIGKILL);
  find_failure(group, 2);
  EXPECT(ftsort_executor(group, 2) == 3);
  options.has_sink = 1;
  EXPECT(ftsort_gather_sorted(group, &options, result, in_order, NULL) == FTSORT_OK);
  EXPECT(rank != 0 || gathered == 3 * COUNT);
  ftsort_result_free(result);
  return finish(group);
}

/* Open MPI crashes survivors that free a communicator right after a failure. */
static int comm_of_survivors(void)
{
  ftsort *group = NULL, *other = NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  EXPECT(ranks == 3);
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &other) == FTSORT_OK);
  if (rank == 1) kill(getpid(), SIGKILL);
  find_failure(group, 1);
  EXPECT(ftsort_comm(group, &comm) == FTSORT_OK);
  EXPECT(MPI_Barrier(comm) == MPI_SUCCESS);
  freed = 0;
  ftsort_free(group);
  EXPECT(freed == 0);
  return finish(other);
}

/* A record with two keys, the second of which is seldom unique, and its place in the input. */
typedef struct item {
  int32_t first, second, owner, place;
} item;

enum { ITEMS = 20000 };

static item item_of(int owner, int place)
{
  item made = {place * 7919 % 10007, place % 5, owner, place};
  return made;
}

static int by_second(const void *a, const void *b)
{
  const item *one = (const item *)a, *other = (const item *)b;
  if (one->second != other->second) return one->second < other->second ? -1 : 1;
  if (one->owner != other->owner) return one->owner < other->owner ? -1 : 1;
  return one->place < other->place ? -1 : one->place > other->place;
}

static int orders(void)
{
  ftsort_record first = FTSORT_RECORD_MEMBER(item, first, FTSORT_KEY_I32);
  ftsort_record second = FTSORT_RECORD_MEMBER(item, second, FTSORT_KEY_I32);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  ftsort_input *input = NULL;
  ftsort_result *result = NULL;
  ftsort_block block;
  item *items = (item *)malloc(4 * ITEMS * sizeof *items);
  int owner, place;
  size_t i, records = 0, sums[2];
  MPI_Comm comm = MPI_COMM_NULL;
  EXPECT(ranks == 4);
  for (owner = 0; owner < 4; owner++)
    for (place = 0; place < ITEMS; place++) items[owner * ITEMS + place] = item_of(owner, place);
  config.algorithm = FTSORT_BITONIC;
  first.stable = second.stable = 1;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  EXPECT(ftsort_protect(group, &first, items + rank * ITEMS, ITEMS, &input) == FTSORT_OK);
  if (rank == 3) kill(getpid(), SIGKILL);
  find_failure(group, 3);
  EXPECT(ftsort_run_protected(group, input, &first, &result) == FTSORT_OK);
  ftsort_result_free(result);
  if (rank == 2) kill(getpid(), SIGKILL);
  find_failure(group, 2);
  EXPECT(ftsort_run_protected(group, input, &second, &result) == FTSORT_OK);
  qsort(items, 4 * ITEMS, sizeof *items, by_second);
  for (i = 0; i < ftsort_result_count(result); i++) {
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    EXPECT(memcmp(block.data, items + block.offset, block.count * sizeof *items) == 0);
    records += block.count;
  }
  /* The two survivors have all records. */
  EXPECT(ftsort_result_total(result) == 4 * ITEMS);
  EXPECT(ftsort_comm(group, &comm) == FTSORT_OK);
  MPI_Allgather(&records, sizeof records, MPI_BYTE, sums, sizeof records, MPI_BYTE, comm);
  EXPECT(sums[0] + sums[1] == 4 * ITEMS);
  free(items);
  ftsort_result_free(result);
  ftsort_input_free(input);
  return finish(group);
}

int main(int argc, char **argv)
{
  ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  ftsort_block block;
  static int32_t keys[COUNT];
  uint64_t records = 0;
  int64_t sum = 0;
  int32_t last = INT32_MIN;
  size_t i, k;
  int owner, owners, has_spare;
  start_mpi(&argc, &argv);
  if (argc == 2 && !strcmp(argv[1], "gather")) return gather();
  if (argc == 2 && !strcmp(argv[1], "moved")) return moved();
  if (argc == 2 && !strcmp(argv[1], "orders")) return orders();
  if (argc == 2 && !strcmp(argv[1], "comm")) return comm_of_survivors();
  has_spare = argc == 2 && !strcmp(argv[1], "spare");
  EXPECT(argc == 2 && (has_spare || !strcmp(argv[1], "reload")));
  EXPECT(ranks == (has_spare ? 3 : 4));
  owners = has_spare ? 2 : 4;
  if (has_spare) {
    config.spares = 1;
    config.replicas = 2;
  } else {
    config.reload = load;
  }
  /* The home node of the spare has records, which move to it from rank 0. */
  config.algorithm = FTSORT_HYPERQUICKSORT;
  config.pivot = FTSORT_PIVOT_PAPER;
  config.on_event = kill_myself;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  for (owner = 0; owner < owners; owner++) {
    for (k = 0; k < COUNT; k++) {
      if (owner == rank) keys[k] = key_of(owner, (int)k);
      sum += key_of(owner, (int)k);
    }
  }
  EXPECT(ftsort_run(group, &record, keys, rank < owners ? COUNT : 0, &result) == FTSORT_OK);
  if (rank == 1) kill(getpid(), SIGKILL);
  kills_itself = has_spare && rank == 2;
  find_failure(group, 1);
  while (has_spare && !ftsort_is_failed(group, 2)) {
    EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
    EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
  }
  EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
  if (!has_spare) {
    if (rank > 1) kill(getpid(), SIGKILL);
    find_failure(group, 2);
    find_failure(group, 3);
    EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
    EXPECT(loaded > 0);
  }
  for (i = 0; i < ftsort_result_count(result); i++) {
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    EXPECT(block.offset == records);
    for (k = 0; k < block.count; k++) {
      int32_t key = ((const int32_t *)block.data)[k];
      EXPECT(key >= last);
      last = key;
      sum -= key;
    }
    records += block.count;
  }
  EXPECT(records == (uint64_t)owners * COUNT && sum == 0);
  ftsort_result_free(result);
  return finish(group);
}
