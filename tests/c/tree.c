/* Tests the tree functions: invalid arguments, every operation, and failures of ranks meanwhile.
 *
 *   tree args                     2 to 4 ranks; prints "tree: fine" on rank 0
 *   tree gather none|sink|owner   4 ranks; the rank that is killed when the second piece is handed out.
 *                                 Each survivor prints "gather: status=S lost=R"
 *   tree merge                    any number of ranks, of which FTSORT_FAULTS kills some. Each survivor prints
 *                                 "merge: status=S lost=R", and the result is checked on the rank that has it */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort_store.h"
#include "ftsort_tree.h"

static const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
static const ftsort_tree_options plain = FTSORT_TREE_OPTIONS_INIT;
static ftsort *group;

static void refused(const ftsort_tree_options *options, const void *state, size_t bytes, const char *word)
{
  ftsort_result *result = (ftsort_result *)&failures;
  EXPECT(ftsort_tree_merge(group, options, state, bytes, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(result == NULL);
  if (strstr(ftsort_last_error(group), word) == NULL)
    fprintf(stderr, "rank %d: %s is not in: %s\n", rank, word, ftsort_last_error(group)), failures++;
}

static int consume_nothing(void *user, const void *records, size_t count)
{
  (void)user, (void)records, (void)count;
  return 0;
}

static void bad_arguments(void)
{
  static const int32_t outside[] = {0, 99}, itself[] = {1, 1}, sink_alone[] = {0, 1, 0, 2};
  const int32_t unsorted[] = {2, 1};
  ftsort_tree_options options = plain;
  ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
  ftsort_result *result = NULL;
  int32_t data[2] = {1, 2};
  uint64_t first = 7, count = 7;

  EXPECT(ftsort_tree_merge(NULL, NULL, data, 8, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_tree_merge(group, NULL, data, 8, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_tree_broadcast(NULL, NULL, 0, data, 8) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_tree_share(NULL, NULL, 9, &first, &count) == FTSORT_ERR_ARGUMENT && first == 0 && count == 0);
  EXPECT(ftsort_tree_share(group, NULL, 9, NULL, &count) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "first is NULL") != NULL);
  EXPECT(ftsort_tree_share(group, NULL, 9, &first, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "count is NULL") != NULL);
  EXPECT(ftsort_gather_sorted(NULL, NULL, NULL, consume_nothing, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_gather_sorted(group, NULL, NULL, consume_nothing, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "result is NULL") != NULL);
  EXPECT(ftsort_gather_sorted(group, NULL, NULL, NULL, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "consume is NULL") != NULL);
  EXPECT(ftsort_tree_get_info(NULL, &info) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_tree_get_info(group, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_tree_get_info(group, &info) == FTSORT_OK && info.sink == -1 && info.executor == -1);
  EXPECT(info.dimension_count == 0 && info.faulty_links == 0 && info.struct_size == sizeof info);
  ftsort_result_free(NULL);

  refused(&plain, NULL, 8, "state is NULL");
  options.struct_size = 4096;
  refused(&options, data, 8, "struct_size is 4096");
  options = plain;
  options.has_sink = 1;
  options.sink = ranks;
  refused(&options, data, 8, "options.sink is");
  EXPECT(ftsort_tree_share(group, &options, 9, &first, &count) == FTSORT_ERR_ARGUMENT);
  options = plain;
  options.operation = 77;
  refused(&options, data, 8, "options.operation is 77");
  options.operation = FTSORT_TREE_CALL;
  refused(&options, data, 8, "options.merge is NULL");
  options.operation = FTSORT_TREE_SUM;
  refused(&options, data, 8, "options.key is 0");
  options.key = FTSORT_KEY_BYTES;
  refused(&options, data, 8, "options.key is 11");
  options.key = FTSORT_KEY_I32;
  refused(&options, data, 7, "bytes is 7");
  options = plain;
  options.operation = FTSORT_TREE_SORTED;
  refused(&options, data, 8, "record is NULL");
  options.record = &i32;
  refused(&options, unsorted, 8, "not sorted");
  options = plain;
  options.link_count = 1;
  refused(&options, data, 8, "options.links is NULL");
  options.links = outside;
  options.link_count = (size_t)-1;
  refused(&options, data, 8, "options.link_count is");
  options.link_count = 1;
  refused(&options, data, 8, "is 99");
  options.links = itself;
  refused(&options, data, 8, "to itself");
  options = plain;
  options.reroute = 3;
  refused(&options, data, 8, "options.reroute is 3");

  /* Not the same on all ranks, then invalid on one. */
  options = plain;
  options.reroute = rank == 1 ? FTSORT_TREE_REROUTE : FTSORT_TREE_DELEGATE;
  refused(&options, data, 8, "not the same");
  EXPECT(ftsort_tree_merge(group, &plain, rank == 1 ? NULL : data, 8, &result) ==
         (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(ftsort_tree_broadcast(group, NULL, rank == 1 ? 1 : 0, data, 8) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_tree_broadcast(group, NULL, 0, data, rank == 1 ? 4 : 8) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_tree_broadcast(group, NULL, -1, data, 8) == FTSORT_ERR_ARGUMENT);
  options = plain;
  options.operation = FTSORT_TREE_SUM;
  options.key = FTSORT_KEY_I32;
  {
    ftsort_status status = ftsort_tree_merge(group, &options, data, rank == 1 ? 4 : 8, &result);
    EXPECT(status == FTSORT_ERR_ARGUMENT || status == FTSORT_ERR_PEER_ARGUMENT);
  }

  /* No rank can reach the sink; the text is the same on all ranks. */
  options = plain;
  options.has_sink = 1;
  options.links = sink_alone;
  options.link_count = ranks == 2 ? 1 : 2;
  refused(&options, data, 8, "no path to rank 0 from rank 1");
  EXPECT(ftsort_tree_broadcast(group, &options, 0, data, 8) == FTSORT_ERR_ARGUMENT);
}

/* Only rank 0 can reach the sink, and has all items. The tree leaves out the other ranks, which contribute nothing. */
static void shares_of_one(void)
{
  static const int32_t sink_alone[] = {0, 1, 0, 2};
  ftsort_tree_options options = plain;
  ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
  ftsort_result *result = NULL;
  ftsort_block block;
  uint64_t first, count;
  int32_t data[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT(ftsort_tree_share(group, NULL, 9, &first, &count) == FTSORT_OK);
  EXPECT(first == (uint64_t)(9 * rank / ranks) && first + count == (uint64_t)(9 * (rank + 1) / ranks));
  options.has_sink = 1;
  options.links = sink_alone;
  options.link_count = ranks == 2 ? 1 : 2;
  EXPECT(ftsort_tree_share(group, &options, 9, &first, &count) == FTSORT_OK);
  EXPECT(count == (rank == 0 ? 9U : 0U) && first == (rank == 0 ? 0U : 9U));
  EXPECT(ftsort_tree_merge(group, &options, data + first, count * sizeof *data, &result) == FTSORT_OK);
  EXPECT((result != NULL) == (rank == 0));
  if (result != NULL) {
    ftsort_result_block(result, 0, &block);
    EXPECT(block.count == sizeof data && memcmp(block.data, data, sizeof data) == 0);
  }
  EXPECT(ftsort_tree_get_info(group, &info) == FTSORT_OK && info.sink == 0 && info.executor == 0);
  EXPECT(info.faulty_links == options.link_count && info.helps == 0 && info.detours == 0);
  ftsort_result_free(result);
}

static int longest(void *user, const void *low, size_t low_bytes, const void *high, size_t high_bytes,
                   ftsort_buffer *out)
{
  int low_wins = low_bytes >= high_bytes;
  size_t bytes = low_wins ? low_bytes : high_bytes;
  void *place = ftsort_buffer_resize(out, bytes);
  ++*(int *)user;
  EXPECT((uintptr_t)low % 8 == 0 && (uintptr_t)high % 8 == 0);
  if (place == NULL) return 1;
  memcpy(place, low_wins ? low : high, bytes);
  return 0;
}

static int refuse(void *user, const void *low, size_t low_bytes, const void *high, size_t high_bytes,
                  ftsort_buffer *out)
{
  (void)user, (void)low, (void)low_bytes, (void)high, (void)high_bytes, (void)out;
  return 7;
}

/* Merges to each rank as the sink, without and with a faulty link. The sink must have the expected bytes. */
static void merges(ftsort_tree_options options, const void *state, size_t bytes, const void *expected, size_t length)
{
  static const int32_t links[] = {0, 1};
  int sink, broken;
  for (sink = 0; sink < ranks; sink++) {
    for (broken = 0; broken < (ranks > 2 ? 2 : 1); broken++) {
      ftsort_result *result = NULL;
      ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
      ftsort_block block;
      options.has_sink = 1;
      options.sink = sink;
      options.links = links;
      options.link_count = (size_t)broken;
      EXPECT(ftsort_tree_merge(group, &options, state, bytes, &result) == FTSORT_OK);
      EXPECT((result != NULL) == (rank == sink));
      EXPECT(ftsort_tree_get_info(group, &info) == FTSORT_OK);
      EXPECT(info.sink == sink && info.executor == sink);
      EXPECT(info.dimension_count == ftsort_dimension(group));
      if (result != NULL) {
        EXPECT(ftsort_result_count(result) == 1 && ftsort_result_total(result) == length);
        EXPECT(ftsort_result_block(result, 0, &block) == FTSORT_OK && block.node == sink && block.offset == 0);
        EXPECT(block.count == length && memcmp(block.data, expected, length) == 0);
      }
      ftsort_result_free(result);
    }
  }
}

static void operations(void)
{
  ftsort_tree_options options = plain;
  int32_t mine[2], all[8], sums[2] = {0, 0}, least[2] = {0, 0}, greatest[2], logical[2];
  ftsort_result *result = NULL;
  int r, calls = 0;
  mine[0] = rank;
  mine[1] = 10 * rank;
  for (r = 0; r < ranks; r++) {
    all[2 * r] = r;
    all[2 * r + 1] = 10 * r;
    sums[0] += r;
    sums[1] += 10 * r;
  }
  greatest[0] = ranks - 1;
  greatest[1] = 10 * (ranks - 1);
  merges(options, mine, 8, all, (size_t)ranks * 8);
  merges(options, NULL, 0, all, 0);
  merges(options, mine, rank == 1 ? 8 : 0, all + 2, 8);
  options.key = FTSORT_KEY_I32;
  options.operation = FTSORT_TREE_SUM;
  merges(options, mine, 8, sums, 8);
  options.reroute = FTSORT_TREE_PARTITION;
  merges(options, mine, 8, sums, 8);
  options.ordered = 1;
  merges(options, mine, 8, sums, 8);
  options.operation = FTSORT_TREE_MIN;
  merges(options, mine, 8, least, 8);
  options.operation = FTSORT_TREE_MAX;
  merges(options, mine, 8, greatest, 8);
  options.operation = FTSORT_TREE_AND;
  logical[0] = logical[1] = 0;
  merges(options, mine, 8, logical, 8);
  options.operation = FTSORT_TREE_OR;
  logical[0] = logical[1] = 1;
  merges(options, mine, 8, logical, 8);
  options = plain;
  options.operation = FTSORT_TREE_SORTED;
  options.record = &i32;
  options.detect_ms = 60000; /* no link is as slow as this */
  {
    int32_t sorted[8];
    size_t i, k;
    memcpy(sorted, all, (size_t)ranks * 8);
    for (i = 0; i < (size_t)ranks * 2; i++)
      for (k = i; k > 0 && sorted[k - 1] > sorted[k]; k--) {
        int32_t swap = sorted[k];
        sorted[k] = sorted[k - 1];
        sorted[k - 1] = swap;
      }
    merges(options, mine, 8, sorted, (size_t)ranks * 8);
    options.reroute = FTSORT_TREE_PARTITION;
    merges(options, mine, 8, sorted, (size_t)ranks * 8);
  }
  options = plain;
  options.operation = FTSORT_TREE_CALL;
  options.merge = longest;
  options.user = &calls;
  merges(options, "abcdefgh", (size_t)rank + 1, "abcdefgh", (size_t)ranks);
  options.ordered = 1;
  merges(options, "abcdefgh", (size_t)rank + 1, "abcdefgh", (size_t)ranks);
  options.merge = refuse;
  EXPECT(ftsort_tree_merge(group, &options, mine, 8, &result) == FTSORT_ERR_CALLBACK);
  EXPECT(result == NULL);

  for (r = 0; r < ranks; r++) {
    int32_t received[2];
    memcpy(received, mine, 8);
    EXPECT(ftsort_tree_broadcast(group, NULL, r, received, 8) == FTSORT_OK);
    EXPECT(received[0] == r && received[1] == 10 * r);
    EXPECT(ftsort_tree_broadcast(group, NULL, r, NULL, 0) == FTSORT_OK);
  }
}

/* Counts of the records that are handed out. */
static long handed_out, disorder, piece, victim_pid;
static int32_t last = INT32_MIN;

static int consume(void *user, const void *records, size_t count)
{
  const int32_t *keys = (const int32_t *)records;
  size_t i;
  for (i = 0; i < count; i++) {
    disorder += keys[i] < last;
    last = keys[i];
  }
  handed_out += (long)count;
  if (++piece == 2 && victim_pid != 0 && rank == 1) kill((pid_t)victim_pid, SIGKILL);
  return user != NULL && piece == *(int *)user;
}

static ftsort_result *sorted_numbers(long count)
{
  int32_t *data = (int32_t *)malloc((size_t)count * sizeof *data);
  ftsort_result *result = NULL;
  long i;
  for (i = 0; i < count; i++) data[i] = (int32_t)((uint32_t)(i + 1) * 2654435761u ^ (uint32_t)rank << 7);
  EXPECT(ftsort_run(group, &i32, data, (size_t)count, &result) == FTSORT_OK);
  free(data);
  return result;
}

static void gather_fine(void)
{
  ftsort_result *result = sorted_numbers(1200000), *older = sorted_numbers(10);
  ftsort_tree_options options = plain;
  int second = 2;
  options.has_sink = 1;
  options.sink = ranks - 1;
  EXPECT(ftsort_gather_sorted(group, &options, result, consume, NULL) == FTSORT_OK);
  EXPECT(handed_out == (rank == ranks - 1 ? 1200000L * ranks : 0) && disorder == 0);
  EXPECT(rank != ranks - 1 || piece > 2);
  piece = 0;
  last = INT32_MIN;
  EXPECT(ftsort_gather_sorted(group, &options, result, consume, &second) == FTSORT_ERR_CALLBACK);
  EXPECT(ftsort_gather_sorted(group, &options, rank == 1 ? older : result, consume, NULL) ==
         FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "result is not the same on all ranks") != NULL);
  ftsort_result_free(older);
  ftsort_result_free(result);
}

static void gather_with_failure(const char *victim)
{
  ftsort_result *result = sorted_numbers(1500000);
  ftsort_tree_options options = plain;
  ftsort_status status;
  long pid = getpid(), pids[16];
  int32_t lost = -1;
  MPI_Allgather(&pid, 1, MPI_LONG, pids, 1, MPI_LONG, MPI_COMM_WORLD);
  options.has_sink = 1;
  options.sink = 1;
  if (strcmp(victim, "sink") == 0) victim_pid = pids[1];
  if (strcmp(victim, "owner") == 0) victim_pid = pids[3];
  status = ftsort_gather_sorted(group, &options, result, consume, NULL);
  ftsort_lost_ranks(group, &lost, 1);
  /* If the sink fails, rank 0 executes its node and receives everything from the beginning. */
  EXPECT(handed_out == (rank == (strcmp(victim, "sink") == 0 ? 0 : 1) ? 1500000L * ranks : 0));
  EXPECT(disorder == 0);
  printf("gather: status=%d lost=%d%s\n", (int)status, (int)lost, failures ? " WRONG" : "");
  ftsort_result_free(result);
}

/* Concatenates contributions of different sizes. All of them must be in the result, those of killed ranks too. */
static void merge_with_failures(void)
{
  unsigned char *mine = (unsigned char *)malloc(20000u + (unsigned)rank);
  ftsort_result *result = NULL;
  ftsort_block block;
  ftsort_status status;
  int32_t lost = -1;
  size_t at = 0, i;
  int owner;
  memset(mine, rank + 1, 20000u + (unsigned)rank);
  status = ftsort_tree_merge(group, NULL, mine, 20000u + (unsigned)rank, &result);
  ftsort_lost_ranks(group, &lost, 1);
  if (result != NULL && ftsort_result_block(result, 0, &block) == FTSORT_OK) {
    const unsigned char *bytes = (const unsigned char *)block.data;
    for (owner = 0; owner < ranks; owner++)
      for (i = 0; i < 20000u + (unsigned)owner && at < block.count; i++) EXPECT(bytes[at++] == owner + 1);
    EXPECT(at == block.count && at == 20000u * (unsigned)ranks + (unsigned)(ranks * (ranks - 1) / 2));
  }
  printf("merge: status=%d lost=%d%s\n", (int)status, (int)lost, failures ? " WRONG" : "");
  ftsort_result_free(result);
  free(mine);
}

int main(int argc, char **argv)
{
  if (argc < 2) return 2;
  ftsort_allow_faults();
  start_mpi(&argc, &argv);
  if (ftsort_init(MPI_COMM_WORLD, NULL, &group) != FTSORT_OK) return 3;
  if (strcmp(argv[1], "gather") == 0 && argc == 3) {
    gather_with_failure(argv[2]);
  } else if (strcmp(argv[1], "merge") == 0) {
    merge_with_failures();
  } else {
    bad_arguments();
    shares_of_one();
    operations();
    gather_fine();
    report("tree");
  }
  ftsort_leave(group, failures != 0);
  return 1;
}
