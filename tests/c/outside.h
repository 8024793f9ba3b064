/* The start of programs that scripts kill, stop and slow down from outside, and the generation of their records. */
#ifndef OUTSIDE_H
#define OUTSIDE_H
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../../c_examples/measure.h"

/* The seconds of a clock; CLOCK_MONOTONIC is that of Python's time.monotonic. */
static double seconds_of(clockid_t clock)
{
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Writes a line at once, so that it survives a kill. */
static inline void say(int fd, const char *format, ...)
{
  char line[512];
  va_list arguments;
  int length;
  va_start(arguments, format);
  length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length < 0 || length >= (int)sizeof line || write(fd, line, (size_t)length) != length) abort();
}

/* Lets all ranks continue at the same instant. Rank 0 announces the instant before, with the pids of all ranks, so
 * that the script can plan its signals: "start SECONDS PID PID ...". */
static void start_together(int rank, int ranks)
{
  const double notice = 0.3;
  long pid = (long)getpid(), *pids = (long *)malloc((size_t)ranks * sizeof *pids);
  double instant = 0;
  struct timespec until;
  int i;
  if (pids == NULL) abort();
  MPI_Gather(&pid, 1, MPI_LONG, pids, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    instant = seconds_of(CLOCK_MONOTONIC) + notice;
    printf("start %.6f", instant);
    for (i = 0; i < ranks; i++) printf(" %ld", pids[i]);
    printf("\n");
    fflush(stdout);
  }
  MPI_Bcast(&instant, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  free(pids);
  until.tv_sec = (time_t)instant;
  until.tv_nsec = (long)((instant - (double)until.tv_sec) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) continue;
}

#endif
