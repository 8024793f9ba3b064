/* A collective operation that succeeds on some ranks and fails on others.
 *
 * The rank in the middle ends itself with SIGKILL before a broadcast from rank 0. The other ranks then agree whether
 * all of them succeeded. Rank 0 prints "DIFFERENT" if some ranks succeeded and others did not, and "done". */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  int rank;
  int ranks;
  int value = 42;
  int all_succeeded;
  int all_failed;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == ranks / 2)
    raise(SIGKILL);
  const int succeeded = MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD) == MPI_SUCCESS;

  /* The first agreements report the failure; repeat them until it is acknowledged on all ranks. */
  do {
    MPIX_Comm_failure_ack(MPI_COMM_WORLD);
    all_succeeded = succeeded;
  } while (MPIX_Comm_agree(MPI_COMM_WORLD, &all_succeeded) != MPI_SUCCESS);
  do {
    MPIX_Comm_failure_ack(MPI_COMM_WORLD);
    all_failed = !succeeded;
  } while (MPIX_Comm_agree(MPI_COMM_WORLD, &all_failed) != MPI_SUCCESS);

  printf("rank %d: MPI_Bcast %s\n", rank, succeeded ? "succeeded" : "failed");
  if (rank == 0 && !all_succeeded && !all_failed)
    printf("DIFFERENT: MPI_Bcast succeeded on some ranks only\n");
  if (rank == 0)
    printf("done\n");
  fflush(stdout);
  _exit(0);
}
