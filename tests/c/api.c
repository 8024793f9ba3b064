/* Tests the C interface: invalid and unusual arguments, reuse of groups, several groups, memory leaks.
 *
 *   api DIR      (under mpirun, 2 to 4 ranks; DIR is a writable folder that all ranks share)
 *
 * Prints "api: fine" on rank 0 if all functions behave as documented. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort.h"
#include "ftsort_query.h"
#include "ftsort_store.h"
#include "ftsort_verify.h"

static const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);

static void init_expecting(ftsort_config config, ftsort_status expected, const char *word)
{
  ftsort *group = (ftsort *)&failures;
  ftsort_status status = ftsort_init(MPI_COMM_WORLD, &config, &group);
  EXPECT(status == expected);
  EXPECT(group == NULL);
  if (status != expected) fprintf(stderr, "  got %d: %s\n", status, ftsort_last_error(NULL));
  if (word) EXPECT(strstr(ftsort_last_error(NULL), word) != NULL);
}

/* A directory in which any user could replace the files. */
static void open_directory(const char *dir)
{
  char place[4096];
  ftsort_config config = FTSORT_CONFIG_INIT;
  snprintf(place, sizeof place, "%s/open", dir);
  if (rank == 0) EXPECT(mkdir(place, 0700) == 0 && chmod(place, 0777) == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = place;
  init_expecting(config, FTSORT_ERR_STORE, "sticky");
  config.store = FTSORT_STORE_MEMORY;
  strcat(place, "/t");
  config.trace = place;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "sticky");
  MPI_Barrier(MPI_COMM_WORLD);
  place[strlen(place) - 2] = '\0';
  if (rank == 0) EXPECT(rmdir(place) == 0);
}

static int fault_warnings;

static void on_log_of_faults(void *user, int level, const char *line)
{
  (void)user;
  if (level == 1 && strstr(line, "ftsort_allow_faults")) fault_warnings++;
}

static void bad_configs(const char *dir)
{
  const ftsort_config fine = FTSORT_CONFIG_INIT;
  ftsort_config config = fine;
  ftsort *group = NULL;

  EXPECT(ftsort_init(MPI_COMM_NULL, NULL, &group) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(NULL), "MPI_COMM_NULL") != NULL);
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, NULL) == FTSORT_ERR_ARGUMENT);

  config.algorithm = 99;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.algorithm is 99");
  config = fine;
  config.store = -1;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.store is -1");
  config = fine;
  config.threads = 1025;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.threads is 1025, expected at most 1024");
  config = fine;
  config.pivot = 7;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.pivot is 7");
  config = fine;
  config.checks = 1u << 20;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.checks is 1048576");
  config.algorithm = FTSORT_BITONIC;
  config.checks = FTSORT_CHECK_PROGRESS | FTSORT_CHECK_CONSISTENCY;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.checks is 10");
  config.algorithm = FTSORT_AUTO;
  config.checks |= FTSORT_CHECK_FEASIBILITY | FTSORT_CHECK_DIGEST;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.checks is 15");
  config = fine;
  config.repair = 7;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.repair is 7");
  config = fine;
  config.store = FTSORT_STORE_RELOAD;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.reload is NULL");
  config = fine;
  config.repair = FTSORT_REPAIR_SHRINK;
  config.timeout_ms = 5;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.timeout_ms is 5");
  config = fine;
  config.min_survivors = 1000;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.min_survivors is 1000");
  config = fine;
  config.struct_size = 4096;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "struct_size is 4096");
  config = fine;
  config.store_directory = dir;
  config.struct_size = offsetof(ftsort_config, store_directory) + 4; /* half a pointer */
  init_expecting(config, FTSORT_ERR_ARGUMENT, "in steps of 8");
  config = fine;
  config.faults = "nonsense";
  init_expecting(config, FTSORT_ERR_ARGUMENT, "nonsense");
  config = fine;
  config.store = FTSORT_STORE_DIRECTORY;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "store_directory is NULL");
  config.store_directory = "/nowhere/at/all";
  init_expecting(config, FTSORT_ERR_STORE, "/nowhere/at/all");
  config.store_directory = "/dev/null";
  init_expecting(config, FTSORT_ERR_STORE, "/dev/null");
  config.store_directory = "/proc/self";
  init_expecting(config, FTSORT_ERR_STORE, "/proc/self");

  config = fine;
  config.trace = "/nowhere/at/all";
  init_expecting(config, FTSORT_ERR_ARGUMENT, "config.trace (or FTSORT_TRACE) is \"/nowhere/at/all\"");

  /* Invalid on one rank only. */
  config = fine;
  if (rank == 1) config.trace = "/nowhere/at/all";
  init_expecting(config, rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT, NULL);
  config = fine;
  if (rank == 1) config.algorithm = 99;
  init_expecting(config, rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT, NULL);
  config = fine;
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = rank == 1 ? "/nowhere/at/all" : dir;
  init_expecting(config, FTSORT_ERR_STORE, rank == 1 ? "/nowhere/at/all" : "another rank");

  /* Valid on each rank, but not the same. */
  config = fine;
  config.replicas = (uint32_t)rank + 1;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "not the same");

  /* No rank waits in a barrier that other ranks do not reach. */
  config = fine;
  if (rank == 1) config.repair = FTSORT_REPAIR_SHRINK;
  init_expecting(config, FTSORT_ERR_ARGUMENT, "not the same");
  config.repair = FTSORT_REPAIR_SHRINK;
  if (rank == 1) config.algorithm = 99;
  init_expecting(config, rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT, NULL);

  /* Invalid in the environment of one rank. Without the program's permission it has no effect but a warning. */
  config = fine;
  config.faults = NULL;
  config.on_log = on_log_of_faults;
  if (rank == 1) setenv("FTSORT_FAULTS", "nonsense", 1);
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  EXPECT(fault_warnings == (rank == 1));
  ftsort_free(group);
  ftsort_allow_faults();
  init_expecting(config, rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT, NULL);
  setenv("FTSORT_FAULTS", "", 1);
}

static void bad_runs(ftsort *group)
{
  int32_t data[3] = {3, 1, 2};
  ftsort_record record = i32;
  ftsort_result *result = (ftsort_result *)&failures;

  EXPECT(ftsort_run(NULL, &i32, data, 3, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_run(group, NULL, data, 3, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(result == NULL);
  EXPECT(strstr(ftsort_last_error(group), "record is NULL") != NULL);
  EXPECT(ftsort_run(group, &i32, NULL, 3, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "count is 3") != NULL);
  EXPECT(ftsort_run(group, &i32, data, 3, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_run(group, &i32, data, SIZE_MAX / 2, &result) == FTSORT_ERR_ARGUMENT);
  record.key = 77;
  EXPECT(ftsort_run(group, &record, data, 3, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "record.key is 77") != NULL);
  record = i32;
  record.record_bytes = 3;
  EXPECT(ftsort_run(group, &record, data, 3, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "record_bytes is 3") != NULL);

  /* Without any record. */
  record.record_bytes = SIZE_MAX;
  record.key_bytes = 4;
  EXPECT(ftsort_run(group, &record, NULL, 0, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "record_bytes is 1844") != NULL);

  /* Invalid on one rank only, then different on different ranks. */
  EXPECT(ftsort_run(group, rank == 1 ? NULL : &i32, data, 3, &result) ==
         (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  record = i32;
  record.key = rank == 1 ? FTSORT_KEY_U32 : FTSORT_KEY_I32;
  EXPECT(ftsort_run(group, &record, data, 3, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "not the same") != NULL);
}

static void bad_inputs(ftsort *group)
{
  int32_t data[3] = {3, 1, 2};
  ftsort_record wide = FTSORT_RECORD_PLAIN(uint64_t, FTSORT_KEY_U64);
  ftsort_input *input = (ftsort_input *)&failures;
  ftsort_result *result = (ftsort_result *)&failures;

  EXPECT(ftsort_protect(NULL, &i32, data, 3, &input) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_protect(group, NULL, data, 3, &input) == FTSORT_ERR_ARGUMENT && input == NULL);
  EXPECT(ftsort_protect(group, &i32, data, 3, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_run_protected(group, NULL, NULL, &result) == FTSORT_ERR_ARGUMENT && result == NULL);
  EXPECT(strstr(ftsort_last_error(group), "input is NULL") != NULL);
  EXPECT(ftsort_result_recover(group, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_protect(group, &i32, data, 3, &input) == FTSORT_OK);
  EXPECT(ftsort_run_protected(group, input, &wide, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "record.record_bytes is 8") != NULL);
  EXPECT(ftsort_run_protected(group, rank == 1 ? NULL : input, NULL, &result) ==
         (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(ftsort_run_protected(group, input, NULL, &result) == FTSORT_OK);
  EXPECT(ftsort_result_recover(group, result) == FTSORT_OK);
  EXPECT(ftsort_result_total(result) == 3 * (uint64_t)ranks);
  ftsort_result_free(result);
  ftsort_input_free(input);
  ftsort_input_free(NULL);
}

/* Sorts `count` numbers of this rank, and checks the blocks, their offsets and the total. */
static void sort_and_check(ftsort *group, MPI_Comm comm, size_t count)
{
  int32_t *data = (int32_t *)malloc(count * sizeof *data + 1), last = INT32_MIN;
  unsigned long long mine = count, all = 0, held = 0, sum = 0, sums[2], expected = 0;
  ftsort_result *result = NULL;
  ftsort_block block;
  size_t i, k;
  for (i = 0; i < count; i++) {
    data[i] = (int32_t)((i * 2654435761u) ^ (unsigned)rank) % 1000;
    expected += (unsigned)data[i];
  }
  EXPECT(ftsort_run(group, &i32, data, count, &result) == FTSORT_OK);
  MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, comm);
  EXPECT(ftsort_result_total(result) == all);
  for (i = 0; i < ftsort_result_count(result); i++) {
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    EXPECT(block.data != NULL);
    for (k = 0; k < block.count; k++) {
      int32_t value = ((const int32_t *)block.data)[k];
      EXPECT(value >= last);
      last = value;
      sum += (unsigned)value;
    }
    held += block.count;
  }
  EXPECT(ftsort_result_block(result, i, &block) == FTSORT_ERR_ARGUMENT);
  mine = held;
  MPI_Allreduce(&mine, &held, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, comm);
  EXPECT(held == all);
  sums[0] = sum;
  sums[1] = expected;
  MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, comm);
  EXPECT(sums[0] == sums[1]);
  ftsort_result_free(result);
  free(data);
}

static void null_handles(void)
{
  ftsort_block block;
  ftsort_stats stats = FTSORT_STATS_INIT;
  MPI_Comm comm;
  size_t faults;
  uint32_t flags = 0;
  int major = -1;
  EXPECT(ftsort_rank(NULL) == -1 && ftsort_ranks(NULL) == 0 && ftsort_dimension(NULL) == 0);
  EXPECT(ftsort_is_failed(NULL, 0) == 1 && ftsort_executor(NULL, 0) == -1 && ftsort_partner(NULL, 0, 0) == -1);
  EXPECT(ftsort_comm_rank(NULL, 0) == MPI_PROC_NULL);
  EXPECT(ftsort_comm(NULL, &comm) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_fault_check(NULL, &faults) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_agree(NULL, &flags, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_inject(NULL, 0) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_leave(NULL, 0) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_get_stats(NULL, &stats) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_result_count(NULL) == 0 && ftsort_result_total(NULL) == 0);
  EXPECT(ftsort_result_block(NULL, 0, &block) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_buffer_resize(NULL, 1) == NULL);
  ftsort_result_free(NULL);
  ftsort_free(NULL);
  ftsort_version(&major, NULL, NULL);
  EXPECT(major == FTSORT_VERSION_MAJOR);
  EXPECT(strlen(ftsort_status_text(FTSORT_ERR_DATA_LOST)) > 0 && strlen(ftsort_status_text(12345)) > 0);
  EXPECT(strstr(ftsort_build_info(), "ftsort") != NULL);
  EXPECT(ftsort_prepare() == FTSORT_ERR_STATE); /* too late */
}

static void topology(ftsort *group)
{
  int32_t nodes[4] = {-1, -1, -1, -1};
  int node;
  EXPECT(ftsort_rank(group) == rank && ftsort_ranks(group) == ranks);
  EXPECT(ftsort_cluster(0, 2, nodes, 4) == 4);
  EXPECT(nodes[0] == 4 && nodes[1] == 5 && nodes[2] == 6 && nodes[3] == 7); /* 2024 paper, Table 1 */
  EXPECT(ftsort_cluster(5, 1, nodes, 1) == 2 && nodes[0] == 7 && nodes[1] == 5);
  EXPECT(ftsort_cluster(0, 31, nodes, 4) == 0 && ftsort_cluster(-1, 0, nodes, 4) == 0);
  for (node = 0; node < ranks; node++) {
    EXPECT(!ftsort_is_failed(group, node) && ftsort_executor(group, node) == node);
    if (node < ranks - 1 || node % 2) EXPECT(ftsort_partner(group, node, 0) == (node ^ 1));
  }
  EXPECT(ftsort_is_failed(group, 1 << ftsort_dimension(group)) && ftsort_is_failed(group, -1));
  EXPECT(ftsort_executor(group, 1 << ftsort_dimension(group)) == -1);
  EXPECT(ftsort_partner(group, 0, ftsort_dimension(group)) == -1 && ftsort_partner(group, -1, 0) == -1);
}

static int events_seen, warnings_seen;

static void on_event(void *user, const ftsort_event *event)
{
  EXPECT(user == &events_seen && event->struct_size >= 32);
  if (event->kind != FTSORT_EVENT_ROUND) return;
  if (event->round == 0) events_seen = 0;
  EXPECT((int)event->round == events_seen++);
}

static void on_log(void *user, int level, const char *line)
{
  EXPECT(user == &events_seen && level >= 0 && line[0] != '\0');
  if (level == 1 && strstr(line, "OMPI_MCA_btl_tcp_flags")) warnings_seen++;
}

static void reuse_and_several_groups(void)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *world = NULL, *half = NULL;
  ftsort_stats stats = FTSORT_STATS_INIT;
  MPI_Comm halves, shrunk, again;
  MPI_Errhandler before, after;
  uint32_t flags;
  size_t faults = 9;
  config.on_event = on_event;
  config.on_log = on_log;
  config.user = &events_seen;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  unsetenv("OMPI_MCA_btl_tcp_flags");
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &world) == FTSORT_OK);
  EXPECT(warnings_seen == 1); /* a setting that fault tolerance needs is missing */
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves);
  config.store = FTSORT_STORE_NONE;
  config.on_event = NULL;
  config.struct_size = offsetof(ftsort_config, store_directory); /* as in an older, shorter header */
  EXPECT(ftsort_init(halves, &config, &half) == FTSORT_OK);

  topology(world);
  bad_runs(world);
  bad_inputs(world);
  sort_and_check(world, MPI_COMM_WORLD, 1000);
  EXPECT(events_seen == 3); /* the loading round, one exchange, the merge round */
  sort_and_check(half, halves, 5000);
  sort_and_check(world, MPI_COMM_WORLD, 0);
  sort_and_check(world, MPI_COMM_WORLD, rank == 0 ? 0 : 777);
  sort_and_check(world, MPI_COMM_WORLD, rank == 0 ? 100000 : 0);
  EXPECT(ftsort_get_stats(world, &stats) == FTSORT_OK);
  EXPECT(stats.algorithm == FTSORT_SAMPLESORT);
  EXPECT(stats.rounds == 3 && stats.failures == 0 && stats.total_seconds > 0);
  stats.struct_size = 16;
  EXPECT(ftsort_get_stats(world, &stats) == FTSORT_OK);

  EXPECT(ftsort_fault_check(world, &faults) == FTSORT_OK && faults == 0);
  flags = 0xdead0000u | 1u << rank;
  EXPECT(ftsort_agree(world, &flags, &faults) == FTSORT_OK && flags == 0xdead0000u);
  EXPECT(ftsort_agree(world, rank == 1 ? NULL : &flags, NULL) == (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_OK));
  EXPECT(ftsort_comm_rank(world, 0) == MPI_PROC_NULL);
  EXPECT(ftsort_comm(world, &shrunk) == FTSORT_OK && ftsort_comm(world, &again) == FTSORT_OK);
  EXPECT(shrunk == again && ftsort_comm_rank(world, rank) == rank);
  EXPECT(MPI_Barrier(shrunk) == MPI_SUCCESS);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
  EXPECT(before == after);
  ftsort_free(half);
  ftsort_free(world);
  MPI_Comm_free(&halves);
}

static ftsort *traced;
static int asked;

/* Calls functions with the group that ends. */
static void ask(void *user, int level, const char *line)
{
  (void)user, (void)level;
  if (strstr(line, "cannot be merged") == NULL) return;
  asked += ftsort_rank(traced) == rank;
  ftsort_free(traced); /* does nothing */
}

/* The group exists until it has reported that its traces cannot be merged. */
static void log_of_the_end(const char *dir)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  char prefix[400], merged[430];
  snprintf(prefix, sizeof prefix, "%s/trace", dir);
  snprintf(merged, sizeof merged, "%s.json", prefix);
  if (rank == 0) EXPECT(mkdir(merged, 0700) == 0); /* a file cannot take its place */
  MPI_Barrier(MPI_COMM_WORLD);
  config.trace = prefix;
  config.on_log = ask;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &traced) == FTSORT_OK);
  MPI_Barrier(MPI_COMM_WORLD);
  ftsort_free(traced);
  EXPECT(asked == (rank == 0));
  if (rank == 0) EXPECT(rmdir(merged) == 0);
  snprintf(merged, sizeof merged, "%s.%d.json", prefix, rank);
  EXPECT(unlink(merged) == 0);
}

/* A store without space: the files of one process may not grow beyond a limit. */
static void full_store(const char *dir)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  struct rlimit old, limit;
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  int32_t *data = (int32_t *)calloc(100000, sizeof *data);
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = dir;
  config.store_sync = rank != 0; /* may differ between ranks, as the modes of files */
  config.group_access = rank == 0;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  limit = old;
  limit.rlim_cur = 10000;
  if (rank == 1) setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT(ftsort_run(group, &i32, data, 100000, &result) == FTSORT_ERR_STORE);
  EXPECT(strstr(ftsort_last_error(group), rank == 1 ? dir : "another rank") != NULL);
  setrlimit(RLIMIT_FSIZE, &old);
  sort_and_check(group, MPI_COMM_WORLD, 100000); /* the group can still be used */
  ftsort_free(group);
  free(data);
}

/* A memory limit applies to records, and not to the control messages about large records. */
static void large_records(void)
{
  static const int32_t algorithms[] = {FTSORT_HYPERQUICKSORT, FTSORT_SAMPLESORT};
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_record record = i32;
  size_t i;
  record.record_bytes = (size_t)4 << 20;
  config.memory_limit = 1;
  for (i = 0; i < 2; i++) {
    ftsort *group = NULL;
    ftsort_result *result = NULL;
    void *data = calloc(1, record.record_bytes);
    config.algorithm = algorithms[i];
    EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
    EXPECT(ftsort_run(group, &record, NULL, 0, &result) == FTSORT_OK && ftsort_result_total(result) == 0);
    ftsort_result_free(result);
    EXPECT(ftsort_run(group, &record, data, rank == 0, &result) == FTSORT_ERR_MEMORY);
    ftsort_free(group);
    free(data);
  }
}

/* Verifies an array that another program sorted. */
static ftsort_status verify_array(ftsort *group, const void *part, size_t part_count, const void *input, size_t count,
                                  uint64_t *wrong)
{
  ftsort_result *array = NULL;
  ftsort_status status = ftsort_result_of_array(group, &i32, part, part_count, &array);
  if (status != FTSORT_OK) return status;
  EXPECT(ftsort_result_count(array) == 1 && ftsort_result_total(array) == part_count);
  status = ftsort_result_verify(group, array, input, count, wrong);
  ftsort_result_free(array);
  return status;
}

/* Results and arrays that are right, and others that are wrong in one place. */
static void verification(void)
{
  enum { COUNT = 1000 };
  static int32_t data[COUNT], mine[COUNT];
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  ftsort_result *result = NULL, *other = NULL;
  ftsort_block block;
  uint64_t wrong = 99;
  int32_t kept;
  int i;
  config.checks = FTSORT_CHECK_DIGEST;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  for (i = 0; i < COUNT; i++) data[i] = (int32_t)((unsigned)(rank * COUNT + i) * 2654435761u);
  EXPECT(ftsort_run(group, &i32, data, COUNT, &result) == FTSORT_OK);
  EXPECT(ftsort_result_verify(group, result, data, COUNT, &wrong) == FTSORT_OK && wrong == 0);
  EXPECT(ftsort_result_verify(group, result, NULL, 0, &wrong) == FTSORT_OK && wrong == 0);
  /* One rank names other records than it has sorted. */
  data[7] += rank == 1;
  EXPECT(ftsort_result_verify(group, result, data, COUNT, &wrong) == FTSORT_OK && wrong == 1);
  EXPECT(ftsort_result_verify(group, rank == 1 ? NULL : result, NULL, 0, &wrong) ==
         (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(ftsort_result_verify(group, result, NULL, 0, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_run(group, &i32, data, COUNT, &other) == FTSORT_OK);
  EXPECT(ftsort_result_verify(group, rank == 1 ? other : result, NULL, 0, &wrong) == FTSORT_ERR_ARGUMENT);
  ftsort_result_free(other);
  EXPECT(ftsort_argsort(group, &i32, data, COUNT, &other) == FTSORT_OK);
  EXPECT(ftsort_result_verify(group, other, NULL, 0, &wrong) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "positions or groups") != NULL);
  ftsort_result_free(other);

  /* Arrays that another program sorted: in order over all ranks, then with one violation. */
  for (i = 0; i < COUNT; i++) mine[i] = rank * COUNT + i;
  EXPECT(verify_array(group, mine, COUNT, NULL, 0, &wrong) == FTSORT_OK && wrong == 0);
  EXPECT(verify_array(group, mine, COUNT, mine, COUNT, &wrong) == FTSORT_OK && wrong == 0);
  kept = mine[500];
  if (rank == 0) mine[500] = mine[501] + 1;
  EXPECT(verify_array(group, mine, COUNT, NULL, 0, &wrong) == FTSORT_OK && wrong == 1);
  mine[500] = kept;
  if (rank == 1) mine[0] = -1;
  EXPECT(verify_array(group, mine, COUNT, NULL, 0, &wrong) == FTSORT_OK && wrong == 1);
  EXPECT(verify_array(group, (char *)mine + 1, 3, NULL, 0, &wrong) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_result_block(result, 0, &block) == FTSORT_OK);
  ftsort_result_free(result);
  ftsort_free(group);
}

/* The bytes that the process may write and does not share. Blocks of 64 KiB and more are mappings of their own, which
 * the statistics of malloc do not count. */
static size_t data_bytes(void)
{
  char line[256];
  unsigned long kilobytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "VmData: %lu kB", &kilobytes);
  if (file) fclose(file);
  return (size_t)kilobytes << 10;
}

/* Repeats everything: the memory in use must not grow. */
static void leaks(void)
{
  enum { COUNT = 25000, TIMES = 40, MALLOC = 0, DATA = 1 };
  /* A block of 100 KB that leaks each time would add 4 MB of data. MPI itself keeps a little memory for every
   * communicator that was ever created. */
  static const size_t most_added[] = {300000, 2000000};
  static int32_t data[COUNT];
  size_t before[2] = {0, 0}, after[2];
  int i;
  for (i = 0; i < TIMES + 20; i++) {
    ftsort *group = NULL;
    ftsort_result *result = NULL;
    EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
    EXPECT(ftsort_run(group, &i32, data, COUNT, &result) == FTSORT_OK);
    ftsort_result_free(result);
    EXPECT(ftsort_run(group, &i32, NULL, COUNT, &result) == FTSORT_ERR_ARGUMENT);
    ftsort_free(group);
    if (i == 19) {
      before[MALLOC] = mallinfo2().uordblks;
      before[DATA] = data_bytes();
    }
  }
  after[MALLOC] = mallinfo2().uordblks;
  after[DATA] = data_bytes();
#ifdef __SANITIZE_ADDRESS__
  /* The sanitizer keeps freed memory. */
  after[DATA] = before[DATA];
#endif
  EXPECT(before[DATA] > 0);
  for (i = MALLOC; i <= DATA; i++) {
    if (after[i] > before[i] + most_added[i])
      fprintf(stderr, "rank %d: %zu bytes in use have become %zu\n", rank, before[i], after[i]);
    EXPECT(after[i] <= before[i] + most_added[i]);
  }
}

int main(int argc, char **argv)
{
  if (argc != 2) return 2;
  start_mpi(&argc, &argv);
  null_handles();
  open_directory(argv[1]);
  bad_configs(argv[1]);
  reuse_and_several_groups();
  log_of_the_end(argv[1]);
  full_store(argv[1]);
  large_records();
  verification();
  leaks();
  return end_mpi("api");
}
