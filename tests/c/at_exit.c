/* Tests calls at the end of a thread and of the process, when the variables of the thread are gone.
 *
 *   at_exit [leave|outside|reading]      (under mpirun, 2 ranks; "outside": 3)
 *
 * A thread leaves a group to the destructor of a pthread key, and the main thread another one to an atexit handler, which
 * also calls MPI_Finalize. With "leave", the handler finds MPI finalised by ftsort_leave. With "outside", the last rank is
 * killed, which the group by which the others leave does not contain: ftsort_leave must not call MPI_Finalize. With
 * "reading", a thread waits in getchar while ftsort_leave flushes the streams. Prints "at_exit: fine" on rank 0 if all
 * results are right, and "at_exit: skipped" if MPI does not let a thread call it that is not the main thread. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first. Ends the process without the output that is still in its
 * buffer. */
static int end_without_output(MPI_Comm comm, int keyval, void *value, void *state)
{
  (void)comm, (void)keyval, (void)value, (void)state;
  fprintf(stderr, "rank %d: MPI_Finalize was called\n", rank);
  _exit(1);
}

static int leave_by_others(void)
{
  MPI_Comm survivors;
  ftsort *all, *others;
  size_t new_failures = 0;
  int keyval;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &all) == FTSORT_OK);
  if (rank == ranks - 1) kill(getpid(), SIGKILL);
  while (new_failures == 0) EXPECT(ftsort_fault_check(all, &new_failures) == FTSORT_OK);
  EXPECT(ftsort_comm(all, &survivors) == FTSORT_OK);
  EXPECT(ftsort_init(survivors, NULL, &others) == FTSORT_OK);
  EXPECT(ftsort_ranks(others) == ranks - 1);
  ftsort_free(all);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_without_output, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
  setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
  if (rank == 0) printf("at_exit: %s\n", failures == 0 ? "fine" : "NOT as documented");
  return ftsort_leave(others, 0);
}

static void *read_without_end(void *unused)
{
  (void)unused;
  getchar();
  return NULL;
}

enum { READING_STATUS = 10, READING_SECONDS = 60 };

static int leave_while_reading(void)
{
  ftsort *group;
  pthread_t thread;
  int ends[2];
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  EXPECT(pipe(ends) == 0 && dup2(ends[0], 0) == 0);
  EXPECT(pthread_create(&thread, NULL, read_without_end, NULL) == 0);
  while (ftrylockfile(stdin) == 0) funlockfile(stdin);
  /* With this setting ftsort_leave flushes the streams in place of MPI_Finalize. */
  setenv("OMPI_MCA_mpi_ft_detector_thread", "1", 1);
  alarm(READING_SECONDS);
  return ftsort_leave(group, failures == 0 ? READING_STATUS + rank : 1);
}

/* Runs the rank in a second process, which cannot report anything itself after ftsort_leave. Returns whether this is
 * the second one. */
static int is_observed(void)
{
  pid_t child = fork();
  int status = 0;
  if (child == 0) return 1;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == READING_STATUS) puts("at_exit: fine");
  return 0;
}

int main(int argc, char **argv)
{
  const int reads = argc > 1 && strcmp(argv[1], "reading") == 0;
  pthread_t thread;
  if (reads && !is_observed()) return 0;
  const int provided = start_mpi_with(&argc, &argv, MPI_THREAD_SERIALIZED);
  if (reads) return leave_while_reading();
  if (provided < MPI_THREAD_SERIALIZED) {
    if (rank == 0) printf("at_exit: skipped, MPI grants only thread level %d\n", provided);
    MPI_Finalize();
    return 77;
  }
  if (argc > 1 && strcmp(argv[1], "outside") == 0) return leave_by_others();
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
