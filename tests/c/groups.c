/* Tests several groups at once: on different communicators in turns, on a part of the ranks, and one for each of
 * several threads, while the main thread waits or makes further groups.
 *
 *   groups turns|part|relay|threads|creations|getters|leave [THREADS]      (under mpirun, 2 to 4 ranks)
 *
 * getters: other threads ask a group about its ranks, between calls, during calls and while the process ends
 * leave:   the process ends by ftsort_leave although the monitor of another group has a thread
 *
 * Prints "groups: fine" on rank 0 if all results are right, and "groups: skipped" if MPI does not grant threads. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "ftsort.h"
#include "ftsort_monitor.h"

/* `failures` is counted by the main thread; every other thread has its own counter. */

/* A number with its rank and position. The numbers depend on a seed. */
struct pair {
  int32_t number;
  uint32_t owner, place;
};

static const ftsort_record by_number = FTSORT_RECORD_MEMBER(struct pair, number, FTSORT_KEY_I32);

static size_t count_of(uint32_t seed, int owner)
{
  if (seed % 3 == 2 && owner == 0) return 0;
  return 300 + seed % 7 * 150 + 11 * (size_t)owner;
}

static struct pair pair_of(uint32_t seed, int owner, size_t place)
{
  uint64_t x = (uint64_t)seed << 40 ^ (uint64_t)owner << 32 ^ place;
  struct pair pair;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u + seed;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  pair.number = (int32_t)(x >> 40) % 500 - 250;
  pair.owner = (uint32_t)owner;
  pair.place = (uint32_t)place;
  return pair;
}

static int order(const void *a, const void *b)
{
  const struct pair *one = (const struct pair *)a, *other = (const struct pair *)b;
  if (one->number != other->number) return one->number < other->number ? -1 : 1;
  if (one->owner != other->owner) return one->owner < other->owner ? -1 : 1;
  return one->place < other->place ? -1 : one->place > other->place;
}

/* Sorts the numbers of a seed among all ranks of the group. */
static ftsort_status sort(ftsort *group, uint32_t seed, ftsort_result **result)
{
  int self = ftsort_rank(group);
  size_t count = count_of(seed, self), i;
  struct pair *input = (struct pair *)malloc(count * sizeof *input + 1);
  ftsort_status status;
  for (i = 0; i < count; i++) input[i] = pair_of(seed, self, i);
  *result = NULL;
  status = ftsort_run(group, &by_number, input, count, result);
  if (status != FTSORT_OK) fprintf(stderr, "rank %d, seed %u: %s\n", rank, seed, ftsort_last_error(group));
  free(input);
  return status;
}

/* Whether the blocks of this rank are right, for a seed and a number of ranks. Does not communicate, so that it
 * can be called at any time. Adds the number of records of this rank to `held`. */
static int is_right(const ftsort_result *result, uint32_t seed, int members, size_t *held)
{
  struct pair *all = (struct pair *)malloc(1);
  size_t total = 0, i, k;
  int owner, fine = result != NULL;
  for (owner = 0; owner < members; owner++) {
    size_t count = count_of(seed, owner);
    all = (struct pair *)realloc(all, (total + count) * sizeof *all + 1);
    for (i = 0; i < count; i++) all[total + i] = pair_of(seed, owner, i);
    total += count;
  }
  qsort(all, total, sizeof *all, order);
  fine &= ftsort_result_total(result) == total;
  for (k = 0; fine && k < ftsort_result_count(result); k++) {
    ftsort_block block;
    fine &= ftsort_result_block(result, k, &block) == FTSORT_OK && block.offset + block.count <= total;
    fine = fine && memcmp(block.data, all + block.offset, block.count * sizeof *all) == 0;
    if (fine) *held += block.count;
  }
  free(all);
  return fine;
}

static size_t all_of(uint32_t seed, int members)
{
  size_t total = 0;
  int owner;
  for (owner = 0; owner < members; owner++) total += count_of(seed, owner);
  return total;
}

/* Also checks that the ranks of `comm` together have all records. */
static int is_right_everywhere(const ftsort_result *result, uint32_t seed, MPI_Comm comm)
{
  unsigned long long sum;
  size_t held = 0;
  int members, fine;
  MPI_Comm_size(comm, &members);
  fine = is_right(result, seed, members, &held);
  sum = held;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, comm);
  return fine && sum == all_of(seed, members);
}

static ftsort *group_of(MPI_Comm comm, int32_t algorithm, int32_t store)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  config.algorithm = algorithm;
  config.store = store;
  if (ftsort_init(comm, &config, &group) != FTSORT_OK) fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(NULL));
  return group;
}

/* Two groups, of all ranks and of half of them. Results stay valid while other results are made, and after their
 * group is released. */
static void turns(void)
{
  enum { TIMES = 5 };
  MPI_Comm halves;
  ftsort *world, *half, *again;
  ftsort_result *of_world[TIMES], *of_half[TIMES], *last;
  int i, members;
  uint32_t seed;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &halves); /* the last rank first */
  MPI_Comm_size(halves, &members);
  world = group_of(MPI_COMM_WORLD, FTSORT_AUTO, FTSORT_STORE_MEMORY);
  half = group_of(halves, FTSORT_HYPERQUICKSORT, FTSORT_STORE_MEMORY);
  EXPECT(ftsort_rank(world) == rank && ftsort_ranks(world) == ranks && ftsort_ranks(half) == members);
  for (i = 0; i < TIMES; i++) {
    seed = (uint32_t)i;
    /* The halves sort different numbers, one half before the other. */
    if (rank % 2) EXPECT(sort(half, 100 + seed + (uint32_t)rank % 2 * 50, &of_half[i]) == FTSORT_OK);
    EXPECT(sort(world, seed, &of_world[i]) == FTSORT_OK);
    if (rank % 2 == 0) EXPECT(sort(half, 100 + seed, &of_half[i]) == FTSORT_OK);
  }
  for (i = 0; i < TIMES; i++) {
    EXPECT(is_right_everywhere(of_world[i], (uint32_t)i, MPI_COMM_WORLD));
    EXPECT(is_right_everywhere(of_half[i], 100 + (uint32_t)i + (uint32_t)rank % 2 * 50, halves));
  }
  ftsort_free(world);
  /* The other group can still be used; a third one is created on the communicator of the first. */
  EXPECT(sort(half, 7, &last) == FTSORT_OK && is_right_everywhere(last, 7, halves));
  ftsort_result_free(last);
  again = group_of(MPI_COMM_WORLD, FTSORT_QUICKMERGE, FTSORT_STORE_NONE);
  EXPECT(sort(again, 8, &last) == FTSORT_OK);
  ftsort_free(half);
  ftsort_free(again);
  MPI_Comm_free(&halves);
  for (i = 0; i < TIMES; i++) {
    EXPECT(is_right_everywhere(of_world[i], (uint32_t)i, MPI_COMM_WORLD));
    ftsort_result_free(of_world[i]);
    ftsort_result_free(of_half[i]);
  }
  EXPECT(is_right_everywhere(last, 8, MPI_COMM_WORLD));
  ftsort_result_free(last);
}

/* A group without one of the ranks, which does other work meanwhile. */
static void part(void)
{
  static const int32_t algorithms[] = {FTSORT_SAMPLESORT, FTSORT_QUICKMERGE, FTSORT_BITONIC};
  ftsort *world = group_of(MPI_COMM_WORLD, FTSORT_AUTO, FTSORT_STORE_MEMORY), *group;
  ftsort_result *result;
  MPI_Comm comm;
  int absent, i, self, token = 0;
  for (absent = 0; absent < ranks; absent++) {
    MPI_Comm_split(MPI_COMM_WORLD, rank == absent ? MPI_UNDEFINED : 0, absent % 2 ? -rank : rank, &comm);
    if (rank == absent) {
      group = (ftsort *)&failures;
      EXPECT(comm == MPI_COMM_NULL && ftsort_init(comm, NULL, &group) == FTSORT_ERR_ARGUMENT && group == NULL);
    } else {
      MPI_Comm_rank(comm, &self);
      for (i = 0; i < 3; i++) {
        group = group_of(comm, algorithms[i], FTSORT_STORE_MEMORY);
        EXPECT(ftsort_rank(group) == self && ftsort_ranks(group) == ranks - 1);
        EXPECT(sort(group, 20 + (uint32_t)i, &result) == FTSORT_OK);
        EXPECT(is_right_everywhere(result, 20 + (uint32_t)i, comm));
        ftsort_result_free(result);
        ftsort_free(group);
      }
      MPI_Comm_free(&comm);
    }
    /* Messages of the program are not confused with those of the library. */
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 1, &token, 1, MPI_INT, (rank + ranks - 1) % ranks, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(token == (rank + ranks - 1) % ranks);
    EXPECT(sort(world, (uint32_t)absent, &result) == FTSORT_OK);
    EXPECT(is_right_everywhere(result, (uint32_t)absent, MPI_COMM_WORLD));
    ftsort_result_free(result);
  }
  ftsort_free(world);
}

/* A thread that has a communicator and a group to itself. */
enum { THREADS = 4, CREATIONS = 150 };

struct worker {
  pthread_t thread;
  MPI_Comm comm;
  ftsort *group;
  uint32_t number, times;
  int count, failures;
  size_t held; /* the records of this rank in all of its results */
};

/* The thread that may run, if the threads take turns. The order is the same on all ranks; otherwise threads of
 * different ranks would wait for each other. */
static int takes_turns, turn;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;

static void await_turn(const struct worker *worker)
{
  if (!takes_turns) return;
  pthread_mutex_lock(&mutex);
  while (turn % worker->count != (int)worker->number) pthread_cond_wait(&turned, &mutex);
}

static void end_turn(void)
{
  if (!takes_turns) return;
  turn++;
  pthread_cond_broadcast(&turned);
  pthread_mutex_unlock(&mutex);
}

static uint32_t seed_of(const struct worker *worker, uint32_t i)
{
  return 1000 * worker->number + i;
}

static void *work(void *given)
{
  struct worker *worker = (struct worker *)given;
  ftsort_result *result;
  ftsort *group = worker->group;
  uint32_t i;
  for (i = 0; group && i < worker->times; i++) {
    uint32_t seed = seed_of(worker, i);
    await_turn(worker);
    EXPECT_IN(worker->failures, sort(group, seed, &result) == FTSORT_OK);
    /* Other groups may be in an agreement or in ftsort_init, during which the program does not call MPI. */
    EXPECT_IN(worker->failures, is_right(result, seed, ranks, &worker->held));
    ftsort_result_free(result);
    end_turn();
  }
  await_turn(worker);
  ftsort_free(group);
  end_turn();
  return NULL;
}

static void watch(ftsort *group)
{
  ftsort_monitor_options options = FTSORT_MONITOR_OPTIONS_INIT;
  options.mode = FTSORT_MONITOR_THREAD;
  options.interval_ms = 1;
  EXPECT(ftsort_monitor_start(group, &options, NULL) == FTSORT_OK);
}

/* Makes groups with monitors, sorts and releases them. Returns the number of records of this rank in all results. */
static size_t create(int groups)
{
  ftsort_result *result;
  size_t held = 0;
  uint32_t i;
  for (i = 0; (int)i < groups && failures == 0; i++) {
    ftsort *group = group_of(MPI_COMM_WORLD, FTSORT_AUTO, FTSORT_STORE_MEMORY);
    EXPECT(group != NULL);
    if (group == NULL) break;
    watch(group);
    EXPECT(sort(group, i, &result) == FTSORT_OK);
    EXPECT(is_right(result, i, ranks, &held));
    ftsort_result_free(result);
    ftsort_free(group);
  }
  return held;
}

/* Whether all ranks together have the expected number of records. */
static int is_sum(unsigned long long held, size_t expected)
{
  MPI_Allreduce(MPI_IN_PLACE, &held, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  return held == expected;
}

/* One thread creates all groups, in the same order on all ranks. */
static void threads(int count, int creations)
{
  static const int32_t algorithms[] = {FTSORT_SAMPLESORT, FTSORT_HYPERQUICKSORT, FTSORT_BITONIC, FTSORT_QUICKMERGE};
  struct worker workers[THREADS];
  size_t held, expected = 0;
  uint32_t k;
  int i;
  for (i = 0; i < count; i++) {
    MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
    workers[i].number = (uint32_t)i;
    workers[i].group = group_of(workers[i].comm, algorithms[i], FTSORT_STORE_MEMORY);
    EXPECT(workers[i].group != NULL);
    workers[i].count = count;
    workers[i].times = creations ? 2 * CREATIONS : 6;
    workers[i].held = 0;
    workers[i].failures = 0;
    if (creations) watch(workers[i].group);
  }
  for (i = 0; i < count; i++) EXPECT(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  held = create(creations);
  for (i = 0; i < count; i++) {
    pthread_join(workers[i].thread, NULL);
    failures += workers[i].failures;
  }
  for (k = 0; (int)k < creations; k++) expected += all_of(k, ranks);
  EXPECT(is_sum(held, expected));
  for (i = 0; i < count; i++) {
    for (expected = 0, k = 0; k < workers[i].times; k++) expected += all_of(seed_of(&workers[i], k), ranks);
    EXPECT(is_sum(workers[i].held, expected));
    MPI_Comm_free(&workers[i].comm);
  }
}

enum { ASKING = 2 };

static volatile int is_over;

/* Whether no call is in progress, so that all answers must be right. */
static volatile int is_quiet;

static void *ask(void *given)
{
  struct worker *worker = (struct worker *)given;
  const ftsort *group = worker->group;
  while (!is_over && worker->failures == 0) {
    ftsort_stats stats = FTSORT_STATS_INIT;
    int was_quiet = is_quiet, failed = ftsort_is_failed(group, 0), executor = ftsort_executor(group, 0);
    ftsort_status status = ftsort_get_stats(group, &stats);
    if (was_quiet && is_quiet) EXPECT_IN(worker->failures, failed == 0 && executor == 0 && status == FTSORT_OK);
  }
  return NULL;
}

static void getters(void)
{
  ftsort *group = group_of(MPI_COMM_WORLD, FTSORT_AUTO, FTSORT_STORE_MEMORY);
  ftsort_result *result;
  struct worker workers[ASKING];
  uint32_t flags = 1, i;
  double start;
  is_quiet = 1;
  for (i = 0; i < ASKING; i++) {
    workers[i].group = group;
    workers[i].failures = 0;
    EXPECT(pthread_create(&workers[i].thread, NULL, ask, &workers[i]) == 0);
  }
  start = MPI_Wtime();
  while (MPI_Wtime() - start < 0.2) continue;
  is_quiet = 0;
  for (i = 0; i < 100 && failures == 0; i++) {
    EXPECT(ftsort_agree(group, &flags, NULL) == FTSORT_OK);
    EXPECT(sort(group, i, &result) == FTSORT_OK);
    EXPECT(is_right_everywhere(result, i, MPI_COMM_WORLD));
    ftsort_result_free(result);
  }
  is_over = 1;
  for (i = 0; i < ASKING; i++) {
    pthread_join(workers[i].thread, NULL);
    failures += workers[i].failures;
  }
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  is_over = 0;
  for (i = 0; i < ASKING; i++) EXPECT(pthread_create(&workers[i].thread, NULL, ask, &workers[i]) == 0);
  if (failures == 0 && rank == 0) printf("groups: fine\n");
  /* With this setting the group is not released before the end, so that the threads can go on. */
  setenv("OMPI_MCA_mpi_ft_detector_thread", "1", 1);
  ftsort_leave(group, failures > 0);
  fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void leave(void)
{
  ftsort *first = group_of(MPI_COMM_WORLD, FTSORT_AUTO, FTSORT_STORE_MEMORY);
  watch(group_of(MPI_COMM_WORLD, FTSORT_AUTO, FTSORT_STORE_MEMORY));
  if (failures == 0 && rank == 0) printf("groups: fine\n");
  ftsort_leave(first, 0);
}

int main(int argc, char **argv)
{
  int wanted = MPI_THREAD_SINGLE, provided, creations;
  if (argc < 2) return 2;
  creations = strcmp(argv[1], "creations") == 0 ? CREATIONS : 0;
  takes_turns = strcmp(argv[1], "relay") == 0;
  if (takes_turns) wanted = MPI_THREAD_SERIALIZED;
  if (strcmp(argv[1], "threads") == 0 || strcmp(argv[1], "leave") == 0 || creations) wanted = MPI_THREAD_MULTIPLE;
  provided = start_mpi_with(&argc, &argv, wanted);
  if (strcmp(argv[1], "turns") == 0) turns();
  if (strcmp(argv[1], "part") == 0) part();
  if (strcmp(argv[1], "getters") == 0) getters();
  if (wanted != MPI_THREAD_SINGLE) {
    if (provided < wanted) {
      if (rank == 0) printf("groups: skipped, MPI grants only thread level %d\n", provided);
      MPI_Finalize();
      return 77;
    }
    if (strcmp(argv[1], "leave") == 0) leave();
    threads(argc > 2 ? atoi(argv[2]) : THREADS, creations);
  }
  return end_mpi("groups");
}
