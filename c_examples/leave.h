/* The start of an example, its end after an error, and the rank that prints. */
#ifndef LEAVE_H
#define LEAVE_H
#include <signal.h>
#include <stdio.h>

#include "ftsort.h"

/* Starts MPI, and returns a group of all ranks. FTSORT_FAULTS may kill ranks, because the program is a demonstration. */
static inline ftsort *make_group(int *argc, char ***argv, const ftsort_config *config)
{
  ftsort *group = NULL;
  ftsort_prepare();
  ftsort_allow_faults();
  MPI_Init(argc, argv);
  if (ftsort_init(MPI_COMM_WORLD, config, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return group;
}

/* The number of ranks that this rank knows to have failed. */
static inline int failed_ranks(ftsort *group)
{
  int rank, failed = 0;
  for (rank = 0; rank < ftsort_ranks(group); rank++) failed += ftsort_is_failed(group, rank);
  return failed;
}

/* Whether this rank is the lowest survivor, which executes node 0. */
static inline int is_lowest(ftsort *group) { return ftsort_executor(group, 0) == ftsort_rank(group); }

/* Leaves after an error that all survivors know, for example a status of a collective call. Only the lowest survivor
 * returns `code`: mpirun sometimes does not end if several ranks return another status than 0
 * (docs/open-mpi.md, section 12). All survivors call this function, as they call ftsort_leave. */
static inline void leave_with(ftsort *group, int code)
{
  ftsort_leave(group, is_lowest(group) ? code : 0);
}

/* Checks a collective call, which returns the same status on all ranks. */
static inline void check(ftsort *group, ftsort_status status)
{
  if (status == FTSORT_OK) return;
  fprintf(stderr, "%s\n", ftsort_last_error(group));
  leave_with(group, 1);
}

/* Ends this process after an error that the other ranks do not know, for example a lack of memory. The other ranks
 * tolerate it as a failure. ftsort_leave would wait for them, and they would wait for this rank in another call. Open MPI
 * does not report a process as failed that exits with another status than 0, but one that a signal ends. */
static inline void fail_alone(const char *reason)
{
  fprintf(stderr, "%s\n", reason);
  fflush(NULL);
  raise(SIGKILL);
}

#endif
