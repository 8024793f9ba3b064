/* Measures sorts in a group with spares, after failures or without any.
 *
 *   ftsort-mpirun -np 3 ./spares [-s SPARES] [-f FAILURES] [-k K] [-n PAIRS]
 *
 * -s  the number of spares, default 1
 * -f  the number of ranks that kill themselves in the first sort, at most as many as there are spares; default 0
 * -k  log2 of the number of records of all ranks that pass an input, default 22
 * -n  the number of measured sorts, default 21
 *
 * After the first sort, the survivors sort PAIRS times in the group, and as many times in a second group without spares
 * that consists only of the ranks that have a node, by turns. Prints one line for scripts: `total` is the median time
 * of the sorts in the group in seconds, `beside` the median ratio of the times of a pair, `imbalance` the largest block of
 * any sort divided by an equal share, and `peak` the largest memory of a rank in a sort, in inputs of a rank. The time of
 * a sort is that of the slowest rank. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ftsort_all.h"
#include "measure.h"

enum { MOST_PAIRS = 1000 };

static int kills_itself;

static void kill_myself(void *user, const ftsort_event *event)
{
  (void)user;
  if (kills_itself && event->kind == FTSORT_EVENT_ROUND && event->round == 1) kill(getpid(), SIGKILL);
}

static void check(ftsort *group, ftsort_status status)
{
  if (status == FTSORT_OK) return;
  fprintf(stderr, "%s\n", ftsort_last_error(group));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Waits for all ranks without using a processor. */
static void wait_for_all(MPI_Comm comm)
{
  const struct timespec pause = {0, 200000};
  MPI_Request request;
  int done = 0;
  MPI_Ibarrier(comm, &request);
  for (;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return;
    nanosleep(&pause, NULL);
  }
}

/* Sorts once; adds the seconds and the records of this rank. */
static void sort_once(ftsort *group, const uint32_t *keys, size_t count, double *seconds, double *records)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
  ftsort_result *result;
  ftsort_block block;
  size_t i;
  double start = MPI_Wtime();
  check(group, ftsort_run(group, &plain, keys, count, &result));
  *seconds = MPI_Wtime() - start;
  for (i = 0, *records = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++) *records += (double)block.count;
  ftsort_result_free(result);
}

int main(int argc, char **argv)
{
  static double totals[MOST_PAIRS], ratios[MOST_PAIRS];
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group, *beside = NULL;
  int spares = 1, kills = 0, k = 22, pairs = 21, option, rank, ranks, n, working, has_node;
  double imbalance = 0, peak = 0, seconds, records, mine[4], most[4];
  ftsort_stats stats = FTSORT_STATS_INIT;
  MPI_Comm survivors, with_node;
  uint32_t *keys, state;
  size_t count, i;

  while ((option = getopt(argc, argv, "s:f:k:n:")) != -1) {
    if (option == 's') spares = atoi(optarg);
    else if (option == 'f') kills = atoi(optarg);
    else if (option == 'k') k = atoi(optarg);
    else if (option == 'n') pairs = atoi(optarg);
    else return 2;
  }
  if (pairs < 1 || pairs > MOST_PAIRS || kills > spares) return 2;
  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  config.spares = (uint32_t)spares;
  config.on_event = kill_myself;
  check(NULL, ftsort_init(MPI_COMM_WORLD, &config, &group));
  working = ranks - spares;
  count = ((size_t)1 << k) / (size_t)working;
  keys = (uint32_t *)malloc(count * sizeof *keys + 1);
  if (keys == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (i = 0, state = (uint32_t)rank + 1; i < count; i++) keys[i] = state = state * 1664525u + 1013904223u;

  kills_itself = rank < kills;
  sort_once(group, keys, ftsort_is_spare(group, rank) ? 0 : count, &seconds, &records);
  check(group, ftsort_comm(group, &survivors));
  has_node = !ftsort_is_spare(group, rank);
  MPI_Comm_split(survivors, has_node ? 1 : MPI_UNDEFINED, rank, &with_node);
  config.spares = 0;
  config.on_event = NULL;
  if (has_node) check(NULL, ftsort_init(with_node, &config, &beside));
  for (n = -1; n < pairs; n++) { /* the first pair warms up */
    int turn;
    for (turn = 0; turn < 2; turn++) {
      wait_for_all(survivors);
      if ((turn + n) % 2) {
        sort_once(group, keys, has_node ? count : 0, &mine[0], &mine[2]);
        ftsort_get_stats(group, &stats);
        mine[3] = (double)stats.peak_bytes / (double)(count * sizeof *keys);
      } else if (has_node) {
        sort_once(beside, keys, count, &mine[1], &records);
      } else {
        mine[1] = 0;
      }
    }
    MPI_Allreduce(mine, most, 4, MPI_DOUBLE, MPI_MAX, survivors);
    most[2] /= (double)count; /* the number of ranks with an input is that of working nodes */
    if (most[2] > imbalance) imbalance = most[2];
    if (most[3] > peak) peak = most[3];
    if (n >= 0) totals[n] = most[0], ratios[n] = most[0] / most[1];
  }
  if (ftsort_executor(group, working - 1) == rank)
    printf("ftsort-bench working=%d spares=%d failures=%d log2=%d total=%.6f beside=%.4f imbalance=%.4f "
           "peak=%.2f\n",
           working, spares, kills, k, median(totals, pairs), median(ratios, pairs), imbalance, peak);
  fflush(stdout);
  ftsort_leave(group, 0);
  return 1;
}
