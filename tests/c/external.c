/* Sorts of files and of callbacks that do not fit into the memory that they may use, and a rank that is killed meanwhile.
 *
 *   external DIR KILL    (under mpirun)
 *
 * The last rank is killed in its KILL-th call of the read callback, or, if KILL is negative, in its -KILL-th call of the
 * write callback; 0 kills no rank. The lowest survivor checks every
 * output, and prints that all is fine. DIR is empty afterwards. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort.h"
#include "ftsort_external.h"

enum { COUNT = 200000, MEMORY = 1 << 20 };

typedef struct pair {
  uint32_t key, place;
} pair;

static const ftsort_record by_key = FTSORT_RECORD_MEMBER(pair, key, FTSORT_KEY_U32);
static char folder[3800], path_of_output[4096];
static long reads, writes, victim_call;
/* The number of the first read that fails; 0: none does. */
static long read_fails;
static int write_fails;

static pair pair_at(uint32_t place)
{
  pair made;
  made.key = (place * 2654435761u) >> 12;
  made.place = place;
  return made;
}

static char *in_folder(char *path, const char *name)
{
  snprintf(path, 4096, "%s/%s", folder, name);
  return path;
}

static int read_pairs(void *user, uint64_t position, void *buffer, size_t bytes)
{
  pair *pairs = (pair *)buffer;
  size_t i;
  (void)user;
  if (++reads == victim_call && rank == ranks - 1) raise(SIGKILL);
  if (read_fails > 0 && reads >= read_fails && rank == 0) return 7;
  for (i = 0; i < bytes / sizeof *pairs; i++) pairs[i] = pair_at((uint32_t)(position / sizeof *pairs + i));
  return 0;
}

static int write_pairs(void *user, uint64_t position, const void *data, size_t bytes)
{
  int file = open(path_of_output, O_CREAT | O_WRONLY, 0600), fine;
  (void)user;
  if (++writes == -victim_call && rank == ranks - 1) raise(SIGKILL);
  if (write_fails) return 3;
  fine = file >= 0 && pwrite(file, data, bytes, (off_t)position) == (ssize_t)bytes;
  if (file >= 0) close(file);
  return !fine;
}

static int is_lowest(ftsort *group)
{
  int lowest = 0;
  while (ftsort_is_failed(group, lowest)) lowest++;
  return rank == lowest;
}

/* Checks that a file has all pairs in order, and removes it. */
static void check(ftsort *group, const char *path)
{
  size_t bytes = COUNT * sizeof(pair), i;
  char *seen;
  pair *pairs;
  int file;
  uint32_t fine = 1;
  size_t lost;
  if (is_lowest(group)) {
    pairs = (pair *)malloc(bytes + 1);
    seen = (char *)calloc(COUNT, 1);
    file = open(path, O_RDONLY);
    EXPECT(pairs && seen && read(file, pairs, bytes + 1) == (ssize_t)bytes);
    for (i = 0; i < COUNT && failures == 0; i++) {
      EXPECT(i == 0 || pairs[i - 1].key <= pairs[i].key);
      EXPECT(pairs[i].place < COUNT && !seen[pairs[i].place]++);
      EXPECT(pairs[i].key == pair_at(pairs[i].place).key);
    }
    close(file);
    free(pairs);
    free(seen);
    EXPECT(unlink(path) == 0);
  }
  ftsort_agree(group, &fine, &lost);
}

static ftsort_external of_callbacks(const char *const *scratch)
{
  ftsort_external files = FTSORT_EXTERNAL_INIT;
  files.scratch = scratch;
  files.scratch_count = 1;
  files.memory_bytes = MEMORY;
  files.read = read_pairs;
  files.bytes = COUNT * sizeof(pair);
  files.write = write_pairs;
  return files;
}

/* Sorts pairs that callbacks provide and receive. */
static void sort_callbacks(ftsort *group, const char *const *scratch)
{
  ftsort_external files = of_callbacks(scratch);
  ftsort_external_stats stats = FTSORT_EXTERNAL_STATS_INIT;
  in_folder(path_of_output, "received");
  EXPECT(ftsort_external_sort(group, &by_key, &files, &stats) == FTSORT_OK);
  EXPECT(stats.records == COUNT && stats.batches > 1 && stats.runs > 0);
  check(group, path_of_output);
  read_fails = 1;
  EXPECT(ftsort_external_sort(group, &by_key, &files, NULL) == FTSORT_ERR_CALLBACK);
  read_fails = 0;
  write_fails = is_lowest(group);
  EXPECT(ftsort_external_sort(group, &by_key, &files, NULL) == FTSORT_ERR_STORE);
  write_fails = 0;
  if (is_lowest(group)) unlink(path_of_output);
}

/* Writes the pairs from one place to another. */
static void write_source(const char *path, uint32_t first, uint32_t end)
{
  FILE *file = fopen(path, "wb");
  EXPECT(file != NULL);
  for (; file && first < end; first++) {
    pair made = pair_at(first);
    EXPECT(fwrite(&made, sizeof made, 1, file) == 1);
  }
  if (file) fclose(file);
}

/* Sorts into three files, and puts them together. */
static void sort_into_parts(ftsort *group, ftsort_external files)
{
  char path[4096 + 8];
  struct stat info;
  int part;
  FILE *whole = NULL, *file;
  pair *pairs = (pair *)malloc(COUNT * sizeof *pairs);
  files.output_parts = 3;
  EXPECT(ftsort_external_sort(group, &by_key, &files, NULL) == FTSORT_OK);
  if (is_lowest(group)) EXPECT(stat(files.output, &info) != 0 && (whole = fopen(files.output, "wb")) != NULL);
  for (part = 0; whole && part < 3; part++) {
    size_t count = (size_t)COUNT * (size_t)(part + 1) / 3 - (size_t)COUNT * (size_t)part / 3;
    snprintf(path, sizeof path, "%s.%05d", files.output, part);
    file = fopen(path, "rb");
    EXPECT(file != NULL && pairs != NULL && fread(pairs, sizeof *pairs, COUNT, file) == count);
    EXPECT(fwrite(pairs, sizeof *pairs, count, whole) == count && unlink(path) == 0);
    if (file) fclose(file);
  }
  if (whole) fclose(whole);
  free(pairs);
  check(group, files.output);
}

/* Sorts two files into a third one, twice, and refuses to resume another sort. */
static void sort_files(ftsort *group, const char *const *scratch)
{
  static char one[4096], other[4096], output[4096], state[4096];
  const char *sources[2];
  ftsort_external files = FTSORT_EXTERNAL_INIT;
  ftsort_external_stats stats = FTSORT_EXTERNAL_STATS_INIT;
  ftsort_record descending = by_key;
  struct stat info;
  uint32_t fine = 1;
  size_t lost;
  sources[0] = in_folder(one, "one");
  sources[1] = in_folder(other, "other");
  if (is_lowest(group)) {
    write_source(one, 0, COUNT / 3);
    write_source(other, COUNT / 3, COUNT);
  }
  ftsort_agree(group, &fine, &lost);
  files.sources = sources;
  files.source_count = 2;
  files.output = in_folder(output, "sorted");
  files.scratch = scratch;
  files.scratch_count = 1;
  files.memory_bytes = MEMORY;
  files.resume = 1;
  files.sync = 1;
  EXPECT(ftsort_external_sort(group, &by_key, &files, &stats) == FTSORT_OK);
  EXPECT(stats.records == COUNT && stats.resumed_records == 0);
  EXPECT(ftsort_external_sort(group, &by_key, &files, &stats) == FTSORT_OK);
  EXPECT(stats.resumed_records == COUNT && stats.runs == 0 && stats.bytes_read == 0);
  descending.descending = 1;
  EXPECT(ftsort_external_sort(group, &descending, &files, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "is the state of another sort, with another key") != NULL);
  if (is_lowest(group)) EXPECT(stat(output, &info) == 0 && (info.st_mode & 0777) == 0600);
  check(group, output);
  if (is_lowest(group)) unlink(in_folder(state, "sorted.ftsort"));
  files.resume = 0;
  sort_into_parts(group, files);
  ftsort_agree(group, &fine, &lost);
  files.memory_bytes = 64;
  EXPECT(ftsort_external_sort(group, &by_key, &files, NULL) == FTSORT_ERR_MEMORY);
  sources[1] = in_folder(state, "absent");
  EXPECT(ftsort_external_sort(group, &by_key, &files, NULL) == FTSORT_ERR_STORE);
  ftsort_agree(group, &fine, &lost);
  if (is_lowest(group)) EXPECT(unlink(one) == 0 && unlink(other) == 0);
}

/* Resumes a sort that failed while it read, in a group with a spare, which leaves the runs to the other ranks. */
static void resume_with_spare(const char *const *scratch)
{
  static char output[4096], state[4096];
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *first = NULL, *second = NULL;
  ftsort_external files = of_callbacks(scratch);
  files.write = NULL;
  files.output = in_folder(output, "resumed");
  files.resume = 1;
  config.spares = 1;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &first) == FTSORT_OK);
  read_fails = reads + 2;
  EXPECT(ftsort_external_sort(first, &by_key, &files, NULL) == FTSORT_ERR_CALLBACK);
  read_fails = 0;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &second) == FTSORT_OK);
  EXPECT(ftsort_external_sort(second, &by_key, &files, NULL) == FTSORT_OK);
  check(second, output);
  if (is_lowest(second)) unlink(in_folder(state, "resumed.ftsort"));
  ftsort_free(first);
  ftsort_free(second);
}

static void refuse(ftsort *group, const ftsort_record *record, const ftsort_external *files, const char *text)
{
  EXPECT(ftsort_external_sort(group, record, files, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), text) != NULL);
}

/* A source with the name of a temporary file of the output would be removed. */
static void keep_sources(ftsort *group)
{
  static const char *const names[] = {"kept.partial", "kept.00002.partial", "kept.ftsort",
                                      "kept.ftsort.partial"};
  static char path[4096], output[4096];
  const char *sources[1];
  ftsort_external files = FTSORT_EXTERNAL_INIT;
  uint32_t fine = 1;
  size_t i, lost;
  sources[0] = path;
  files.sources = sources;
  files.source_count = 1;
  files.output = in_folder(output, "kept");
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    in_folder(path, names[i]);
    if (is_lowest(group)) write_source(path, 0, 9);
    ftsort_agree(group, &fine, &lost);
    refuse(group, &by_key, &files, ", which the sort removes: rename the source");
    EXPECT(strstr(ftsort_last_error(group), path) != NULL);
    ftsort_agree(group, &fine, &lost);
    if (is_lowest(group)) EXPECT(unlink(path) == 0);
  }
}

/* A place for figures that is wrong on one rank is refused on all ranks, before the sort. */
static void check_stats(ftsort *group, const char *const *scratch)
{
  ftsort_external files = of_callbacks(scratch);
  ftsort_external_stats stats = FTSORT_EXTERNAL_STATS_INIT;
  int lowest = is_lowest(group);
  long before = writes;
  stats.struct_size = lowest ? 7 : sizeof stats;
  EXPECT(ftsort_external_sort(group, &by_key, &files, &stats) ==
         (lowest ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(writes == before);
  if (lowest) EXPECT(strstr(ftsort_last_error(group), "stats.struct_size is too small") != NULL);
}

/* A link to a directory is refused as an output. */
static void refuse_link(ftsort *group, ftsort_external files)
{
  char path[4096];
  uint32_t fine = 1;
  size_t lost;
  files.output = in_folder(path, "link");
  if (is_lowest(group)) EXPECT(symlink(folder, path) == 0);
  ftsort_agree(group, &fine, &lost);
  refuse(group, &by_key, &files, "link, which is no regular file: name another file");
  ftsort_agree(group, &fine, &lost);
  if (is_lowest(group)) EXPECT(unlink(path) == 0);
}

static void check_arguments(ftsort *group, const char *const *scratch)
{
  ftsort_external files = of_callbacks(scratch);
  ftsort_record stable = by_key;
  check_stats(group, scratch);
  stable.stable = 1;
  refuse(group, &by_key, NULL, "files is NULL");
  refuse(group, NULL, &files, "record is NULL");
  refuse(group, &stable, &files, "record.stable is set");
  files.bytes = 9;
  refuse(group, &by_key, &files, "the source has 9 bytes, not a multiple of the record size 8");
  files.resume = 1;
  refuse(group, &by_key, &files, "a sort with files.write cannot be resumed");
  files = of_callbacks(scratch);
  files.output_parts = 2;
  refuse(group, &by_key, &files, "files.output_parts is 2, but files.write is set");
  files = of_callbacks(scratch);
  files.scratch_count = 0;
  refuse(group, &by_key, &files, "name a directory for runs");
  files = of_callbacks(scratch);
  files.output = folder;
  refuse(group, &by_key, &files, "both or neither of output and write");
  files.write = NULL;
  refuse(group, &by_key, &files, ", which is no regular file: name another file");
  refuse_link(group, files);
  files = of_callbacks(scratch);
  files.source_count = 1;
  refuse(group, &by_key, &files, "files.sources is NULL, but files.source_count is 1");
  files = of_callbacks(scratch);
  files.read = NULL;
  refuse(group, &by_key, &files, "both or neither of sources and read");
  files = of_callbacks(scratch);
  files.struct_size = 3;
  refuse(group, &by_key, &files, "files.struct_size is 3");
}

int main(int argc, char **argv)
{
  const char *scratch[1];
  ftsort *group = NULL;
  if (argc != 3) return 2;
  snprintf(folder, sizeof folder, "%s", argv[1]);
  victim_call = atol(argv[2]);
  scratch[0] = folder;
  start_mpi(&argc, &argv);
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  sort_callbacks(group, scratch);
  EXPECT(ftsort_is_failed(group, ranks - 1) == (victim_call != 0));
  sort_files(group, scratch);
  if (ranks > 1) resume_with_spare(scratch);
  check_arguments(group, scratch);
  keep_sources(group);
  if (is_lowest(group) && failures == 0) printf("external: fine\n");
  ftsort_leave(group, failures > 0);
  return 1;
}
