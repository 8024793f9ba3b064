/* Measures sorts while some ranks are slow from time to time (2018 paper, Figure 14): without a monitor, with one, and
 * with one that never takes a rank back. Beyond the paper, with a monitor that divides work by speed, or excludes a
 * rank only if it is expected to save time.
 *
 *   ftsort-mpirun -np 4 ./slowdown MODE VICTIMS [K [SORTS [PERCENT [ALGORITHM [CGROUP]]]]]
 *
 * MODE: none; threads (no monitor, but MPI_THREAD_MULTIPLE); thread or foreground, each also with -forever, -weights or
 * -gain; thread-doubt, in which a tester takes its own slowness into account. With the constants of the paper: paper,
 * paper-forever, and ulfm, in which victims are killed, each in another sort, and no rank has a monitor. These three sort an
 * input that is protected once, so that the numbers of killed ranks stay.
 *
 * From the second sort on, the last VICTIMS ranks get PERCENT (default 10) of the time of their processor, for two
 * seconds out of four. A child process stops and continues each of them a hundred times a second. If CGROUP is a folder
 * of the cpu controller of cgroup version 1, the child process instead puts each of them into a group below this folder
 * and sets its quota; the caller removes the empty groups afterwards.
 *
 * Sorts 2^K numbers (24) SORTS times (20) with ALGORITHM (a value of ftsort_algorithm; 0, the default, lets the library
 * choose), and prints one line: the seconds from the second sort to the last, and the events. `least` is the smallest
 * share of a result that the last rank had, in percent of an equal share. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "ftsort_monitor.h"
#include "leave.h"

#define PERIOD_US 10000
#define PHASE_US 2000000

static unsigned excluded, rejoined;
static size_t least = (size_t)-1; /* the smallest number of records of this rank in a result */

static void note(void *user, const ftsort_event *event)
{
  (void)user;
  excluded += event->kind == FTSORT_EVENT_EXCLUDED;
  rejoined += event->kind == FTSORT_EVENT_REJOINED;
}

static void rest(long microseconds)
{
  struct timespec time = {0, 0};
  time.tv_nsec = microseconds * 1000;
  nanosleep(&time, NULL);
}

/* Writes a number into a file of a control group. Returns 0 if that is not possible. */
static int set(const char *folder, const char *name, long value)
{
  char path[600];
  FILE *file;
  int done;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "w");
  if (file == NULL) return 0;
  done = fprintf(file, "%ld", value) > 0;
  return fclose(file) == 0 && done;
}

/* Limits the quota of a process in every other phase. */
static void limit(const char *cgroup, pid_t victim, int percent)
{
  char folder[500];
  int limited = 1;
  snprintf(folder, sizeof folder, "%s/rank-%ld", cgroup, (long)victim);
  if ((mkdir(folder, 0755) != 0) | !set(folder, "cpu.cfs_period_us", PERIOD_US) |
      !set(folder, "cgroup.procs", (long)victim)) {
    fprintf(stderr, "slowdown: cannot set up %s\n", folder);
    kill(victim, SIGKILL);
  }
  for (;; limited = !limited) {
    long time;
    if (!set(folder, "cpu.cfs_quota_us", limited ? (long)PERIOD_US / 100 * percent : -1L)) _exit(0);
    for (time = 0; time < PHASE_US; time += PERIOD_US) rest(PERIOD_US);
  }
}

/* Starts a process that lets this one run for a percentage of the time, in every other phase, as soon as it is written
 * to. It ends with this process. */
static int slow_down(int percent, const char *cgroup)
{
  int ends[2];
  pid_t victim = getpid();
  if (pipe(ends) != 0) return -1;
  if (fork() == 0) {
    char word;
    long time = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[1]);
    if (read(ends[0], &word, 1) != 1) _exit(0);
    if (cgroup != NULL) limit(cgroup, victim, percent);
    for (;; time += PERIOD_US) {
      if (time / PHASE_US % 2 == 0) {
        if (kill(victim, SIGSTOP) != 0) _exit(0);
        rest(PERIOD_US / 100 * (100 - percent));
        kill(victim, SIGCONT);
        rest(PERIOD_US / 100 * percent);
      } else {
        rest(PERIOD_US);
      }
    }
  }
  close(ends[0]);
  return ends[1];
}

/* The sort before which a victim is killed: one of the first three quarters. */
static int end_of(int victim, int victims, int sorts)
{
  return 1 + (int)((long)victim * 3 * (sorts - 1) / (4 * victims));
}

static void look(const ftsort_result *result)
{
  ftsort_block block;
  size_t records = 0, i;
  for (i = 0; i < ftsort_result_count(result); i++) {
    if (ftsort_result_block(result, i, &block) == FTSORT_OK) records += block.count;
  }
  if (records < least) least = records;
}

int main(int argc, char **argv)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
  const char *mode = argc > 1 ? argv[1] : "none";
  const int victims = argc > 2 ? atoi(argv[2]) : 0, k = argc > 3 ? atoi(argv[3]) : 24;
  const int sorts = argc > 4 ? atoi(argv[4]) : 20, percent = argc > 5 ? atoi(argv[5]) : 10;
  const int is_killed = strcmp(mode, "ulfm") == 0, is_paper = strncmp(mode, "paper", 5) == 0;
  const int has_thread = is_paper || strncmp(mode, "thread", 6) == 0;
  const int needs_threads = has_thread || is_killed;
  ftsort_monitor_options monitor = FTSORT_MONITOR_OPTIONS_INIT;
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group;
  ftsort_input *protected_input = NULL;
  int rank, ranks, granted, brake, n, victim;
  size_t count, i;
  uint32_t *input, x;
  double start = 0;
  unsigned long share = 0;

  brake = slow_down(percent, argc > 7 ? argv[7] : NULL); /* before MPI_Init, since MPI does not support fork */
  ftsort_prepare();
  MPI_Init_thread(&argc, &argv, needs_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  config.on_event = note;
  if (is_killed) config.repair = FTSORT_REPAIR_SHRINK;
  config.algorithm = argc > 6 ? atoi(argv[6]) : FTSORT_AUTO;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  victim = rank - (ranks - victims);
  count = ((size_t)1 << k) / (size_t)ranks;
  input = (uint32_t *)malloc(count * sizeof *input + 1);
  for (x = (uint32_t)rank + 1, i = 0; input && i < count; i++) input[i] = x = x * 1664525u + 1013904223u;

  if (!is_paper) {
    monitor.interval_ms = 100;
    monitor.unforgiving = 1;
    monitor.plus_ms = has_thread ? 4 : 500;
  }
  monitor.mode = has_thread ? FTSORT_MONITOR_THREAD : FTSORT_MONITOR_FOREGROUND;
  monitor.zeta = strstr(mode, "-forever") ? 1000000000 : 5;
  monitor.sharing = strstr(mode, "-weights") ? FTSORT_SHARING_WEIGHTS : FTSORT_SHARING_EXCLUDE;
  monitor.gain = strstr(mode, "-gain") != NULL;
  monitor.self_doubt = strstr(mode, "-doubt") != NULL;
  if (is_paper || is_killed) check(group, ftsort_protect(group, &plain, input, count, &protected_input));
  if (strcmp(mode, "none") != 0 && strcmp(mode, "threads") != 0 && !is_killed) {
    check(group, ftsort_monitor_start(group, &monitor, NULL));
  }
  for (n = 0; n < sorts; n++) {
    ftsort_result *result;
    if (n == 1) {
      start = MPI_Wtime();
      if (!is_killed && victim >= 0 && write(brake, "x", 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (is_killed && victim >= 0 && n == end_of(victim, victims, sorts)) raise(SIGKILL);
    if (protected_input == NULL) {
      check(group, ftsort_run(group, &plain, input, count, &result));
    } else {
      check(group, ftsort_run_protected(group, protected_input, NULL, &result));
    }
    if (n > 0) look(result);
    ftsort_result_free(result);
  }
  start = MPI_Wtime() - start;
  if (rank == ranks - 1 && sorts > 1 && count > 0) share = (unsigned long)(least * 100 / count);
  if (!is_killed) MPI_Bcast(&share, 1, MPI_UNSIGNED_LONG, ranks - 1, MPI_COMM_WORLD);
  ftsort_input_free(protected_input);
  if (rank == 0) {
    printf("slowdown mode=%s victims=%d ranks=%d log2=%d sorts=%d percent=%d seconds=%.3f excluded=%u rejoined=%u "
           "least=%lu\n",
           mode, victims, ranks, k, sorts - 1, percent, start, excluded, rejoined, share);
    fflush(stdout);
  }
  ftsort_leave(group, 0);
  return 1;
}
