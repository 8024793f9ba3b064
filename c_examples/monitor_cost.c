/* Measures the cost of a monitor without slow ranks, while the program is idle and during sorts.
 *
 *   ftsort-mpirun -np 4 ./monitor_cost MODE [SECONDS [INTERVAL [K [PAIRS]]]]
 *
 * MODE: none (MPI_THREAD_SINGLE), threads (no monitor, but MPI_THREAD_MULTIPLE), thread, vcube (thread, with VCube's
 * test assignment) or foreground.
 *
 * First all ranks sleep for SECONDS (default 60) with a monitor that tests every INTERVAL milliseconds (1000). The
 * program measures the processor time, messages sent and tests answered, each per rank and second. Then 2^K numbers
 * (22) are sorted PAIRS times (20), alternately without and with a monitor; it prints the medians in milliseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "ftsort_monitor.h"
#include "leave.h"
#include "measure.h"

static double processor_seconds(void)
{
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
  const char *mode = argc > 1 ? argv[1] : "thread";
  const int seconds = argc > 2 ? atoi(argv[2]) : 60, interval = argc > 3 ? atoi(argv[3]) : 1000;
  const int k = argc > 4 ? atoi(argv[4]) : 22, pairs = argc > 5 ? atoi(argv[5]) : 20;
  const int in_thread = strcmp(mode, "thread") == 0 || strcmp(mode, "vcube") == 0;
  const int watches = in_thread || strcmp(mode, "foreground") == 0;
  ftsort_monitor_options config = FTSORT_MONITOR_OPTIONS_INIT;
  const ftsort_monitor *monitor = NULL;
  double *times[2], idle[3] = {0, 0, 0}, all[3] = {0, 0, 0};
  uint64_t sent[2] = {0, 0}, answered[2] = {0, 0};
  ftsort *group;
  int rank, ranks, granted, n, with;
  size_t count, i;
  uint32_t *input, x;

  ftsort_prepare();
  MPI_Init_thread(&argc, &argv,
                  in_thread || strcmp(mode, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ftsort_init(MPI_COMM_WORLD, NULL, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  config.mode = in_thread ? FTSORT_MONITOR_THREAD : FTSORT_MONITOR_FOREGROUND;
  config.assignment = strcmp(mode, "vcube") == 0 ? FTSORT_TEST_VCUBE : FTSORT_TEST_ALL;
  config.interval_ms = (uint32_t)interval;
  if (watches) check(group, ftsort_monitor_start(group, &config, &monitor));
  sleep(2);
  if (watches) ftsort_monitor_cost(monitor, &sent[0], &answered[0]);
  idle[0] = processor_seconds();
  sleep((unsigned)seconds);
  idle[0] = processor_seconds() - idle[0];
  if (watches) ftsort_monitor_cost(monitor, &sent[1], &answered[1]);
  idle[1] = (double)(sent[1] - sent[0]);
  idle[2] = (double)(answered[1] - answered[0]);
  MPI_Reduce(idle, all, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  check(group, ftsort_monitor_stop(group));

  count = ((size_t)1 << k) / (size_t)ranks;
  input = (uint32_t *)malloc(count * sizeof *input + 1);
  for (x = (uint32_t)rank + 1, i = 0; input && i < count; i++) input[i] = x = x * 1664525u + 1013904223u;
  for (with = 0; with < 2; with++) times[with] = (double *)calloc((size_t)pairs + 1, sizeof(double));
  for (n = -1; n < pairs; n++) { /* the first pair warms up */
    for (with = 0; with < 2; with++) {
      ftsort_result *result;
      double start;
      if (with && watches) check(group, ftsort_monitor_start(group, &config, NULL));
      MPI_Barrier(MPI_COMM_WORLD);
      start = MPI_Wtime();
      check(group, ftsort_run(group, &plain, input, count, &result));
      MPI_Barrier(MPI_COMM_WORLD);
      if (n >= 0) times[with][n] = MPI_Wtime() - start;
      ftsort_result_free(result);
      if (with && watches) check(group, ftsort_monitor_stop(group));
    }
  }
  if (rank == 0) {
    const double each = (double)ranks * seconds;
    printf("monitor_cost mode=%s ranks=%d seconds=%d interval_ms=%d processor_percent=%.3f sent=%.2f answered=%.2f "
           "log2=%d pairs=%d without_ms=%.2f with_ms=%.2f\n",
           mode, ranks, seconds, interval, 100 * all[0] / each, all[1] / each, all[2] / each, k, pairs,
           1e3 * median(times[0], pairs), 1e3 * median(times[1], pairs));
    fflush(stdout);
  }
  ftsort_leave(group, 0);
  return 1;
}
