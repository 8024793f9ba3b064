/* Sorts a binary file of numbers, and tolerates failures of ranks at any moment.
 *
 *   ftsort-mpirun -np 8 ./sort_file [options] INPUT OUTPUT
 *
 * Each rank reads its share of INPUT and protects it at once. After the sort it writes the blocks of its result into
 * OUTPUT.part. If ranks fail before all blocks are written, the survivors recover the lost blocks and write those too,
 * without another sort. Only the existence of OUTPUT means success: the file is renamed to this name when it is
 * complete.
 *
 * A file that does not fit into memory, or any file with --memory, is sorted by ftsort_external_sort. Then --scratch names a
 * directory for sorted runs, and --resume continues a job that ended before it was complete.
 *
 * Prints its progress: rounds, failures, and recoveries as they happen. With --events these are lines for scripts, and
 * with --quiet only errors are printed. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ftsort.h"
#include "ftsort_external.h"
#include "leave.h"
#include "sort_file.h"
#include "sort_file_progress.h"

struct job {
  const char *input, *output;
  char part[4096];
  char state[4096]; /* of an external sort into the same output */
  ftsort_record record;
  ftsort_config config;
  ftsort_external files; /* of a sort that does not fit into memory */
  const char *scratch;
  uint64_t records; /* in the whole file */
  int ranks, self;
  struct progress progress;
  ftsort *group;
  int32_t *reader; /* the rank that reads each rank's share: the rank itself, or the executor of its node */
  char *written;   /* by node (there are fewer than 2 * ranks): whether this rank has written the block */
  double seconds;
  uint64_t replayed, peak;
};

static const char *const types[] = {"i32", "u32", "i64", "u64", "f32", "f64", NULL};
static const size_t sizes[] = {4, 4, 8, 8, 4, 8};
static const char *const algorithms[] = {"auto",          "hyperquicksort", "quickmerge", "quickmerge_modified",
                                           "bitonic",       "bitonic_merge",  "samplesort", NULL};
static const char *const stores[] = {"memory", "directory", "none", "reload", NULL};

static void read_options(int argc, char **argv, struct job *job)
{
  int32_t type = 0;
  int arg;
  for (arg = 1; arg < argc && strncmp(argv[arg], "--", 2) == 0; arg++) {
    const char *option = argv[arg], *value = arg + 1 < argc ? argv[arg + 1] : "";
    if (strcmp(option, "--quiet") == 0) { job->progress.style = QUIET; continue; }
    if (strcmp(option, "--resume") == 0) { job->files.resume = 1; continue; }
    if (strcmp(option, "--events") == 0 || strcmp(option, "--progress") == 0) {
      job->progress.style = EVENTS;
      continue;
    }
    if (strcmp(option, "--type") == 0) type = pick(value, types, option);
    else if (strcmp(option, "--algorithm") == 0) job->config.algorithm = pick(value, algorithms, option);
    else if (strcmp(option, "--store") == 0) job->config.store = pick(value, stores, option);
    else if (strcmp(option, "--directory") == 0) job->config.store_directory = value;
    else if (strcmp(option, "--memory") == 0) job->files.memory_bytes = (size_t)atoi(value) << 20;
    else if (strcmp(option, "--scratch") == 0) job->scratch = value;
    else if (strcmp(option, "--replicas") == 0) job->config.replicas = (uint32_t)atoi(value);
    else usage("no option", option);
    arg++;
  }
  if (argc - arg != 2) usage("needs INPUT and OUTPUT", "");
  job->input = argv[arg];
  job->output = argv[arg + 1];
  snprintf(job->part, sizeof job->part, "%s.part", job->output);
  snprintf(job->state, sizeof job->state, "%s.ftsort", job->output);
  job->record.struct_size = sizeof job->record;
  job->record.record_bytes = sizes[type];
  job->record.key = FTSORT_KEY_I32 + type;
}

/* Reads a rank's input: its share, and the shares of failed ranks if it executes their nodes. If data is NULL, it only
 * computes the number of records. */
static int read_input(const struct job *job, int rank, char *data, size_t *records)
{
  int fd = data ? open(job->input, O_RDONLY) : -1, failed = data && fd < 0, owner;
  uint64_t each = job->records / (uint64_t)job->ranks, more = job->records % (uint64_t)job->ranks;
  size_t size = job->record.record_bytes;
  *records = 0;
  for (owner = 0; owner < job->ranks; owner++) {
    uint64_t r = (uint64_t)owner, start = each * r + (r < more ? r : more), some = each + (r < more);
    if (job->reader[owner] != rank) continue;
    if (data && !failed) failed = transfer(fd, data + *records * size, some * size, start * size, 0);
    *records += some;
  }
  if (fd >= 0) close(fd);
  return failed;
}

/* Reads the share of a failed rank from the file again, if the store does not have it. */
static int reload(void *user, int32_t rank, ftsort_buffer *out)
{
  const struct job *job = (const struct job *)user;
  size_t records;
  char *place;
  read_input(job, rank, NULL, &records);
  place = (char *)ftsort_buffer_resize(out, records * job->record.record_bytes);
  return place ? read_input(job, rank, place, &records) : 1;
}

static void on_event(void *user, const ftsort_event *event) { show_event(&((struct job *)user)->progress, event); }

static void add_stats(struct job *job)
{
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_get_stats(job->group, &stats);
  job->seconds += stats.total_seconds;
  job->replayed += stats.rounds_replayed;
  if (stats.peak_bytes > job->peak) job->peak = stats.peak_bytes;
}

/* Reads this rank's share and protects it. Afterwards the share survives the failure of this rank. */
static ftsort_status read_and_protect(struct job *job, ftsort_input **input)
{
  ftsort_status status;
  size_t records;
  char *data;
  int rank, failed;
  for (rank = 0; rank < job->ranks; rank++) job->reader[rank] = ftsort_executor(job->group, rank);
  read_input(job, job->self, NULL, &records);
  data = (char *)malloc(records * job->record.record_bytes + 1);
  failed = !data || read_input(job, job->self, data, &records);
  if (failed) fprintf(stderr, "rank %d: cannot read %s\n", job->self, job->input);
  /* A rank that cannot read its share passes an invalid argument, so that the call fails on all ranks: no rank waits
   * for it, and no result lacks its share. */
  status = ftsort_protect(job->group, &job->record, failed ? NULL : data, records + (size_t)failed, input);
  free(data);
  add_stats(job);
  return status;
}

/* Writes the blocks that this rank has not written yet. Returns 0 if that fails. */
static uint32_t write_blocks(struct job *job, const ftsort_result *result)
{
  size_t size = job->record.record_bytes, i;
  ftsort_block block;
  int fd = open(job->part, O_CREAT | O_WRONLY | O_NOFOLLOW, 0644); /* all ranks write to it, so not O_EXCL */
  int failed = fd < 0;
  for (i = 0; !failed && ftsort_result_block(result, i, &block) == FTSORT_OK; i++) {
    if (job->written[block.node]) continue;
    failed = transfer(fd, (char *)block.data, block.count * size, block.offset * size, 1);
    job->written[block.node] = 1;
  }
  if (fd >= 0 && close(fd) != 0) failed = 1;
  if (failed) fprintf(stderr, "rank %d: cannot write %s: %s\n", job->self, job->part, strerror(errno));
  return !failed;
}

/* Sorts the file into OUTPUT.part. `fine`: receives whether all ranks could write; the same on all ranks. */
static ftsort_status sort_into_part(struct job *job, uint32_t *fine)
{
  ftsort_result *result = NULL;
  ftsort_input *input = NULL;
  ftsort_status status = read_and_protect(job, &input);
  size_t failures = 1;
  if (status == FTSORT_OK) {
    status = ftsort_run_protected(job->group, input, NULL, &result);
    add_stats(job);
  }
  ftsort_input_free(input); /* the result has redundancy of its own */
  memset(job->written, 0, 2 * (size_t)job->ranks);
  *fine = 1;
  /* Ends if all survivors have written their blocks, and no rank has failed before that. */
  while (status == FTSORT_OK && *fine && failures > 0) {
    *fine = write_blocks(job, result);
    status = ftsort_agree(job->group, fine, &failures);
    if (status == FTSORT_OK && *fine && failures > 0) status = ftsort_result_recover(job->group, result);
  }
  ftsort_result_free(result);
  return status;
}

/* Whether the file is to be sorted in memory: the same on all ranks. The sort takes about 3.2 times the size of the file,
 * here of the memory of one host. */
static int fits_into_memory(struct job *job, double bytes)
{
  double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  uint32_t fits = job->files.memory_bytes == 0 && !job->files.resume && 4 * bytes <= memory;
  size_t failures;
  return ftsort_agree(job->group, &fits, &failures) == FTSORT_OK && fits;
}

/* Sorts the file by way of sorted runs in scratch files. */
static ftsort_status sort_externally(struct job *job)
{
  ftsort_external_stats stats = FTSORT_EXTERNAL_STATS_INIT;
  ftsort_status status;
  job->files.sources = &job->input;
  job->files.source_count = 1;
  job->files.output = job->output;
  job->files.scratch = &job->scratch;
  job->files.scratch_count = job->scratch != NULL;
  status = ftsort_external_sort(job->group, &job->record, &job->files, &stats);
  if (status == FTSORT_OK && is_lowest(job->group))
    say(&job->progress, "sorted in %llu batches; rank %d made %llu runs and resumed %llu records",
        (unsigned long long)stats.batches, job->self, (unsigned long long)stats.runs,
        (unsigned long long)stats.resumed_records);
  add_stats(job);
  return status;
}

int main(int argc, char **argv)
{
  static struct job job;
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_external files = FTSORT_EXTERNAL_INIT;
  struct stat info;
  ftsort_status status;
  size_t failures, size;
  uint32_t fine;
  int in_memory;

  job.config = config;
  job.files = files;
  read_options(argc, argv, &job);
  size = job.record.record_bytes;
  if (stat(job.input, &info) != 0) usage("cannot read", job.input);
  if ((size_t)info.st_size % size) usage("not a whole number of records:", job.input);
  job.records = (uint64_t)info.st_size / size;
  job.config.reload = reload;
  if (job.progress.style != QUIET) job.config.on_event = on_event;
  job.config.user = &job;

  ftsort_prepare();

  ftsort_allow_faults(); /* a demonstration: FTSORT_FAULTS may kill ranks */
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &job.self);
  MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
  job.progress.rank = job.self;
  job.progress.ranks = job.ranks;
  job.progress.bytes = (double)info.st_size;
  job.progress.start = MPI_Wtime();
  if (job.self == 0)
    say(&job.progress, "sorting %llu numbers, %.1f MB, on %d ranks", (unsigned long long)job.records,
        job.progress.bytes / 1e6, job.ranks);
  job.reader = (int32_t *)calloc((size_t)job.ranks, sizeof *job.reader);
  job.written = (char *)malloc(2 * (size_t)job.ranks);
  if (!job.reader || !job.written || ftsort_init(MPI_COMM_WORLD, &job.config, &job.group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  fine = 1;
  /* An earlier job that was killed may have left its OUTPUT.part. No rank writes before the agreement that follows. */
  if (ftsort_executor(job.group, 0) == job.self) unlink(job.part);
  in_memory = fits_into_memory(&job, job.progress.bytes);
  if (in_memory) {
    /* Data without any copy left are lost on all ranks alike, but the file still exists: the survivors read it again. */
    do status = sort_into_part(&job, &fine);
    while (status == FTSORT_ERR_DATA_LOST);
  } else {
    status = sort_externally(&job);
  }
  if (status != FTSORT_OK) {
    fprintf(stderr, "rank %d: %s\n", job.self, ftsort_last_error(job.group));
    fine = 0;
  }
  /* The executor of node 0 renames the file. If it fails meanwhile, the next executor does it. An external sort has
   * renamed its output. */
  for (failures = 1; fine && failures > 0;) {
    if (in_memory && ftsort_executor(job.group, 0) == job.self && access(job.part, F_OK) == 0) {
      unlink(job.state); /* with --resume it would say that the present output is complete */
      fine = truncate(job.part, info.st_size) == 0 && rename(job.part, job.output) == 0;
    }
    if (ftsort_agree(job.group, &fine, &failures) != FTSORT_OK) fine = 0;
  }
  if (fine && is_lowest(job.group))
    say(&job.progress, "%s is complete: %.1f MB, sorted in %.2f s, %llu rounds repeated, %.1f MB of memory", job.output,
        job.progress.bytes / 1e6, job.seconds, (unsigned long long)job.replayed, (double)job.peak / 1e6);
  if (fine && job.progress.style == EVENTS)
    printf("finished %d seconds %.4f replayed %llu peak %llu\n", job.self, job.seconds,
           (unsigned long long)job.replayed, (unsigned long long)job.peak);
  leave_with(job.group, !fine); /* all survivors have the same `fine` */
  return 1;
}
