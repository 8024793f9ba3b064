/* Tests groups that communicate on the communicator of the caller (config.keep_comm).
 *
 *   kept_comm 0|CALL      (under mpirun, 2 to 4 ranks)
 *
 * 0:    no communicator is made, the error handler of the caller is restored, and wrong arguments are errors of all ranks
 * CALL: the last rank is killed at its call of MPI with this number within ftsort_init
 *
 * Prints "kept_comm: fine" on rank 0 if all results are right. */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort.h"

enum { COUNT = 2000 };

static const ftsort_record u32 = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);

/* The library's calls of these functions come here. */
static int communicators, calls, killed_at;

static void count_call(void)
{
  if (killed_at > 0 && ++calls == killed_at) kill(getpid(), SIGKILL);
}

int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *survivors);
int PMPIX_Comm_agree(MPI_Comm comm, int *flag);
int PMPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request);

int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *survivors)
{
  communicators++;
  return PMPIX_Comm_shrink(comm, survivors);
}

int MPIX_Comm_agree(MPI_Comm comm, int *flag)
{
  count_call();
  return PMPIX_Comm_agree(comm, flag);
}

int MPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request)
{
  count_call();
  return PMPIX_Comm_iagree(comm, flag, request);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
  count_call();
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
  count_call();
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
  count_call();
  return PMPI_Test(request, done, status);
}

static uint32_t number_of(int owner, size_t place) { return (uint32_t)(place + 1) * 2654435761u ^ (uint32_t)owner << 9; }

static int ascending(const void *a, const void *b)
{
  const uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
  return one < other ? -1 : one > other;
}

/* Sorts the numbers of the ranks of `comm` that the group knows as living, and compares the blocks. */
static void sort(ftsort *group)
{
  uint32_t *all = (uint32_t *)malloc((size_t)ranks * COUNT * sizeof *all), mine[COUNT];
  ftsort_result *result;
  ftsort_block block;
  size_t total = 0, i;
  int owner;
  for (i = 0; i < COUNT; i++) mine[i] = number_of(rank, i);
  for (owner = 0; owner < ranks; owner++)
    for (i = 0; i < COUNT && !ftsort_is_failed(group, owner); i++) all[total++] = number_of(owner, i);
  qsort(all, total, sizeof *all, ascending);
  EXPECT(ftsort_run(group, &u32, mine, COUNT, &result) == FTSORT_OK);
  EXPECT(ftsort_result_total(result) == total);
  EXPECT(ftsort_result_count(result) > 0);
  for (i = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++)
    EXPECT(block.offset + block.count <= total &&
           memcmp(block.data, all + block.offset, block.count * sizeof *all) == 0);
  ftsort_result_free(result);
  free(all);
}

static ftsort *group_on(MPI_Comm comm)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group;
  config.keep_comm = 1;
  EXPECT(ftsort_init(comm, &config, &group) == FTSORT_OK);
  return group;
}

static void expect_refused(MPI_Comm comm, const ftsort_config *config, const char *text)
{
  ftsort *group;
  EXPECT(ftsort_init(comm, config, &group) == FTSORT_ERR_ARGUMENT);
  EXPECT(group == NULL && strstr(ftsort_last_error(NULL), text) != NULL);
}

static void without_failures(void)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  MPI_Errhandler before, after;
  MPI_Comm comm;
  ftsort *group;
  int times;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_get_errhandler(comm, &before);
  EXPECT(before != MPI_ERRORS_RETURN);
  for (times = 0; times < 3; times++) {
    group = group_on(comm);
    MPI_Comm_get_errhandler(comm, &after);
    EXPECT(after == MPI_ERRORS_RETURN);
    sort(group);
    ftsort_free(group);
    MPI_Comm_get_errhandler(comm, &after);
    EXPECT(after == before);
  }
  EXPECT(communicators == 0);
  config.keep_comm = rank == 0;
  expect_refused(comm, &config, "config.keep_comm");
  /* A rank with another wrong member takes part on the same communicator. */
  config.keep_comm = 1;
  config.threads = rank == 0 ? 5000 : 0;
  group = NULL;
  EXPECT(ftsort_init(comm, &config, &group) == (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(group == NULL);
  config.threads = 0;
  config.struct_size = rank == 0 ? 4 : sizeof config;
  EXPECT(ftsort_init(comm, &config, &group) == (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(rank != 0 || strstr(ftsort_last_error(NULL), "config.struct_size is 4") != NULL);
  config.struct_size = sizeof config;
  /* The repair would revoke the communicator of the caller. */
  config.repair = FTSORT_REPAIR_SHRINK;
  expect_refused(comm, &config, "set config.keep_comm to 0, or config.repair to FTSORT_REPAIR_AGREE");
  config.repair = rank == 0 ? FTSORT_REPAIR_SHRINK : FTSORT_REPAIR_AGREE;
  EXPECT(ftsort_init(comm, &config, &group) == (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  config.repair = FTSORT_REPAIR_AGREE;
  group = group_on(comm);
  sort(group);
  ftsort_free(group);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPIX_Comm_revoke(comm);
  expect_refused(comm, &config, "revoked");
  MPI_Comm_free(&comm);
}

static void with_a_kill(int call)
{
  MPI_Comm comm;
  ftsort *group;
  uint32_t flags;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  killed_at = rank == ranks - 1 ? call : 0;
  group = group_on(comm);
  killed_at = 0;
  if (rank == ranks - 1) fprintf(stderr, "the last rank makes only %d calls in ftsort_init\n", calls);
  /* It can have failed at its last call, which the others need not notice before. */
  EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
  sort(group);
  EXPECT(ftsort_is_failed(group, ranks - 1));
  EXPECT(communicators == 0);
  flags = failures == 0;
  EXPECT(ftsort_agree(group, &flags, NULL) == FTSORT_OK);
  if (rank == 0) printf("kept_comm: %s\n", flags ? "fine" : "NOT as documented");
  fflush(stdout);
  ftsort_leave(group, 0);
}

int main(int argc, char **argv)
{
  if (argc < 2) return 2;
  start_mpi(&argc, &argv);
  if (atoi(argv[1]) > 0) with_a_kill(atoi(argv[1]));
  without_failures();
  return end_mpi("kept_comm");
}
