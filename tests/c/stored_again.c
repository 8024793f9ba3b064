/* Stored results and initial states after a rank was killed with SIGKILL.
 *
 *   stored_again DIR discarded  a result whose stored states were discarded stays as it is, and does not become a later one
 *   stored_again DIR reload     rank 1 fails before its initial state is stored, and a callback provides it again
 *
 * Three ranks. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort_all.h"

enum { COUNT = 30000 };

static const ftsort_record KEYS = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);

static void kill_rank_1(ftsort *group)
{
  if (rank == 1) kill(getpid(), SIGKILL);
  while (!ftsort_is_failed(group, 1)) EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
}

/* A copy of the blocks of a result, one after the other. */
static char *copy_of(const ftsort_result *result, size_t record_bytes, size_t *bytes)
{
  char *copy = NULL;
  size_t i;
  ftsort_block block;
  *bytes = 0;
  for (i = 0; i < ftsort_result_count(result); i++) {
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    copy = (char *)realloc(copy, *bytes + block.count * record_bytes + 1);
    memcpy(copy + *bytes, block.data, block.count * record_bytes);
    *bytes += block.count * record_bytes;
  }
  return copy;
}

static int is_same(const ftsort_result *result, size_t record_bytes, const char *copy, size_t bytes)
{
  size_t now_bytes;
  char *now = copy_of(result, record_bytes, &now_bytes);
  int same = now_bytes == bytes && memcmp(now, copy, bytes) == 0;
  free(now);
  return same;
}

static void discarded(ftsort *group)
{
  ftsort_result *one, *two;
  static int32_t keys[COUNT];
  char *before;
  size_t bytes;
  int k, found, lost;
  for (k = 0; k < COUNT; k++) keys[k] = k * 7919 % 10007 + rank;
  EXPECT(ftsort_store_open(group, "again", &found) == FTSORT_OK);
  EXPECT(ftsort_run_stored(group, &KEYS, keys, COUNT, &one) == FTSORT_OK);
  before = copy_of(one, sizeof *keys, &bytes);
  EXPECT(ftsort_store_clear(group) == FTSORT_OK);
  for (k = 0; k < COUNT; k++) keys[k] = -k;
  EXPECT(ftsort_run_stored(group, &KEYS, keys, COUNT, &two) == FTSORT_OK);
  EXPECT(ftsort_result_recover(group, one) == FTSORT_OK);
  EXPECT(is_same(one, sizeof *keys, before, bytes));
  kill_rank_1(group);
  EXPECT(ftsort_result_recover(group, one) == FTSORT_ERR_DATA_LOST);
  EXPECT(ftsort_lost_ranks(group, &lost, 1) == 1 && lost == 1);
  EXPECT(is_same(one, sizeof *keys, before, bytes));
  EXPECT(ftsort_result_recover(group, two) == FTSORT_OK);
  EXPECT(ftsort_store_clear(group) == FTSORT_OK);
  free(before);
  ftsort_result_free(one);
  ftsort_result_free(two);
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  (void)user;
  return ftsort_buffer_append(next, task->state, task->state_bytes) || ftsort_buffer_append(next, inbox, bytes);
}

static char state_of(int owner)
{
  return (char)('a' + owner);
}

static int load(void *user, int32_t owner, ftsort_buffer *out)
{
  char state = state_of(owner);
  (void)user;
  return ftsort_buffer_append(out, &state, 1);
}

static void reload(ftsort *group)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_result *result;
  ftsort_block block;
  char state = state_of(rank);
  int found;
  rounds.absorb = absorb;
  rounds.store_every = 1;
  EXPECT(ftsort_store_open(group, "again", &found) == FTSORT_OK);
  if (rank == 1) kill(getpid(), SIGKILL);
  EXPECT(ftsort_rounds_run(group, &rounds, &state, 1, &result) == FTSORT_OK);
  EXPECT(ftsort_result_block(result, 0, &block) == FTSORT_OK);
  /* Node 3 has no home rank, so that its state is empty. */
  EXPECT(block.node == rank && block.count == 3);
  EXPECT(memcmp(block.data, rank == 0 ? "acb" : "cab", 3) == 0);
  EXPECT(ftsort_store_clear(group) == FTSORT_OK);
  ftsort_result_free(result);
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  start_mpi(&argc, &argv);
  if (argc != 3 || ranks != 3) MPI_Abort(MPI_COMM_WORLD, 1);
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = argv[1];
  config.reload = load;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  if (!strcmp(argv[2], "discarded")) discarded(group);
  if (!strcmp(argv[2], "reload")) reload(group);
  if (failures) printf("stored_again: NOT as documented\n");
  else if (rank == 0) printf("stored_again: fine\n");
  ftsort_leave(group, failures > 0);
  return 1;
}
