/* The start and the end of a test program, the number of its failed expectations, and the macro that counts and prints
 * them. */
#ifndef EXPECT_H
#define EXPECT_H
#include <stdio.h>

#include "ftsort.h"

static int rank, ranks, failures;

#define EXPECT_IN(count, condition)                                                  \
  do {                                                                               \
    if (!(condition)) {                                                              \
      (count)++;                                                                     \
      fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #condition);         \
    }                                                                                \
  } while (0)
#define EXPECT(condition) EXPECT_IN(failures, condition)

/* Starts MPI with a level of threads. Returns the level that MPI grants. */
static inline int start_mpi_with(int *argc, char ***argv, int level)
{
  int granted = level;
  ftsort_prepare();
  MPI_Init_thread(argc, argv, level, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return granted;
}

static inline void start_mpi(int *argc, char ***argv) { start_mpi_with(argc, argv, MPI_THREAD_SINGLE); }

/* Prints on rank 0 whether no rank has failed expectations. Returns the number of them on all ranks. */
static inline int report(const char *name)
{
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%s: %s\n", name, all == 0 ? "fine" : "NOT as documented");
  return all;
}

/* Reports, and ends MPI. Returns the exit status of the program. */
static inline int end_mpi(const char *name)
{
  const int all = report(name);
  MPI_Finalize();
  return all != 0;
}

#endif
