/* States of a loop of the caller (ftsort_store.h): their commits, wrong arguments, states with a name, and stored results
 * of sorts.
 *
 *   states DIR    (under mpirun)
 *
 * DIR is empty afterwards. */
#include <string.h>

#include "expect.h"
#include "ftsort.h"
#include "ftsort_store.h"
#include "ftsort_verify.h"

/* States of a caller's loop, with each kind of store, and a sort between commits. */
static void states(const char *dir)
{
  static const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  static const int32_t keys[] = {3, 1};
  static const int32_t stores[] = {FTSORT_STORE_MEMORY, FTSORT_STORE_DIRECTORY, FTSORT_STORE_NONE};
  size_t store;
  for (store = 0; store < 3; store++) {
    ftsort_config config = FTSORT_CONFIG_INIT;
    ftsort *group = NULL;
    ftsort_result *result = NULL;
    const void *state = dir;
    size_t bytes = 7, failed = 7;
    int committed = 7, nodes;
    config.store = stores[store];
    config.store_directory = dir;
    EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
    nodes = 1 << ftsort_dimension(group);

    EXPECT(ftsort_store_put(group, nodes, NULL, 0) == FTSORT_ERR_ARGUMENT);
    EXPECT(strstr(ftsort_last_error(group), "node is") != NULL);
    EXPECT(ftsort_store_put(group, -1, NULL, 0) == FTSORT_ERR_ARGUMENT);
    EXPECT(ftsort_store_put(group, (rank + 1) % ranks, NULL, 0) == FTSORT_ERR_ARGUMENT);
    EXPECT(strstr(ftsort_last_error(group), "executes") != NULL);
    EXPECT(ftsort_store_put(group, rank, NULL, 3) == FTSORT_ERR_ARGUMENT);
    EXPECT(strstr(ftsort_last_error(group), "bytes is 3") != NULL);
    EXPECT(ftsort_store_get(group, (rank + 1) % ranks, &state, &bytes) == FTSORT_ERR_ARGUMENT);
    EXPECT(ftsort_store_get(group, rank, NULL, &bytes) == FTSORT_ERR_ARGUMENT);
    EXPECT(ftsort_store_get(group, rank, &state, &bytes) == FTSORT_OK);
    EXPECT(state == NULL && bytes == 0);

    /* A state can be read only after its commit, and is committed only if all ranks say so. */
    EXPECT(ftsort_store_put(group, rank, "one", 4) == FTSORT_OK);
    EXPECT(ftsort_store_get(group, rank, &state, NULL) == FTSORT_OK && state == NULL);
    EXPECT(ftsort_store_commit(group, rank != 1, &committed) == FTSORT_OK && committed == 0);
    EXPECT(ftsort_store_get(group, rank, &state, NULL) == FTSORT_OK && state == NULL);
    EXPECT(ftsort_store_put(group, rank, "two", 4) == FTSORT_OK);
    EXPECT(ftsort_store_commit(group, 1, &committed) == FTSORT_OK && committed == 1);
    EXPECT(ftsort_store_get(group, rank, &state, &bytes) == FTSORT_OK);
    EXPECT(state != NULL && bytes == 4 && strcmp((const char *)state, "two") == 0);

    /* An invalid argument on one rank. */
    EXPECT(ftsort_store_commit(group, 1, rank == 1 ? NULL : &committed) ==
           (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));

    /* A new round discards states that were put and not committed. A node for which no state is put keeps the
     * last one, also through a sort. */
    EXPECT(ftsort_store_put(group, rank, "three", 6) == FTSORT_OK);
    EXPECT(ftsort_fault_check(group, &failed) == FTSORT_OK && failed == 0);
    EXPECT(ftsort_store_commit(group, 1, &committed) == FTSORT_OK && committed == 1);
    EXPECT(ftsort_run(group, &i32, keys, 2, &result) == FTSORT_OK);
    ftsort_result_free(result);
    EXPECT(ftsort_store_get(group, rank, &state, &bytes) == FTSORT_OK);
    EXPECT(state != NULL && bytes == 4 && strcmp((const char *)state, "two") == 0);

    /* An empty state is a state. */
    EXPECT(ftsort_store_put(group, rank, NULL, 0) == FTSORT_OK);
    EXPECT(ftsort_store_commit(group, 1, &committed) == FTSORT_OK && committed == 1);
    EXPECT(ftsort_store_get(group, rank, &state, &bytes) == FTSORT_OK);
    EXPECT(state != NULL && bytes == 0);
    EXPECT(ftsort_store_clear(group) == FTSORT_OK);
    EXPECT(ftsort_store_get(group, rank, &state, &bytes) == FTSORT_OK && state == NULL);
    ftsort_free(group);
  }
}

/* States with a name: wrong arguments, and a group that continues the states of another one. */
static void named_states(const char *dir)
{
  static const char *const wrong[] = {"", "a/b", "\xff", NULL};
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  const void *state = NULL;
  int found = 7, committed, turn;
  size_t i;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  EXPECT(ftsort_store_open(group, "name", &found) == FTSORT_ERR_ARGUMENT && found == 0);
  EXPECT(strstr(ftsort_last_error(group), "store_directory") != NULL);
  ftsort_free(group);
  EXPECT(ftsort_store_open(NULL, "name", &found) == FTSORT_ERR_ARGUMENT);

  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = dir;
  for (turn = 0; turn < 3; turn++) {
    EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      EXPECT(ftsort_store_open(group, rank == 0 ? wrong[i] : "name", &found) ==
             (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
      if (rank == 0) EXPECT(strstr(ftsort_last_error(group), "name is") != NULL);
    }
    EXPECT(ftsort_store_open(group, "name", rank == 0 ? NULL : &found) ==
           (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
    EXPECT(ftsort_store_open(group, "name", &found) == FTSORT_OK && found == (turn == 1));
    EXPECT(ftsort_store_open(group, "name", &found) == FTSORT_ERR_STATE);
    EXPECT(ftsort_store_get(group, rank, &state, NULL) == FTSORT_OK);
    EXPECT(turn == 1 ? strcmp((const char *)state, "kept") == 0 : state == NULL);
    EXPECT(ftsort_store_put(group, rank, "kept", 5) == FTSORT_OK);
    EXPECT(ftsort_store_commit(group, 1, &committed) == FTSORT_OK && committed == 1);
    if (turn > 0) EXPECT(ftsort_store_clear(group) == FTSORT_OK);
    ftsort_free(group);
  }
}

/* A result with a name is found by another group, which has the same records on other ranks. */
static void stored_results(const char *dir)
{
  enum { COUNT = 500 };
  static const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  static int32_t keys[COUNT];
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  ftsort_block block;
  uint64_t violations;
  int found = 7, turn, i;
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = dir;
  for (turn = 0; turn < 4; turn++) {
    const int32_t home = (int32_t)((rank + turn) % ranks);
    for (i = 0; i < COUNT; i++) keys[i] = ((int32_t)i * 7919 + home * 104729) % 100000;
    EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
    EXPECT(ftsort_run_stored(group, &i32, keys, COUNT, &result) == FTSORT_ERR_STATE && result == NULL);
    EXPECT(strstr(ftsort_last_error(group), "ftsort_store_open") != NULL);
    EXPECT(ftsort_store_open(group, "result", &found) == FTSORT_OK && found == (turn == 1 || turn == 2));
    EXPECT(ftsort_run_stored(group, &i32, keys, COUNT, rank == 0 ? NULL : &result) ==
           (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
    EXPECT(ftsort_run_stored(group, &i32, keys, COUNT, &result) == FTSORT_OK);
    EXPECT(ftsort_result_total(result) == (uint64_t)COUNT * (uint64_t)ranks);
    EXPECT(ftsort_result_verify(group, result, keys, COUNT, &violations) == FTSORT_OK && violations == 0);
    EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
    EXPECT(ftsort_result_block(result, 0, &block) == FTSORT_OK && block.node == rank && block.count > 0);
    ftsort_result_free(result);

    /* One record of one rank is another one. */
    if (rank == 1) keys[3]++;
    EXPECT(ftsort_run_stored(group, &i32, keys, COUNT, &result) == FTSORT_ERR_ARGUMENT && result == NULL);
    EXPECT(strstr(ftsort_last_error(group), "ftsort_store_clear") != NULL);
    if (turn >= 2) EXPECT(ftsort_store_clear(group) == FTSORT_OK);
    if (turn == 2) {
      EXPECT(ftsort_run_stored(group, &i32, keys, COUNT, &result) == FTSORT_OK);
      ftsort_result_free(result);
      EXPECT(ftsort_store_clear(group) == FTSORT_OK);
    }
    ftsort_free(group);
  }
}

/* The result of all ranks is not that of fewer ranks that pass the same inputs as before. */
static void results_of_fewer_ranks(const char *dir)
{
  static const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  const int32_t keys[] = {rank, 7, 9 - rank};
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  MPI_Comm fewer;
  int found;
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = dir;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  EXPECT(ftsort_store_open(group, "fewer", &found) == FTSORT_OK && !found);
  EXPECT(ftsort_run_stored(group, &i32, keys, 3, &result) == FTSORT_OK);
  ftsort_result_free(result);
  result = NULL;
  ftsort_free(group);
  MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 1 ? MPI_UNDEFINED : 0, rank, &fewer);
  if (fewer == MPI_COMM_NULL) return;
  EXPECT(ftsort_init(fewer, &config, &group) == FTSORT_OK);
  EXPECT(ftsort_store_open(group, "fewer", &found) == FTSORT_OK && found);
  EXPECT(ftsort_run_stored(group, &i32, keys, 3, &result) == FTSORT_ERR_ARGUMENT && result == NULL);
  EXPECT(ftsort_store_clear(group) == FTSORT_OK);
  ftsort_free(group);
  MPI_Comm_free(&fewer);
}

int main(int argc, char **argv)
{
  if (argc != 2) return 2;
  start_mpi(&argc, &argv);
  states(argv[1]);
  named_states(argv[1]);
  stored_results(argv[1]);
  /* Both numbers of ranks have four nodes. */
  if (ranks == 4) results_of_fewer_ranks(argv[1]);
  return end_mpi("states");
}
