/* The start of the programs that test monitors, and a test function that can be made slow. */
#ifndef MONITORED_H
#define MONITORED_H
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort_monitor.h"

/* Microseconds of a test: long in comparison with the noise of other work on the machine. */
static volatile int is_slow;
static volatile useconds_t takes = 3000, takes_slow = 200000;

static uint64_t test(void *user)
{
  (void)user;
  usleep(is_slow ? takes_slow : takes);
  return 42;
}

/* Options with which a rank is slow if its test takes about 50 ms longer than those of the other ranks, or about
 * ten times as long in the foreground. */
static ftsort_monitor_options options_for(int mode)
{
  ftsort_monitor_options config = FTSORT_MONITOR_OPTIONS_INIT;
  config.mode = mode;
  config.interval_ms = 20;
  config.first_ms = mode == FTSORT_MONITOR_THREAD ? 50 : 8000;
  config.plus_ms = mode == FTSORT_MONITOR_THREAD ? 15 : 4000;
  config.unforgiving = 1;
  config.test = test;
  return config;
}

/* Initializes MPI for the monitor's mode in the first argument, thread or foreground. Returns the mode. If MPI
 * does not grant threads, it prints that NAME is skipped, finalizes MPI and returns -1. */
static inline int start(const char *name, int *argc, char ***argv)
{
  int thread = *argc > 1 && strcmp((*argv)[1], "thread") == 0;
  int granted = start_mpi_with(argc, argv, thread ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  if (thread && granted != MPI_THREAD_MULTIPLE) {
    if (rank == 0) printf("%s: skipped\n", name);
    MPI_Finalize();
    return -1;
  }
  return thread ? FTSORT_MONITOR_THREAD : FTSORT_MONITOR_FOREGROUND;
}

#endif
