/* Tests errors on one rank alone: all ranks get the same status, and the group can still be used.
 *
 *   refusals memory|comm|monitor|init      (under mpirun, 2 to 4 ranks)
 *
 * memory:  the last rank has a memory limit that sorts and trees exceed
 * comm:    MPI fails on the last rank after it has made the communicator of survivors, or when it attaches a group to a
 *          communicator; invalid arguments
 * monitor: MPI fails on the last rank after it has made the communicator of a monitor
 * init:    MPI fails on the last rank after it has made the communicator of a group, and the rank ends
 *
 * Prints "refusals: fine" on rank 0 if all results are right, and "refusals: skipped" if MPI does not grant threads. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "ftsort.h"
#include "ftsort_monitor.h"
#include "ftsort_tree.h"

static const ftsort_record u32 = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);

/* The library's calls of these functions come here. */
static int calls_to_refuse, fails_to_shrink, attributes_to_refuse;

int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *survivors);
int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *survivors);

int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *survivors)
{
  int code = PMPIX_Comm_shrink(comm, survivors);
  if (!fails_to_shrink) return code;
  MPI_Comm_call_errhandler(comm, MPI_ERR_INTERN);
  return MPI_ERR_INTERN;
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
  if (calls_to_refuse > 0) {
    calls_to_refuse--;
    return MPI_ERR_OTHER;
  }
  return PMPI_Comm_set_errhandler(comm, handler);
}

int MPI_Comm_set_attr(MPI_Comm comm, int key, void *value)
{
  if (attributes_to_refuse > 0) {
    attributes_to_refuse--;
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
  }
  return PMPI_Comm_set_attr(comm, key, value);
}

static ftsort_status sort(ftsort *group, size_t count)
{
  uint32_t *data = (uint32_t *)malloc(count * sizeof *data);
  ftsort_result *result = NULL;
  ftsort_status status;
  size_t i;
  for (i = 0; i < count; i++) data[i] = (uint32_t)(i + 1) * 2654435761u ^ (uint32_t)rank << 7;
  status = ftsort_run(group, &u32, data, count, &result);
  EXPECT((result != NULL) == (status == FTSORT_OK));
  ftsort_result_free(result);
  free(data);
  return status;
}

/* All ranks have the same status, which is one of two, and the group sorts again. */
static void expect_agreed(ftsort *group, ftsort_status status, ftsort_status one, ftsort_status other)
{
  int mine = (int)status, lowest = 0, highest = 0;
  MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&mine, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  EXPECT(lowest == highest);
  EXPECT(status == one || status == other);
  EXPECT(sort(group, 1000) == FTSORT_OK);
}

enum { MIB = 1 << 20 };

static ftsort *limited(size_t limit)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  config.memory_limit = rank == ranks - 1 ? limit : 0;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  return group;
}

/* Asks for more memory than there is, and refuses as the buffer does. */
static int merge_too_much(void *user, const void *low, size_t low_bytes, const void *high, size_t high_bytes,
                          ftsort_buffer *merged)
{
  (void)user;
  (void)low;
  (void)low_bytes;
  (void)high;
  (void)high_bytes;
  return ftsort_buffer_resize(merged, (size_t)1 << 50) == NULL;
}

static void memory_limits(void)
{
  static const size_t limits[] = {7, 9, 18, 22};
  char *bytes = (char *)malloc(8 * MIB);
  size_t i;
  memset(bytes, rank, 8 * MIB);
  ftsort *group = limited(9 * MIB);
  expect_agreed(group, sort(group, 2 * MIB), FTSORT_ERR_MEMORY, FTSORT_ERR_MEMORY);
  expect_agreed(group, sort(group, 2 * MIB), FTSORT_ERR_MEMORY, FTSORT_ERR_MEMORY);
  ftsort_free(group);
  for (i = 0; i < sizeof limits / sizeof *limits; i++) {
    ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
    ftsort_result *result = NULL;
    ftsort_status status;
    group = limited(limits[i] * MIB);
    options.has_sink = 1;
    options.sink = ranks - 1;
    status = ftsort_tree_merge(group, &options, bytes, 8 * MIB, &result);
    /* The sink has its contribution, a copy of another one, and those that it receives. */
    expect_agreed(group, status, FTSORT_ERR_MEMORY, FTSORT_ERR_MEMORY);
    ftsort_result_free(result);
    /* A rank that keeps no copy needs only the bytes. */
    status = ftsort_tree_broadcast(group, NULL, 0, bytes, 8 * MIB);
    expect_agreed(group, status, FTSORT_ERR_MEMORY, limits[i] > 8 ? FTSORT_OK : FTSORT_ERR_MEMORY);
    ftsort_free(group);
  }
  group = limited(0);
  {
    ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
    ftsort_result *result = NULL;
    options.operation = FTSORT_TREE_CALL;
    options.merge = merge_too_much;
    expect_agreed(group, ftsort_tree_merge(group, &options, "a", 1, &result), FTSORT_ERR_MEMORY, FTSORT_ERR_MEMORY);
  }
  ftsort_free(group);
  free(bytes);
}

static void survivors(void)
{
  MPI_Comm comm = MPI_COMM_NULL;
  ftsort *group = NULL;
  int is_last = rank == ranks - 1, size = 0;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, is_last ? NULL : &group) ==
         (is_last ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(ftsort_group_of(MPI_COMM_WORLD, is_last ? NULL : &group) ==
         (is_last ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(group == NULL);
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  calls_to_refuse = is_last;
  expect_agreed(group, ftsort_comm(group, &comm), FTSORT_ERR_STATE, FTSORT_ERR_STATE);
  EXPECT(comm == MPI_COMM_NULL && calls_to_refuse == 0);
  EXPECT(ftsort_comm(group, is_last ? NULL : &comm) == (is_last ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(ftsort_comm(group, &comm) == FTSORT_OK);
  EXPECT(comm != MPI_COMM_NULL && MPI_Comm_size(comm, &size) == MPI_SUCCESS && size == ranks);
  ftsort_free(group);
}

/* If MPI cannot attach a group on one rank, no rank keeps it, and the next call makes another one. */
static void attached(MPI_Comm comm)
{
  ftsort *group = NULL;
  int is_last = rank == ranks - 1;
  attributes_to_refuse = is_last;
  EXPECT(ftsort_group_of(comm, &group) == FTSORT_ERR_STATE && group == NULL && attributes_to_refuse == 0);
  EXPECT(strstr(ftsort_last_error(NULL), is_last ? "MPI_Comm_set_attr" : "another rank") != NULL);
  expect_agreed(group, ftsort_group_of(comm, &group), FTSORT_OK, FTSORT_OK);
}

static void attributes(void)
{
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  attached(comm);
  MPI_Comm_free(&comm);
  attached(MPI_COMM_WORLD);
}

static void monitors(void)
{
  ftsort_monitor_options options = FTSORT_MONITOR_OPTIONS_INIT;
  const ftsort_monitor *monitor = NULL;
  ftsort *group = NULL;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  options.mode = FTSORT_MONITOR_THREAD;
  calls_to_refuse = rank == ranks - 1;
  expect_agreed(group, ftsort_monitor_start(group, &options, &monitor), FTSORT_ERR_STATE, FTSORT_ERR_STATE);
  EXPECT(monitor == NULL && calls_to_refuse == 0);
  EXPECT(ftsort_monitor_start(group, &options, &monitor) == FTSORT_OK && monitor != NULL);
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  ftsort_free(group);
}

static int ends_the_job(void)
{
  MPI_Errhandler handler;
  int is_fatal;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  is_fatal = handler == MPI_ERRORS_ARE_FATAL;
  MPI_Errhandler_free(&handler);
  return is_fatal;
}

/* The other ranks have a group without the last one, and the caller's error handler is neither called nor changed. */
static void groups(void)
{
  ftsort *group = NULL;
  ftsort_status status;
  int is_last = rank == ranks - 1;
  EXPECT(ends_the_job());
  fails_to_shrink = is_last;
  status = ftsort_init(MPI_COMM_WORLD, NULL, &group);
  EXPECT(status == (is_last ? FTSORT_ERR_MPI : FTSORT_OK));
  EXPECT(ends_the_job());
  if (is_last) {
    EXPECT(group == NULL && strstr(ftsort_last_error(NULL), "MPIX_Comm_shrink") != NULL);
    if (failures == 0) raise(SIGKILL);
    exit(1);
  }
  EXPECT(sort(group, 1000) == FTSORT_OK && ftsort_is_failed(group, ranks - 1));
  if (rank == 0) printf("refusals: %s\n", failures == 0 ? "fine" : "NOT as documented");
  ftsort_leave(group, failures);
}

int main(int argc, char **argv)
{
  int wanted = MPI_THREAD_SINGLE, provided;
  if (argc != 2) return 2;
  if (strcmp(argv[1], "monitor") == 0) wanted = MPI_THREAD_MULTIPLE;
  provided = start_mpi_with(&argc, &argv, wanted);
  if (provided < wanted) {
    if (rank == 0) printf("refusals: skipped, MPI grants only thread level %d\n", provided);
    MPI_Finalize();
    return 0;
  }
  if (strcmp(argv[1], "memory") == 0) memory_limits();
  if (strcmp(argv[1], "comm") == 0) {
    survivors();
    attributes();
  }
  if (strcmp(argv[1], "monitor") == 0) monitors();
  if (strcmp(argv[1], "init") == 0) groups();
  return end_mpi("refusals");
}
