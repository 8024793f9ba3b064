/* Tests calls at the end of a thread and of the process, when the variables of the thread are gone.
 *
 *   at_exit [leave]      (under mpirun, 2 ranks)
 *
 * A thread leaves a group to the destructor of a pthread key, and the main thread another one to an atexit handler, which
 * also calls MPI_Finalize. With "leave", the handler finds MPI finalised by ftsort_leave. Prints "at_exit: fine" on rank 0 if all results are right, and "at_exit: skipped" if MPI does not
 * let a thread call it that is not the main thread. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>

#include "expect.h"
#include "ftsort.h"

static const ftsort_record u32 = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
static ftsort *last;
static pthread_key_t key;

static void use_and_free(void *group)
{
  uint32_t data[1000], refused = 0;
  ftsort_result *result;
  size_t new_failures, i;
  for (i = 0; i < 1000; i++) data[i] = (uint32_t)(i * 2654435761u) ^ (uint32_t)rank;
  EXPECT(ftsort_fault_check((ftsort *)group, &new_failures) == FTSORT_OK);
  EXPECT(ftsort_run((ftsort *)group, &u32, data, 1000, &result) == FTSORT_OK);
  EXPECT(ftsort_result_total(result) == 1000u * (size_t)ranks);
  ftsort_result_free(result);
  EXPECT(ftsort_run((ftsort *)group, &u32, NULL, 1000, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_last_error((ftsort *)group)[0] != 0);
  EXPECT(ftsort_agree(NULL, &refused, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_last_error(NULL) != NULL);
  ftsort_free((ftsort *)group);
}

/* After ftsort_leave. */
static void free_the_last(void)
{
  size_t new_failures;
  EXPECT(ftsort_fault_check(last, &new_failures) == FTSORT_ERR_STATE);
  ftsort_free(last);
  if (rank == 0) printf("at_exit: %s\n", failures == 0 ? "fine" : "NOT as documented");
}

static void end(void)
{
  int all = 0;
  use_and_free(last);
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) printf("at_exit: %s\n", all == 0 ? "fine" : "NOT as documented");
}

static void *leave_to_the_key(void *unused)
{
  ftsort *group;
  (void)unused;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  pthread_setspecific(key, group);
  return NULL;
}

int main(int argc, char **argv)
{
  pthread_t thread;
  int provided;
  ftsort_prepare();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (provided < MPI_THREAD_SERIALIZED) {
    if (rank == 0) printf("at_exit: skipped, MPI grants only thread level %d\n", provided);
    MPI_Finalize();
    return 77;
  }
  if (argc > 1) {
    ftsort *first;
    EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &first) == FTSORT_OK);
    EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &last) == FTSORT_OK);
    EXPECT(atexit(free_the_last) == 0);
    return ftsort_leave(first, 0);
  }
  EXPECT(atexit(end) == 0);
  EXPECT(pthread_key_create(&key, use_and_free) == 0);
  EXPECT(pthread_create(&thread, NULL, leave_to_the_key, NULL) == 0);
  pthread_join(thread, NULL);
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &last) == FTSORT_OK);
  return 0;
}
