/* Two threads that call MPI at the same time, of which one agrees. No process fails.
 *
 *   two_threads [turns|probe|shrink]
 *
 * Each thread agrees on its own communicator, with flags of which only one bit is set on all ranks, and looks
 * at the result: both at once, or one after the other ("turns"). Or the second thread looks for messages instead
 * ("probe"), or shrinks its communicator ("shrink"). Prints "WRONG" for each thread that received another value or an
 * error, and "done". */
#include <mpi.h>
#include <mpi-ext.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { AGREEMENTS = 2000, PROBES = 20000, SHRINKS = 300 };

static int rank;

struct work {
  MPI_Comm comm;
  int shift;
  int wrong;
};

static void *agree(void *argument)
{
  struct work *work = argument;
  for (int i = 0; i < AGREEMENTS; i++) {
    const int common = 1 << (work->shift + i % 8);
    int flag = common | (rank % 2 == 0 ? 1 << 24 : 1 << 25);
    const int code = MPIX_Comm_agree(work->comm, &flag);
    work->wrong += code != MPI_SUCCESS || flag != common;
  }
  return NULL;
}

static void *probe(void *argument)
{
  struct work *work = argument;
  for (int i = 0; i < PROBES; i++) {
    int found;
    work->wrong += MPI_Iprobe(MPI_ANY_SOURCE, 0, work->comm, &found, MPI_STATUS_IGNORE) != MPI_SUCCESS || found;
  }
  return NULL;
}

static void *shrink(void *argument)
{
  struct work *work = argument;
  for (int i = 0; i < SHRINKS && work->wrong == 0; i++) {
    MPI_Comm smaller;
    work->wrong += MPIX_Comm_shrink(work->comm, &smaller) != MPI_SUCCESS;
    if (work->wrong == 0)
      MPI_Comm_free(&smaller);
  }
  return NULL;
}

int main(int argc, char **argv)
{
  const char *mode = argc > 1 ? argv[1] : "";
  void *(*second)(void *) = strcmp(mode, "probe") == 0 ? probe : strcmp(mode, "shrink") == 0 ? shrink : agree;
  const int takes_turns = strcmp(mode, "turns") == 0;
  struct work work[2] = {{MPI_COMM_NULL, 0, 0}, {MPI_COMM_NULL, 8, 0}};
  pthread_t thread;
  int provided;

  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE)
    MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 2; i++) {
    MPI_Comm_dup(MPI_COMM_WORLD, &work[i].comm);
    MPI_Comm_set_errhandler(work[i].comm, MPI_ERRORS_RETURN);
  }

  pthread_create(&thread, NULL, second, &work[1]);
  if (takes_turns)
    pthread_join(thread, NULL);
  agree(&work[0]);
  if (!takes_turns)
    pthread_join(thread, NULL);

  for (int i = 0; i < 2; i++)
    if (work[i].wrong)
      printf("WRONG: rank %d, thread %d: %d calls\n", rank, i, work[i].wrong);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  printf("done: rank %d\n", rank);
  return 0;
}
