/* Sorts several times in a group with spares, while ranks kill themselves with SIGKILL.
 *
 *   spares SPARES STORE DIR SORTS [RANK@SORT ...]
 *
 * RANK@SORT: this rank kills itself in this sort, which counts from 0, when round 1 has been committed.
 *
 * After each sort every survivor compares the counts and sums of all blocks with those of the inputs, and checks that
 * it has at most one block with records, not larger than 1.05 times an equal share of the working nodes. Each survivor
 * prints a line. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort_all.h"

enum { COUNT = 70000, MOST_RANKS = 64 };

static int sort_number, kill_in = -1;

static uint64_t key_of(int owner, int sort, int i)
{
  uint64_t x = (uint64_t)owner << 40 | (uint64_t)sort << 32 | (uint64_t)i;
  x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 31;
}

static void kill_myself(void *user, const ftsort_event *event)
{
  (void)user;
  if (event->kind == FTSORT_EVENT_ROUND && event->round == 1 && sort_number == kill_in) kill(getpid(), SIGKILL);
}

/* The number of the result's blocks with records, their records, and the sum of their keys. */
static size_t check_blocks(const ftsort_result *result, uint64_t *records, uint64_t *sum)
{
  size_t full = 0, i, k;
  ftsort_block block;
  for (i = 0; i < ftsort_result_count(result); i++) {
    const uint64_t *keys;
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    keys = (const uint64_t *)block.data;
    full += block.count > 0;
    for (k = 0; k < block.count; k++) {
      *sum += keys[k];
      EXPECT(k == 0 || keys[k - 1] <= keys[k]);
    }
    *records += block.count;
  }
  return full;
}

/* Sorts once; the survivors compare their blocks with all inputs. */
static void sort_once(ftsort *group, int working, int spares)
{
  ftsort_record record = FTSORT_RECORD_PLAIN(uint64_t, FTSORT_KEY_U64);
  ftsort_result *result = NULL;
  uint64_t mine[2] = {0, 0}, all[2] = {0, 0}, expected[2] = {0, 0};
  static uint64_t keys[COUNT];
  int owner, i, has_input = 0, failed = 0;
  MPI_Comm survivors;
  for (owner = 0; owner < ranks; owner++) {
    if (ftsort_is_failed(group, owner) || ftsort_is_spare(group, owner)) continue;
    has_input |= owner == rank;
    for (i = 0; i < COUNT; i++) {
      if (owner == rank) keys[i] = key_of(owner, sort_number, i);
      expected[1] += key_of(owner, sort_number, i);
    }
    expected[0] += COUNT;
  }
  EXPECT(ftsort_run(group, &record, keys, has_input ? COUNT : 0, &result) == FTSORT_OK);
  EXPECT(ftsort_result_total(result) == expected[0]);
  for (owner = 0; owner < ranks; owner++) failed += ftsort_is_failed(group, owner);
  EXPECT(check_blocks(result, &mine[0], &mine[1]) <= (failed <= spares ? 1u : 2u));
  if (failed <= spares) EXPECT((double)mine[0] <= 1.05 * (double)expected[0] / working);
  if (ftsort_is_spare(group, rank)) EXPECT(mine[0] == 0 && ftsort_executor(group, rank) != rank);
  if (!ftsort_is_spare(group, rank)) EXPECT(mine[0] > 0 && ftsort_executor(group, rank) == rank);
  EXPECT(ftsort_comm(group, &survivors) == FTSORT_OK);
  EXPECT(MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, survivors) == MPI_SUCCESS);
  EXPECT(all[0] == expected[0] && all[1] == expected[1]);
  ftsort_result_free(result);
}

/* Checks the arguments that concern spares. */
static void check_arguments(ftsort *group, ftsort_config config, int working)
{
  ftsort_record record = FTSORT_RECORD_PLAIN(uint64_t, FTSORT_KEY_U64);
  ftsort_result *result = NULL;
  ftsort *other = NULL;
  uint64_t one = 1;
  int is_spare = rank >= working;
  ftsort_status status = ftsort_run(group, &record, &one, 1, &result);
  if (working < ranks) {
    EXPECT(status == (is_spare ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
    if (is_spare) EXPECT(strstr(ftsort_last_error(group), "count is 1, but rank") != NULL);
  }
  ftsort_result_free(result);
  EXPECT(ftsort_is_spare(group, rank) == is_spare && ftsort_is_failed(group, rank) == 0);
  EXPECT(ftsort_is_spare(group, -1) == 0 && ftsort_is_spare(group, ranks) == 0 && ftsort_is_spare(NULL, 0) == 0);
  config.spares = (uint32_t)ranks;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &other) == FTSORT_ERR_ARGUMENT && other == NULL);
  EXPECT(strstr(ftsort_last_error(NULL), "config.spares is") != NULL);
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  int sorts, working, i;
  if (argc < 5) return 2;
  start_mpi(&argc, &argv);
  config.spares = (uint32_t)atoi(argv[1]);
  config.store = strcmp(argv[2], "directory") == 0 ? FTSORT_STORE_DIRECTORY : FTSORT_STORE_MEMORY;
  config.store_directory = argv[3];
  config.on_event = kill_myself;
  sorts = atoi(argv[4]);
  working = ranks - (int)config.spares;
  sort_number = -1;
  for (i = 5; i < argc; i++) {
    const char *at = strchr(argv[i], '@');
    if (at && atoi(argv[i]) == rank) kill_in = atoi(at + 1);
  }
  EXPECT(ranks <= MOST_RANKS && ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  check_arguments(group, config, working);
  for (sort_number = 0; sort_number < sorts; sort_number++) sort_once(group, working, (int)config.spares);
  printf("spares: rank %d %s, executors", rank, failures ? "wrong" : "right");
  for (i = 0; i < working; i++) printf(" %d", (int)ftsort_executor(group, i));
  printf("\n");
  ftsort_leave(group, failures > 0);
  return 1;
}
