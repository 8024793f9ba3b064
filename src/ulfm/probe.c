/* Uses every ULFM function that the library calls: an MPI with which this program does not compile and link
 * counts as an MPI without ULFM. build.rs and scripts/setup.py compile it.
 *
 * With -DREQUIRE_OPEN_MPI it compiles with Open MPI only. MPICH has the functions too, but it ends the whole job
 * when a process fails. */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#elif defined REQUIRE_OPEN_MPI
#error This MPI library is not known to survive failures
#endif

int main(int argc, char **argv)
{
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Group group;
  MPI_Request request;
  int flag = MPIX_ERR_PROC_FAILED + MPIX_ERR_REVOKED;
  MPI_Init(&argc, &argv);
  return MPIX_Comm_agree(comm, &flag) + MPIX_Comm_iagree(comm, &flag, &request) + MPIX_Comm_revoke(comm)
    + MPIX_Comm_shrink(comm, &comm) + MPIX_Comm_get_failed(comm, &group) + MPIX_Comm_failure_ack(comm)
    + MPIX_Comm_failure_get_acked(comm, &group) + MPIX_Comm_is_revoked(comm, &flag);
}
