/* Two threads that agree on two communicators at the same time. No process fails.
 *
 * Each thread agrees on its own communicator, with flags of which only one bit is set on all ranks, and looks
 * at the result. Prints "WRONG" for each thread that received another value or an error, and "done". */
#include <mpi.h>
#include <mpi-ext.h>
#include <pthread.h>
#include <stdio.h>

enum { AGREEMENTS = 2000 };

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

int main(int argc, char **argv)
{
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

  pthread_create(&thread, NULL, agree, &work[1]);
  if (argc > 1) /* One thread after the other. */
    pthread_join(thread, NULL);
  agree(&work[0]);
  if (argc <= 1)
    pthread_join(thread, NULL);

  for (int i = 0; i < 2; i++)
    if (work[i].wrong)
      printf("WRONG: rank %d, thread %d: %d of %d agreements\n", rank, i, work[i].wrong, AGREEMENTS);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  printf("done: rank %d\n", rank);
  return 0;
}
