/* The end of an example after an error. */
#ifndef LEAVE_H
#define LEAVE_H
#include <signal.h>
#include <stdio.h>

#include "ftsort.h"

/* Leaves after an error that all survivors know, for example a status of a collective call. Only the lowest survivor,
 * which executes node 0, returns `code`: mpirun sometimes does not end if several ranks return another status than 0
 * (docs/open-mpi.md, section 12). All survivors call this function, as they call ftsort_leave. */
static inline void leave_with(ftsort *group, int code)
{
  ftsort_leave(group, ftsort_executor(group, 0) == ftsort_rank(group) ? code : 0);
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
