/* The common part of five programs: those of the experiments of Camargo, Duarte and dos Santos (2018, 2019, 2024), with
 * their arguments and files, on ftsort.
 *
 *   ftsort-mpirun -np N hyperquicksort FILE SCENARIO [SEED]
 *   ftsort-mpirun -np N hyperquicksort_dgrp FILE SCENARIO [SEED]
 *   ftsort-mpirun -np N bitonic COUNT SCENARIO [SEED]        (reads Entrada.dat)
 *
 * FILE: 32-bit integers in the machine's byte order, of which each process takes an equal share.
 * SCENARIO: 0 no process fails, 1 one, 2 half of them, 3 all but one. SEED (default: the time) determines which
 * processes fail, and at the start of which rounds. saveRankR.dat in the working directory gets the sorted list of node
 * R, written by its executor. The program prints the total time of reading, sorting, recovering and writing.
 *
 * Unlike the originals, N need not be a power of two (each node of the next power of two has a file), counts need not
 * be divisible, keys may have any value, files are never visible before they are complete, and processes may fail at
 * any moment after ftsort_init. Before, the failure of a process ends the job. */
#ifndef ORIGINAL_H
#define ORIGINAL_H
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ftsort_monitor.h"
#include "ftsort_original.h"

/* The meaning of the first argument. */
enum input_kind { INPUT_FILE, INPUT_COUNT };

/* Whether slow ranks leave the sort and return to it (2018). */
enum slow_ranks { SLOW_RANKS_WORK, SLOW_RANKS_LEAVE };

typedef struct sorting {
  const char *program;
  const int32_t *keys; /* the whole file, mapped */
  size_t count;        /* number of keys that are sorted */
  int ranks, self;
  int32_t *reader; /* the rank that passes each rank's share: the rank itself, or its executor if it has failed */
  ftsort *group;
} sorting;

static void refuse(const char *format, ...)
{
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  fputc('\n', stderr);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The index of the first key of a rank's share. */
static size_t share_start(const sorting *job, int rank)
{
  size_t ranks = (size_t)job->ranks, r = (size_t)rank, more = job->count % ranks;
  return job->count / ranks * r + (r < more ? r : more);
}

static size_t share_size(const sorting *job, int rank)
{
  return share_start(job, rank + 1) - share_start(job, rank);
}

/* Reads an unsigned number. Returns 0 if the text is none. */
static int read_number(const char *text, unsigned long long *number)
{
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static void map_input(sorting *job, const char *path, const char *count)
{
  struct stat info;
  void *map = NULL;
  int fd = open(path, O_RDONLY);
  if (fd < 0 || fstat(fd, &info) != 0) refuse("%s: cannot read %s: %s", job->program, path, strerror(errno));
  job->count = (size_t)info.st_size / sizeof(int32_t);
  if (count == NULL && (size_t)info.st_size % sizeof(int32_t) != 0)
    refuse("%s: %s has %lld bytes, which is no multiple of 4: it must contain 32-bit integers", job->program, path,
           (long long)info.st_size);
  if (count != NULL) {
    unsigned long long wanted;
    if (!read_number(count, &wanted)) refuse("%s: COUNT is %s, not a number", job->program, count);
    if (wanted > job->count)
      refuse("%s: COUNT is %s, but %s has %zu integers", job->program, count, path, job->count);
    job->count = (size_t)wanted;
  }
  if (job->count > 0) map = mmap(NULL, job->count * sizeof(int32_t), PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) refuse("%s: cannot map %s: %s", job->program, path, strerror(errno));
  close(fd);
  job->keys = (const int32_t *)map;
}

/* The number of keys of a rank's input: its share, and the shares of failed ranks if it executes their nodes. */
static size_t input_size(const sorting *job, int rank)
{
  size_t count = 0;
  int owner;
  for (owner = 0; owner < job->ranks; owner++)
    if (job->reader[owner] == rank) count += share_size(job, owner);
  return count;
}

static void copy_input(const sorting *job, int rank, int32_t *place)
{
  int owner;
  for (owner = 0; owner < job->ranks; owner++) {
    size_t count = share_size(job, owner);
    if (job->reader[owner] != rank || count == 0) continue;
    memcpy(place, job->keys + share_start(job, owner), count * sizeof *place);
    place += count;
  }
}

/* Reads the input of a failed rank from the file again, if the store does not have it. */
static int reload(void *user, int32_t rank, ftsort_buffer *out)
{
  const sorting *job = (const sorting *)user;
  int32_t *place = (int32_t *)ftsort_buffer_resize(out, input_size(job, rank) * sizeof *place);
  if (place == NULL) return 1;
  copy_input(job, rank, place);
  return 0;
}

/* Sorts the inputs of the survivors, and writes the lists of this rank's nodes. Returns 0 if that fails for good. */
static int sort_and_save(sorting *job, ftsort_status *status)
{
  const ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  const int32_t *input;
  int32_t *joined = NULL;
  ftsort_result *result = NULL;
  ftsort_block block;
  size_t count, index;
  int rank, fine = 1;
  /* A rank that a monitor excludes executes no node, but still passes its share. */
  for (rank = 0; rank < job->ranks; rank++)
    job->reader[rank] = ftsort_is_failed(job->group, rank) ? ftsort_executor(job->group, rank) : rank;
  count = input_size(job, job->self);
  if (count == share_size(job, job->self)) {
    input = job->keys + (count > 0 ? share_start(job, job->self) : 0);
  } else {
    /* NULL is an invalid argument: if this rank has no memory, the call fails on all ranks, and no share is missing. */
    input = joined = (int32_t *)malloc(count * sizeof *joined);
    if (joined == NULL) fprintf(stderr, "%s: rank %d: no memory for %zu integers\n", job->program, job->self, count);
    else copy_input(job, job->self, joined);
  }
  *status = ftsort_run(job->group, &record, input, count, &result);
  if (*status != FTSORT_ERR_MPI && *status != FTSORT_ERR_INTERNAL) free(joined); /* otherwise MPI may still read it */
  if (*status == FTSORT_ERR_DATA_LOST) return 1; /* on all ranks; the file still exists, so the survivors sort again */
  if (*status != FTSORT_OK) {
    fprintf(stderr, "%s: rank %d: %s\n", job->program, job->self, ftsort_last_error(job->group));
    return 0;
  }
  if (ftsort_result_total(result) != job->count) {
    fprintf(stderr, "%s: rank %d: the result has %llu integers, and the input %zu\n", job->program, job->self,
            (unsigned long long)ftsort_result_total(result), job->count);
    fine = 0;
  }
  for (index = 0; fine && ftsort_result_block(result, index, &block) == FTSORT_OK; index++)
    fine = original_save((int)block.node, block.data, block.count, job->self);
  ftsort_result_free(result);
  return fine;
}

static int original(int argc, char **argv, int32_t algorithm, enum input_kind kind, enum slow_ranks slow)
{
  static const char *const scenarios[] = {"none", "one", "half", "all-but-one"};
  ftsort_config config = FTSORT_CONFIG_INIT;
  sorting job = {NULL, NULL, 0, 0, 0, NULL, NULL};
  unsigned long long seed = (unsigned long long)time(NULL);
  char faults[64];
  ftsort_status status;
  size_t failed = 0;
  uint32_t fine;
  double start;

  ftsort_prepare();
  if (slow == SLOW_RANKS_LEAVE) {
    int provided; /* the monitor has a thread where MPI allows it, and works at the commits elsewhere */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  } else {
    MPI_Init(&argc, &argv);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &job.self);
  MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
  job.program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
  if (argc < 3 || argc > 4 || strlen(argv[2]) != 1 || argv[2][0] < '0' || argv[2][0] > '3')
    refuse("usage: %s %s SCENARIO [SEED], SCENARIO from 0 to 3", job.program,
           kind == INPUT_FILE ? "FILE" : "COUNT");
  start = MPI_Wtime();
  map_input(&job, kind == INPUT_FILE ? argv[1] : "Entrada.dat", kind == INPUT_FILE ? NULL : argv[1]);
  if (argc == 4 && !read_number(argv[3], &seed)) refuse("%s: SEED is %s, not a number", job.program, argv[3]);
  job.reader = (int32_t *)calloc((size_t)job.ranks, sizeof *job.reader);
  if (job.reader == NULL) refuse("%s: no memory for %d ranks", job.program, job.ranks);
  MPI_Bcast(&seed, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
  snprintf(faults, sizeof faults, "%s seed=%llu", scenarios[argv[2][0] - '0'], seed);

  config.algorithm = algorithm;
  config.pivot = FTSORT_PIVOT_PAPER;
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = ".";
  config.faults = faults;
  config.reload = reload;
  config.accept_no_ulfm = argv[2][0] == '0';
  config.user = &job;
  if (ftsort_init(MPI_COMM_WORLD, &config, &job.group) != FTSORT_OK)
    refuse("%s: %s", job.program, ftsort_last_error(NULL));
  /* The defaults are the constants of the paper: a test per second, zeta = 5, a factor of 2.5. */
  if (slow == SLOW_RANKS_LEAVE && ftsort_monitor_start(job.group, NULL, NULL) != FTSORT_OK)
    refuse("%s: %s", job.program, ftsort_last_error(job.group));
  do {
    fine = (uint32_t)sort_and_save(&job, &status);
    /* If a rank has failed since the sort, its lists are missing, and the survivors sort again. */
    if (ftsort_agree(job.group, &fine, &failed) != FTSORT_OK) fine = 0;
  } while (fine && (failed > 0 || status == FTSORT_ERR_DATA_LOST));
  if (fine && ftsort_executor(job.group, 0) == job.self)
    printf("Total time: %f seconds\n", MPI_Wtime() - start);
  fflush(stdout);
  /* All survivors have the same `fine`. mpirun may hang if several ranks have another exit status than 0. */
  ftsort_leave(job.group, !fine && ftsort_executor(job.group, 0) == job.self ? 1 : 0);
  return 1;
}

#endif
