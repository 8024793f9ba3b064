/* Shows ranks as top(1) shows processes: sorts repeatedly with a monitor, and prints which ranks are recommended.
 *
 *   mpirun --with-ft ulfm -np 4 top [SECONDS [RECORDS]]
 *
 * Rank 0 prints a table each second: whether each rank is in the Dynamic Group of Recommended Processes (Camargo and
 * Duarte, 2018), its events so far, its last reply time, and its threshold. If you stop a rank for a while (kill -STOP
 * and -CONT, or a busy loop beside it), it leaves the group and comes back. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ftsort_monitor.h"
#include "leave.h"

struct screen {
  const ftsort_monitor *monitor;
  int ranks, rank;
  int in_seconds; /* 0: the monitor has no thread, and its times are multiples of the median */
  volatile int over;
  volatile unsigned long sorts;
};

static void show(const struct screen *screen, int second)
{
  const double factor = screen->in_seconds ? 1e3 : 1;
  int rank;
  printf("\n%4d s, %lu sorts\n rank  group   events  last reply   mean   late after (%s)\n", second,
         screen->sorts, screen->in_seconds ? "ms" : "medians");
  for (rank = 0; rank < screen->ranks; rank++) {
    ftsort_monitor_view view = FTSORT_MONITOR_VIEW_INIT;
    ftsort_monitor_get_view(screen->monitor, rank, &view);
    if (rank == screen->rank) {
      printf("%5d  %-6s %7u  (this one)\n", rank, view.recommended ? "in" : "OUT", view.counter);
    } else {
      printf("%5d  %-6s %7u %11.2f %7.2f %11.2f\n", rank, view.recommended ? "in" : "OUT", view.counter,
             factor * view.last_reply, factor * view.mean, factor * view.threshold);
    }
  }
  fflush(stdout);
}

static void *watch(void *argument)
{
  const struct screen *screen = (const struct screen *)argument;
  const struct timespec tenth = {0, 100000000};
  int tenths;
  for (tenths = 1; !screen->over; tenths++) {
    nanosleep(&tenth, NULL);
    if (tenths % 10 == 0) show(screen, tenths / 10);
  }
  return NULL;
}

int main(int argc, char **argv)
{
  const double seconds = argc > 1 ? atof(argv[1]) : 20;
  const size_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
  ftsort_monitor_options config = FTSORT_MONITOR_OPTIONS_INIT;
  struct screen screen = {NULL, 0, 0, 0, 0, 0};
  pthread_t thread;
  uint32_t *input, x = 1, goes_on = 1;
  size_t i;
  ftsort *group;
  ftsort_status status;
  int granted, watches = 0;
  double start;

  ftsort_prepare();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &screen.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &screen.ranks);
  input = (uint32_t *)malloc(count * sizeof *input + 1);
  if (!input || ftsort_init(MPI_COMM_WORLD, NULL, &group) != FTSORT_OK) {
    fprintf(stderr, "top: %s\n", input ? ftsort_last_error(NULL) : "no memory for the records");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (i = 0; i < count; i++) input[i] = x = x * 1664525u + 1013904223u + (uint32_t)screen.rank;

  config.interval_ms = 200;
  config.self_doubt = 1;
  config.plus_ms = 20;
  if (ftsort_monitor_start(group, &config, &screen.monitor) != FTSORT_OK) {
    fprintf(stderr, "top: %s\n", ftsort_last_error(group));
    leave_with(group, 1);
  }
  screen.in_seconds = ftsort_monitor_cost(screen.monitor, NULL, NULL) != 0;
  if (screen.rank == 0 && !screen.in_seconds) {
    puts("top: MPI grants no MPI_THREAD_MULTIPLE, so the monitor tests only at commits");
    puts("top: times are multiples of the median");
  }
  if (screen.rank == 0) {
    watches = pthread_create(&thread, NULL, watch, &screen) == 0;
    if (!watches) fputs("top: cannot start the thread that prints the table\n", stderr);
  }
  start = MPI_Wtime();
  do {
    ftsort_result *result;
    status = ftsort_run(group, &plain, input, count, &result);
    if (status != FTSORT_OK) break;
    ftsort_result_free(result);
    screen.sorts++;
    /* All ranks continue, or none. */
    goes_on = MPI_Wtime() - start < seconds && (watches || screen.rank != 0);
    status = ftsort_agree(group, &goes_on, NULL);
  } while (status == FTSORT_OK && goes_on);
  if (status != FTSORT_OK) fprintf(stderr, "rank %d: %s\n", screen.rank, ftsort_last_error(group));
  screen.over = 1;
  if (watches) pthread_join(thread, NULL); /* ftsort_leave frees the monitor that the thread reads */
  leave_with(group, status != FTSORT_OK || (screen.rank == 0 && !watches));
  return 1;
}
