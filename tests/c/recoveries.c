/* Recovers a result again after ranks have failed during or after a recovery. Each rank that fails kills itself with SIGKILL.
 *
 *   recoveries spare   three ranks: rank 1 fails after the sort, and rank 2, the spare, as soon as it has received blocks. The
 *                      result has two replicas.
 *   recoveries reload  four ranks: rank 1 fails after the sort, and two ranks at once after the recovery. The result has one
 *                      replica, but a callback loads all inputs again.
 *
 * Rank 0 has all records at the end, and prints a line. */
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort_all.h"

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

static void find_failure(ftsort *group, int failed)
{
  while (!ftsort_is_failed(group, failed)) EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
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
  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
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
  printf("recoveries: rank %d %s\n", rank, failures ? "wrong" : "right");
  ftsort_result_free(result);
  ftsort_leave(group, failures > 0);
  return 1;
}
