/* The program of the tests that kill ranks: sorts generated records, and leaves its result in files.
 *
 *   sorter run DIR COUNT KIND SHAPE STORE REPLICAS REPAIR ALGORITHM OPTION   (under mpirun)
 *   sorter check DIR COUNT KIND SHAPE RANKS                                  (without mpirun and MPI)
 *
 * COUNT      the number of records: rank r has COUNT + r of them, or as many as the shape says
 * SHAPE      random, equal, few, sorted, reversed, holes, one, empty, or bitonic (an input for bitonic_merge)
 * REPLICAS   the replicas of the store memory; SHARES/RANKS of a group for the store parity
 * REPAIR     agree or shrink, and after it perhaps ":threads" (MPI_THREAD_MULTIPLE)
 * ALGORITHM  the name of an FTSORT_... algorithm in small letters, and after it any of ":paper" (the papers' pivots),
 *            ":dense" (a dense result), ":checked" (digests) and ":reliable" (the predicates of 1989)
 * OPTION     -              none
 *            reload         the reload callback
 *            liar           a reload callback that gives other bytes
 *            kill=RANK      a reload callback that kills this rank with SIGKILL after its first call on each other rank
 *            accept         accepts an MPI without ULFM
 *            timeout=MS, memory=BYTES, quorum=RANKS
 *            stop           rank 1 stops itself with SIGSTOP after round 1, and writes its pid to DIR/stopped; the
 *                           others give it up after two seconds
 *            trace          writes pids and the monotonic times of events to DIR/trace.RANK
 *
 * Every survivor writes its blocks to DIR/output at their offsets, and its status to DIR/status.RANK. The files are
 * the proof of success, because the exit status of mpirun proves nothing. `check` generates all inputs again, sorts
 * them with qsort, and compares bit for bit. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ftsort.h"
#include "ftsort_verify.h"
#include "../../c_examples/measure.h"

#define MOST_RANKS 512

static const char *const kinds[] = {"i32", "u32", "i64", "u64", "f32", "f64"};
static const size_t sizes[] = {4, 4, 8, 8, 4, 8};

static int kind_index(const char *name)
{
  int i;
  for (i = 0; i < 6; i++)
    if (strcmp(name, kinds[i]) == 0) return i;
  fprintf(stderr, "no kind %s\n", name);
  exit(2);
}

static size_t count_of(size_t count, const char *shape, int rank)
{
  if (strcmp(shape, "empty") == 0) return 0;
  if (strcmp(shape, "holes") == 0) return rank % 2 ? count : 0;
  if (strcmp(shape, "one") == 0) return rank == 0 ? count : 0;
  if (strcmp(shape, "bitonic") == 0) return count;
  return count + (size_t)rank;
}

static uint64_t bits_of(size_t count, const char *shape, int rank, size_t i)
{
  if (strcmp(shape, "equal") == 0) return 42;
  if (strcmp(shape, "few") == 0) return mix((uint64_t)rank << 40 | i) % 3;
  if (strcmp(shape, "sorted") == 0) return (uint64_t)rank * (count + MOST_RANKS) + i;
  if (strcmp(shape, "reversed") == 0) return ~((uint64_t)rank * (count + MOST_RANKS) + i) >> 34;
  /* Ascending on the first two ranks, descending on the others. */
  if (strcmp(shape, "bitonic") == 0) {
    if (rank < 2) return (uint64_t)rank * count + i;
    return 1000000 - ((uint64_t)(rank - 2) * count + i) / 3;
  }
  return mix((uint64_t)rank << 40 | i);
}

static int32_t algorithm_of(const char *name)
{
  static const char *const names[] = {"auto",    "hyperquicksort", "quickmerge", "quickmerge_modified",
                                      "bitonic", "bitonic_merge",  "samplesort", "samplesort_2", "samplesort_3"};
  size_t length = strcspn(name, ":");
  int32_t i;
  for (i = 0; i < 9; i++)
    if (strlen(names[i]) == length && strncmp(name, names[i], length) == 0) return i;
  fprintf(stderr, "no algorithm %s\n", name);
  exit(2);
}

static void *make_input(size_t count, int kind, const char *shape, int rank, size_t *records)
{
  size_t i, size = sizes[kind];
  char *data;
  *records = count_of(count, shape, rank);
  data = (char *)malloc(*records * size + 1);
  for (i = 0; i < *records; i++) {
    uint64_t bits = bits_of(count, shape, rank, i);
    memcpy(data + i * size, &bits, size);
  }
  return data;
}

/* A survivor brings its input. For each rank that failed before the sort, the executor of its node brings the input. */
struct job {
  size_t count;
  int kind;
  const char *shape;
  int ranks, rank;
  const char *dir;
  int executor[MOST_RANKS];
  unsigned found; /* a bit for each ftsort_finding of an event */
  int victim;     /* the process that `reload_and_kill` kills; 0: none any more */
};

static void *make_inputs(const struct job *job, int rank, size_t *records)
{
  size_t size = sizes[job->kind], some;
  char *all = (char *)malloc(1);
  int owner;
  *records = 0;
  for (owner = 0; owner < job->ranks; owner++) {
    void *data;
    if (job->executor[owner] != rank) continue;
    data = make_input(job->count, job->kind, job->shape, owner, &some);
    all = (char *)realloc(all, (*records + some) * size + 1);
    memcpy(all + *records * size, data, some * size);
    *records += some;
    free(data);
  }
  return all;
}

static int reload(void *user, int32_t rank, ftsort_buffer *out)
{
  const struct job *job = (const struct job *)user;
  size_t records;
  void *data = make_inputs(job, rank, &records);
  void *place = ftsort_buffer_resize(out, records * sizes[job->kind]);
  if (place) memcpy(place, data, records * sizes[job->kind]);
  free(data);
  return place ? 0 : 1;
}

static int reload_and_kill(void *user, int32_t rank, ftsort_buffer *out)
{
  struct job *job = (struct job *)user;
  int failed = reload(user, rank, out);
  if (job->victim > 0) kill(job->victim, SIGKILL);
  job->victim = 0;
  return failed;
}

static int reload_other_bytes(void *user, int32_t rank, ftsort_buffer *out)
{
  const struct job *job = (const struct job *)user;
  size_t records;
  char *data, *place;
  data = (char *)make_inputs(job, rank, &records);
  place = (char *)ftsort_buffer_resize(out, records * sizes[job->kind]);
  if (place) memcpy(place, data, records * sizes[job->kind]);
  if (place && records > 0) place[records / 2] ^= 1;
  free(data);
  return place ? 0 : 1;
}

static void note_finding(void *user, const ftsort_event *event)
{
  struct job *job = (struct job *)user;
  if (event->struct_size < offsetof(ftsort_event, finding) + sizeof event->finding) return;
  if ((event->kind == FTSORT_EVENT_CORRUPT) != (event->finding != FTSORT_FINDING_NONE)) job->found |= 1;
  if (event->kind == FTSORT_EVENT_CORRUPT) job->found |= 1u << event->finding;
}

/* The findings as words. The word "none" stands for an event with a kind and a finding that contradict each other. */
static const char *findings(unsigned found, char *text, size_t room)
{
  static const char *const names[] = {"none",     "message",     "memory",      "order",  "whole",
                                      "progress", "feasibility", "consistency", "absence"};
  int i;
  text[0] = '\0';
  for (i = 0; i < 9; i++)
    if (found >> i & 1) snprintf(text + strlen(text), room - strlen(text), "%s,", names[i]);
  return text;
}

static void stop(void *user, const ftsort_event *event)
{
  const struct job *job = (const struct job *)user;
  char path[512];
  FILE *file;
  if (event->kind != FTSORT_EVENT_ROUND || event->round != 1 || job->rank != 1) return;
  snprintf(path, sizeof path, "%s/stopped", job->dir);
  file = fopen(path, "w");
  if (file) fprintf(file, "%d\n", (int)getpid()), fclose(file);
  raise(SIGSTOP);
}

static void trace(void *user, const ftsort_event *event)
{
  const struct job *job = (const struct job *)user;
  char path[512];
  struct timespec now;
  FILE *file;
  clock_gettime(CLOCK_MONOTONIC, &now);
  snprintf(path, sizeof path, "%s/trace.%d", job->dir, job->rank);
  file = fopen(path, "a");
  if (!file) return;
  fprintf(file, "%d %.6f %d %u\n", (int)getpid(), (double)now.tv_sec + (double)now.tv_nsec / 1e9,
          (int)event->kind, event->round);
  fclose(file);
}

static void write_status(const char *dir, int rank, const char *text)
{
  char draft[512], path[512];
  FILE *file;
  snprintf(draft, sizeof draft, "%s/draft.%d", dir, rank);
  snprintf(path, sizeof path, "%s/status.%d", dir, rank);
  file = fopen(draft, "w");
  if (!file) return;
  fputs(text, file);
  fclose(file);
  rename(draft, path);
}

static int write_blocks(const char *dir, const ftsort_result *result, size_t size)
{
  char path[512];
  size_t i;
  int fd;
  snprintf(path, sizeof path, "%s/output", dir);
  fd = open(path, O_CREAT | O_WRONLY, 0644);
  if (fd < 0) return 1;
  for (i = 0; i < ftsort_result_count(result); i++) {
    ftsort_block block;
    const char *data;
    size_t left;
    off_t at;
    if (ftsort_result_block(result, i, &block) != FTSORT_OK) return 1;
    data = (const char *)block.data;
    left = block.count * size;
    at = (off_t)(block.offset * size);
    while (left > 0) {
      ssize_t written = pwrite(fd, data, left, at);
      if (written <= 0) return 1;
      data += written;
      at += written;
      left -= (size_t)written;
    }
  }
  return close(fd);
}

/* Whether this rank has one block, and of the same length as all others, except for one record. */
static int is_dense(const ftsort *group, const ftsort_result *result)
{
  uint64_t total = ftsort_result_total(result), survivors = 0;
  ftsort_block block;
  int32_t rank;
  for (rank = 0; rank < ftsort_ranks(group); rank++) survivors += !ftsort_is_failed(group, rank);
  if (ftsort_result_count(result) != 1) return 0;
  if (ftsort_result_block(result, 0, &block) != FTSORT_OK) return 0;
  return block.count == total / survivors || block.count == (total + survivors - 1) / survivors;
}

static int run(char **arg)
{
  static const ftsort_key keys[] = {FTSORT_KEY_I32, FTSORT_KEY_U32, FTSORT_KEY_I64,
                                    FTSORT_KEY_U64, FTSORT_KEY_F32, FTSORT_KEY_F64};
  const char *dir = arg[0];
  struct job job;
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_record record = FTSORT_RECORD_PLAIN(char, 0);
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  ftsort_status status;
  size_t lost_count, new_failures, i;
  uint64_t replayed = 0;
  /* Static, because they are large. A list has room for five characters a rank. */
  static char text[6 * MOST_RANKS], line[12 * MOST_RANKS], lost[5 * MOST_RANKS];
  static int32_t lost_ranks[MOST_RANKS];
  char found[128];
  struct rusage used;
  int rank, threads, runs = 0;

  job.count = strtoull(arg[1], NULL, 10);
  job.kind = kind_index(arg[2]);
  job.shape = arg[3];
  config.store = strcmp(arg[4], "directory") == 0 ? FTSORT_STORE_DIRECTORY
                 : strcmp(arg[4], "none") == 0    ? FTSORT_STORE_NONE
                 : strcmp(arg[4], "reload") == 0  ? FTSORT_STORE_RELOAD
                 : strcmp(arg[4], "parity") == 0  ? FTSORT_STORE_PARITY
                                                  : FTSORT_STORE_MEMORY;
  config.store_directory = dir;
  config.replicas = config.parity = (uint32_t)atoi(arg[5]);
  if (strchr(arg[5], '/')) config.parity_group = (uint32_t)atoi(strchr(arg[5], '/') + 1);
  config.repair = strncmp(arg[6], "shrink", 6) == 0 ? FTSORT_REPAIR_SHRINK : FTSORT_REPAIR_AGREE;
  config.algorithm = algorithm_of(arg[7]);
  config.pivot = strstr(arg[7], ":paper") ? FTSORT_PIVOT_PAPER : FTSORT_PIVOT_SAMPLED;
  config.dense = strstr(arg[7], ":dense") != NULL;
  config.checks = strstr(arg[7], ":checked") ? FTSORT_CHECK_DIGEST : 0;
  if (strstr(arg[7], ":reliable"))
    config.checks |= FTSORT_CHECK_PROGRESS | FTSORT_CHECK_FEASIBILITY | FTSORT_CHECK_CONSISTENCY;
  config.on_event = note_finding;
  if (strcmp(arg[8], "reload") == 0) config.reload = reload;
  if (strcmp(arg[8], "liar") == 0) config.reload = reload_other_bytes;
  if (strncmp(arg[8], "kill=", 5) == 0) config.reload = reload_and_kill;
  if (strcmp(arg[8], "stop") == 0) config.timeout_ms = 2000, config.on_event = stop;
  if (strcmp(arg[8], "trace") == 0) config.on_event = trace;
  if (strncmp(arg[8], "timeout=", 8) == 0) config.timeout_ms = (uint32_t)atoi(arg[8] + 8);
  if (strncmp(arg[8], "quorum=", 7) == 0) config.min_survivors = (uint32_t)atoi(arg[8] + 7);
  if (strncmp(arg[8], "memory=", 7) == 0) config.memory_limit = strtoull(arg[8] + 7, NULL, 10);
  config.accept_no_ulfm = strcmp(arg[8], "accept") == 0;
  config.user = &job;
  record.record_bytes = sizes[job.kind];
  record.key = keys[job.kind];

  ftsort_prepare();

  ftsort_allow_faults();
  MPI_Init_thread(NULL, NULL, strstr(arg[6], ":threads") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  job.victim = (int)getpid();
  MPI_Bcast(&job.victim, 1, MPI_INT, config.reload == reload_and_kill ? atoi(arg[8] + 5) : 0, MPI_COMM_WORLD);
  job.rank = rank;
  job.dir = dir;
  job.found = 0;
  status = ftsort_init(MPI_COMM_WORLD, &config, &group);
  if (status != FTSORT_OK) {
    snprintf(text, sizeof text, "status=%d text=%s\n", status, ftsort_last_error(NULL));
    write_status(dir, rank, text);
    /* No rank has failed, and the first MPI_Abort ends all ranks: so they write their statuses first. */
    if (status == FTSORT_ERR_NO_ULFM) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  job.ranks = ftsort_ranks(group);
  do {
    /* If a rank fails after the sort, its blocks are lost, and the survivors sort again. */
    size_t records;
    void *input;
    int owner;
    for (owner = 0; owner < job.ranks; owner++) job.executor[owner] = ftsort_executor(group, owner);
    input = make_inputs(&job, rank, &records);
    status = ftsort_run(group, &record, input, records, &result);
    if (status == FTSORT_OK && config.dense && !is_dense(group, result)) status = 2;
    if (status == FTSORT_OK && write_blocks(dir, result, sizes[job.kind])) status = 1;
    snprintf(text, sizeof text, "%s", ftsort_last_error(group));
    ftsort_result_free(result);
    free(input);
    ftsort_get_stats(group, &stats);
    replayed += stats.rounds_replayed;
    new_failures = 0;
    if (status == FTSORT_OK) status = ftsort_fault_check(group, &new_failures);
    runs++;
  } while (status == FTSORT_OK && new_failures > 0);
  lost_count = ftsort_lost_ranks(group, lost_ranks, MOST_RANKS);
  for (i = 0; i < lost_count && i < MOST_RANKS; i++)
    snprintf(lost + strlen(lost), sizeof lost - strlen(lost), "%d,", (int)lost_ranks[i]);
  getrusage(RUSAGE_SELF, &used);
  snprintf(line, sizeof line,
           "status=%d algorithm=%d seconds=%.4f replayed=%llu runs=%d rounds=%llu peak=%llu repair=%.6f "
           "resident=%ld corruptions=%llu found=%s lost=%s text=%s\n",
           status, stats.algorithm, stats.total_seconds, (unsigned long long)replayed, runs,
           (unsigned long long)stats.rounds, (unsigned long long)stats.peak_bytes,
           stats.repair_seconds, used.ru_maxrss, (unsigned long long)stats.corruptions,
           findings(job.found, found, sizeof found), lost, text);
  write_status(dir, rank, line);
  ftsort_leave(group, 0);
  return 1;
}

static int sort_kind;

static int compare(const void *a, const void *b)
{
#define COMPARE(T) return *(const T *)a < *(const T *)b ? -1 : *(const T *)a > *(const T *)b
#define TOTAL_ORDER(I, U)                                  \
  {                                                           \
    I x, y;                                                   \
    memcpy(&x, a, sizeof x);                                  \
    memcpy(&y, b, sizeof y);                                  \
    if (x < 0) x ^= (I)((U)-1 >> 1);                          \
    if (y < 0) y ^= (I)((U)-1 >> 1);                          \
    return x < y ? -1 : x > y;                                \
  }
  switch (sort_kind) {
  case 0: COMPARE(int32_t);
  case 1: COMPARE(uint32_t);
  case 2: COMPARE(int64_t);
  case 3: COMPARE(uint64_t);
  case 4: TOTAL_ORDER(int32_t, uint32_t)
  default: TOTAL_ORDER(int64_t, uint64_t)
  }
}

static int check(char **arg)
{
  size_t count = strtoull(arg[1], NULL, 10), total = 0, records, size, i;
  int kind = kind_index(arg[2]), ranks = atoi(arg[4]), rank;
  const char *shape = arg[3];
  char path[512], *expected = NULL, *found;
  struct stat info;
  FILE *file;

  size = sizes[kind];
  for (rank = 0; rank < ranks; rank++) {
    void *data = make_input(count, kind, shape, rank, &records);
    expected = (char *)realloc(expected, (total + records) * size + 1);
    memcpy(expected + total * size, data, records * size);
    total += records;
    free(data);
  }
  sort_kind = kind;
  qsort(expected, total, size, compare);
  snprintf(path, sizeof path, "%s/output", arg[0]);
  file = fopen(path, "rb");
  if (!file || fstat(fileno(file), &info) != 0) return printf("no output\n"), 1;
  if ((size_t)info.st_size != total * size)
    return printf("output has %lld bytes, not %zu\n", (long long)info.st_size, total * size), 1;
  found = (char *)malloc(total * size + 1);
  if (fread(found, size, total, file) != total) return printf("cannot read the output\n"), 1;
  for (i = 0; i < total; i++)
    if (memcmp(found + i * size, expected + i * size, size) != 0)
      return printf("record %zu of %zu is wrong\n", i, total), 1;
  printf("right\n");
  fclose(file);
  free(found);
  free(expected);
  return 0;
}

int main(int argc, char **argv)
{
  if (argc == 11 && strcmp(argv[1], "run") == 0) return run(argv + 2);
  if (argc == 7 && strcmp(argv[1], "check") == 0) return check(argv + 2);
  fprintf(stderr, "the first lines of sorter.c describe the arguments\n");
  return 2;
}
