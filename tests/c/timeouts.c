/* Tests that a timeout gives no healthy rank up, and the thread that shows signs of life.
 *
 *   timeouts slow|late|thread|apart|kill      (under mpirun, 2 to 4 ranks)
 *
 * slow    one rank computes for 6 seconds in a sort with a timeout of 1.5 seconds
 * late    one rank calls ftsort_run 6 seconds after the others, with a timeout of 1.5 seconds
 * thread  the thread exists while a group with a timeout does, does not run in short sorts, and outlives neither a
 *         group nor a forked process
 * apart   a group is refused on all ranks if some of them have no timeout, also without ULFM
 * kill    the thread that kills a rank after a time runs no signal handlers
 *
 * Prints "timeouts: fine" on rank 0 if all expectations hold on all ranks. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort.h"
#include "signal_masks.h"

#define SLOW_SECONDS 6
#define RECORDS 3000

static double seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void sleep_for(double time)
{
  double end = seconds() + time;
  while (seconds() < end) usleep(1000);
}

/* Compares numbers, and takes its time once on rank 1. */
static int slowly(void *user, const void *a, const void *b)
{
  static int has_slept;
  int32_t one, other;
  (void)user;
  if (rank == 1 && !has_slept) {
    has_slept = 1;
    sleep_for(SLOW_SECONDS);
  }
  memcpy(&one, a, sizeof one);
  memcpy(&other, b, sizeof other);
  return one < other ? -1 : one > other;
}

/* Sorts the numbers 0 to ranks * RECORDS - 1, of which every rank has every `ranks`th, and checks the result. */
static void sort(ftsort *group, const ftsort_record *record)
{
  static int32_t input[RECORDS];
  ftsort_result *result = NULL;
  ftsort_status status;
  size_t i, k;
  for (i = 0; i < RECORDS; i++) input[i] = (int32_t)((RECORDS - 1 - i) * (size_t)ranks) + rank;
  status = ftsort_run(group, record, input, RECORDS, &result);
  EXPECT(status == FTSORT_OK);
  if (status != FTSORT_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
    return;
  }
  EXPECT(ftsort_result_total(result) == (uint64_t)ranks * RECORDS);
  for (i = 0; i < ftsort_result_count(result); i++) {
    ftsort_block block;
    int wrong = 0;
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    for (k = 0; k < block.count; k++) wrong += ((const int32_t *)block.data)[k] != (int32_t)(block.offset + k);
    EXPECT(wrong == 0);
  }
  ftsort_result_free(result);
}

/* Sorts with a timeout that one rank exceeds. */
static void exceed(int late)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  static const ftsort_record compared = FTSORT_RECORD_COMPARE(int32_t, slowly, NULL);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  double start;
  config.timeout_ms = 1500;
  config.threads = 1;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  start = seconds();
  if (late && rank == 1) sleep_for(SLOW_SECONDS);
  sort(group, late ? &plain : &compared);
  EXPECT(seconds() - start >= SLOW_SECONDS / 2);
  sort(group, &plain);
  ftsort_free(group);
}

/* Whether a thread has begun to end: the flag PF_EXITING of Linux. pthread_join may return while the thread is still
 * listed, but not before the thread has the flag. */
static int is_ending(const char *task)
{
  char path[512], line[512];
  const char *name_end = NULL;
  unsigned flags = 0;
  FILE *file;
  snprintf(path, sizeof path, "/proc/self/task/%s/stat", task);
  file = fopen(path, "r");
  if (!file) return 1;
  if (fgets(line, sizeof line, file)) name_end = strrchr(line, ')');
  fclose(file);
  if (!name_end || sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1) return 1;
  return (flags & 0x4) != 0;
}

/* The number of threads that answer probes; `runs` receives the number of times that they have been woken. */
static int threads(long *runs)
{
  DIR *tasks = opendir("/proc/self/task");
  struct dirent *task;
  int count = 0;
  *runs = 0;
  while (tasks && (task = readdir(tasks))) {
    char path[512], line[256];
    FILE *file;
    int is_one = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
      long switches;
      if (strcmp(line, "Name:\tftsort liveness\n") == 0) is_one = 1;
      if (is_one && sscanf(line, "voluntary_ctxt_switches: %ld", &switches) == 1) *runs += switches;
    }
    if (file) fclose(file);
    count += is_one && !is_ending(task->d_name);
  }
  if (tasks) closedir(tasks);
  return count;
}

static int threads_now(void)
{
  long runs;
  return threads(&runs);
}

/* Waits until a new thread has its name, which it gets when it runs for the first time. */
static void wait_for_thread(void)
{
  double start = seconds();
  while (threads_now() == 0 && seconds() - start < 10) sleep_for(0.001);
}

/* A forked process has no such thread, and need not end before the group does. */
static void fork_and_free(ftsort *group)
{
  pid_t lasting, program;
  int status = 1;
  lasting = fork();
  if (lasting == 0) {
    pause();
    _exit(0);
  }
  program = fork();
  if (program == 0) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(127);
  }
  EXPECT(waitpid(program, &status, 0) == program);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ftsort_free(group);
  EXPECT(threads_now() == 0);
  EXPECT(kill(lasting, SIGKILL) == 0);
  EXPECT(waitpid(lasting, &status, 0) == lasting);
}

static void thread(void)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *one = NULL, *other = NULL;
  long before, after;
  double start;
  config.timeout_ms = FTSORT_NO_TIMEOUT;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &one) == FTSORT_OK);
  sort(one, &plain);
  EXPECT(threads_now() == 0);
  ftsort_free(one);

  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &one) == FTSORT_OK);
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &other) == FTSORT_OK);
  wait_for_thread();
  EXPECT(threads_now() == 1);
  sort(one, &plain);
  sort(other, &plain);
  ftsort_free(one);
  EXPECT(threads_now() == 1);
  /* The probes of ftsort_init have been answered after a moment. */
  sleep_for(0.5);
  sort(other, &plain);
  start = seconds();
  EXPECT(threads(&before) == 1);
  sort(other, &plain);
  sort(other, &plain);
  EXPECT(threads(&after) == 1);
  /* On a busy machine a rank may have waited for longer than a second. */
  EXPECT(after == before || seconds() - start > 0.9);
  sort(other, &plain);
  fork_and_free(other);
}

/* A rank with another wrong member takes part with the default timeout. */
static void apart(void)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  config.accept_no_ulfm = 1;
  config.timeout_ms = rank == 0 ? FTSORT_NO_TIMEOUT : 0;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_ERR_ARGUMENT && group == NULL);
  EXPECT(strstr(ftsort_last_error(NULL), "the presence of a timeout") != NULL);
  config.timeout_ms = FTSORT_NO_TIMEOUT;
  config.threads = rank == 0 ? 5000 : 0;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  config.threads = 0;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  ftsort_free(group);
}

static int kill_threads;

/* Compares numbers, and counts the threads during the first call. */
static int counting(void *user, const void *a, const void *b)
{
  static int has_counted;
  double start = seconds();
  int32_t one, other;
  (void)user;
  /* A new thread gets its name when it runs for the first time. */
  while (!has_counted && (kill_threads = threads_without_signals()) == 0 && rank == 0 && seconds() - start < 10)
    sleep_for(0.001);
  has_counted = 1;
  memcpy(&one, a, sizeof one);
  memcpy(&other, b, sizeof other);
  return one < other ? -1 : one > other;
}

static void kill_thread(void)
{
  static const ftsort_record compared = FTSORT_RECORD_COMPARE(int32_t, counting, NULL);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  config.timeout_ms = FTSORT_NO_TIMEOUT;
  config.threads = 1;
  config.faults = "0@600000ms";
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  sort(group, &compared);
  EXPECT(kill_threads == (rank == 0));
  ftsort_free(group);
}

int main(int argc, char **argv)
{
  if (argc != 2) return 2;
  start_mpi(&argc, &argv);
  if (strcmp(argv[1], "thread") == 0)
    thread();
  else if (strcmp(argv[1], "apart") == 0)
    apart();
  else if (strcmp(argv[1], "kill") == 0)
    kill_thread();
  else
    exceed(strcmp(argv[1], "late") == 0);
  return end_mpi("timeouts");
}
