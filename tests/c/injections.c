/* Runs many small sorts in one mpirun, and corrupts data in each of them.
 *
 *   injections FIRST COUNT DIR [clean]     (under mpirun)
 *
 * The number of a trial determines the algorithm, the store, the checks, the kind of records, the number of records
 * of each rank, and the change with its place; all ranks draw the same. The result is compared, byte for byte, with
 * a sort by this program. "clean" changes nothing and counts false alarms. DIR is the folder of the directory store.
 * To run trial i alone, set FIRST to i and COUNT to 1.
 *
 * Rank 0 prints for each kind of change the number of:
 *   runs
 *   absent     runs in which the target of the change did not exist
 *   injected   runs with a change
 *   harmless   of these: not detected, and the result is right
 *   detected   of these: detected
 *   corrected  of the detected: the result is right
 *   refused    of the injected: no result, FTSORT_ERR_CORRUPT or FTSORT_ERR_DATA_LOST
 *   missed     a wrong result was released
 *   alarms     a corruption was reported, and no data was changed
 *   failed     any other status
 * The exit status is 1 if a run is missed, an alarm or failed; stderr names these trials. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ftsort.h"
#include "ftsort_verify.h"

enum { MOST_RANKS = 16, MOST_RECORDS = 60, MOST_BYTES = 100, CLEAN_SORTS = 50 };

static int rank, ranks;

/* The state of splitmix64, which is the same on all ranks. */
static uint64_t state;

static uint64_t bits(void)
{
  uint64_t x = state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static unsigned below(unsigned limit) { return (unsigned)(bits() % limit); }

static const struct kind {
  size_t bytes, offset, key_bytes;
  int32_t key;
} kinds[] = {{1, 0, 1, FTSORT_KEY_U8},   {4, 0, 4, FTSORT_KEY_I32},  {8, 0, 8, FTSORT_KEY_U64},
             {8, 0, 8, FTSORT_KEY_F64},  {12, 4, 4, FTSORT_KEY_U32}, {16, 8, 8, FTSORT_KEY_I64},
             {100, 0, 10, FTSORT_KEY_BYTES}};

static const char *const targets[] = {"message", "block", "input", "replica", "stored",
                                      "result",  "order", "swap",  "file"};
static const char *const changes[] = {"flip", "key", "copy", "drop", "double"};
enum { MESSAGE, BLOCK, INPUT, REPLICA, STORED, RESULT, ORDER, SWAP, TARGET_FILE, TARGETS, CHANGES = 5 };

struct trial {
  ftsort_config config;
  const struct kind *kind;
  int target, change, several;
  size_t counts[MOST_RANKS], total;
  /* All inputs, in the order of ranks, and the same records sorted. */
  unsigned char inputs[MOST_RANKS * MOST_RECORDS * MOST_BYTES], sorted[MOST_RANKS * MOST_RECORDS * MOST_BYTES];
  char faults[256];
  /* For the target "file": the round after which a file is changed, a random number that selects the file and the
   * bit, and how many files were changed. */
  uint32_t round;
  uint64_t choice;
  const char *directory;
  int changed;
};

struct count {
  long runs, absent, injected, harmless, detected, corrected, refused, missed, alarms, failed;
};

static int compare_keys(const struct kind *kind, const unsigned char *a, const unsigned char *b)
{
  a += kind->offset;
  b += kind->offset;
#define COMPARE(T)                     \
  do {                                 \
    T x, y;                            \
    memcpy(&x, a, sizeof x);           \
    memcpy(&y, b, sizeof y);           \
    return x < y ? -1 : x > y ? 1 : 0; \
  } while (0)
  switch (kind->key) {
  case FTSORT_KEY_U8: COMPARE(uint8_t);
  case FTSORT_KEY_I32: COMPARE(int32_t);
  case FTSORT_KEY_U32: COMPARE(uint32_t);
  case FTSORT_KEY_I64: COMPARE(int64_t);
  case FTSORT_KEY_U64: COMPARE(uint64_t);
  case FTSORT_KEY_F64: COMPARE(double);
  default: return memcmp(a, b, kind->key_bytes);
  }
}

/* Insertion sort, which is stable; there are few records. */
static void sort_directly(const struct kind *kind, unsigned char *records, size_t count)
{
  unsigned char one[MOST_BYTES];
  for (size_t i = 1; i < count; i++) {
    size_t place = i;
    memcpy(one, records + i * kind->bytes, kind->bytes);
    while (place > 0 && compare_keys(kind, records + (place - 1) * kind->bytes, one) > 0) {
      memcpy(records + place * kind->bytes, records + (place - 1) * kind->bytes, kind->bytes);
      place--;
    }
    memcpy(records + place * kind->bytes, one, kind->bytes);
  }
}

/* Draws random bytes, with a key from the range. */
static void draw_record(const struct kind *kind, uint64_t range, unsigned char *record)
{
  uint64_t key = bits() % range * (range < 100 ? 1 : 0x9e3779b97f4a7c15u);
  double number = (double)(int64_t)key;
  for (size_t i = 0; i < kind->bytes; i++) record[i] = (unsigned char)bits();
  if (kind->key == FTSORT_KEY_F64) memcpy(&key, &number, sizeof key);
  memset(record + kind->offset, 0, kind->key_bytes);
  memcpy(record + kind->offset, &key, kind->key_bytes < 8 ? kind->key_bytes : 8);
}

static void draw_records(struct trial *trial)
{
  const uint64_t ranges[] = {1, 5, 1000, (uint64_t)1 << 62};
  uint64_t range = ranges[below(4)];
  unsigned most = below(4) == 0 ? 3 : MOST_RECORDS;
  unsigned char *place = trial->inputs;
  trial->kind = &kinds[below(sizeof kinds / sizeof *kinds)];
  trial->total = 0;
  for (int i = 0; i < ranks; i++) {
    trial->counts[i] = below(most + 1);
    trial->total += trial->counts[i];
    for (size_t j = 0; j < trial->counts[i]; j++, place += trial->kind->bytes)
      draw_record(trial->kind, range, place);
  }
  memcpy(trial->sorted, trial->inputs, (size_t)(place - trial->inputs));
  sort_directly(trial->kind, trial->sorted, trial->total);
}

static int reload(void *user, int32_t owner, ftsort_buffer *out)
{
  const struct trial *trial = user;
  const unsigned char *place = trial->inputs;
  for (int i = 0; i < owner; i++) place += trial->counts[i] * trial->kind->bytes;
  return ftsort_buffer_append(out, place, trial->counts[owner] * trial->kind->bytes);
}

/* Changes a bit of a file of the store which has a version of a block. */
static void change_file(struct trial *trial)
{
  char path[600], found[600] = "";
  struct dirent *entry;
  struct stat about;
  uint64_t seen = 0;
  unsigned char byte;
  DIR *folder = opendir(trial->directory);
  if (!folder) return;
  while ((entry = readdir(folder))) {
    if (strncmp(entry->d_name, "ftsort-", 7) != 0 || !strstr(entry->d_name, "-v") || strstr(entry->d_name, "draft"))
      continue;
    snprintf(path, sizeof path, "%s/%s", trial->directory, entry->d_name);
    if (++seen == 1 || (trial->choice >> 40) % seen == 0) strcpy(found, path);
  }
  closedir(folder);
  int file = found[0] ? open(found, O_RDWR) : -1;
  if (file < 0) return;
  if (fstat(file, &about) == 0 && about.st_size > 0) {
    off_t at = (off_t)(trial->choice % (uint64_t)about.st_size);
    if (pread(file, &byte, 1, at) == 1) {
      byte ^= (unsigned char)(1u << (trial->choice >> 61));
      trial->changed += pwrite(file, &byte, 1, at) == 1;
    }
  }
  close(file);
}

static void on_event(void *user, const ftsort_event *event)
{
  struct trial *trial = user;
  if (trial->target == TARGET_FILE && rank == 0 && event->kind == FTSORT_EVENT_ROUND && !trial->changed
      && event->round == trial->round)
    change_file(trial);
}

static void add_fault(struct trial *trial, int owner, unsigned round, const char *target, int change, int again)
{
  size_t used = strlen(trial->faults);
  snprintf(trial->faults + used, sizeof trial->faults - used, "%s%d~%u.%s.%s/%u%s", used ? " " : "", owner, round,
           target, changes[change], below(1 << 20), again ? "*" : "");
}

/* Draws a change that the checks of 1989 promise to find without digests: in any message, or in a block after the
 * first exchange. */
static void draw_change_of_1989(struct trial *trial, unsigned dimension)
{
  unsigned rounds = dimension * (dimension + 3) / 2;
  trial->target = below(2) ? BLOCK : MESSAGE;
  unsigned first = trial->target == BLOCK ? 2 : 1;
  add_fault(trial, (int)below((unsigned)ranks), first + below(rounds - first + 1), targets[trial->target],
            trial->change, 0);
}

static void draw_schedule(struct trial *trial)
{
  unsigned dimension = 0;
  int owner = (int)below((unsigned)ranks), again = below(8) == 0;
  while (1 << dimension < ranks) dimension++;
  unsigned bitonic = dimension * (dimension + (trial->config.checks & ~FTSORT_CHECK_DIGEST ? 3 : 1)) / 2;
  unsigned exchanges = trial->config.algorithm == FTSORT_BITONIC ? bitonic
                       : trial->config.algorithm == FTSORT_AUTO || trial->config.algorithm == FTSORT_SAMPLESORT
                         ? 1
                         : dimension;
  unsigned last = exchanges + (trial->config.dense ? 2 : 1);
  trial->change = (int)below(CHANGES);
  trial->several = below(10) == 0;
  if (!(trial->config.checks & FTSORT_CHECK_DIGEST)) {
    trial->several = 0;
    draw_change_of_1989(trial, dimension);
    return;
  }
  do trial->target = (int)below(TARGETS);
  while ((trial->target == STORED || trial->target == TARGET_FILE) && trial->config.store != FTSORT_STORE_DIRECTORY);
  unsigned round = trial->target == INPUT || trial->target == REPLICA ? 0
                   : trial->target == RESULT || trial->target == ORDER ? last
                   : trial->target == STORED                           ? below(exchanges + 1)
                   : trial->target == BLOCK                            ? 1 + below(last)
                                                                       : 1 + below(exchanges);
  trial->round = round - 1;
  trial->choice = bits();
  if (trial->target != TARGET_FILE) add_fault(trial, owner, round, targets[trial->target], trial->change, again);
  /* A change to stored data matters only if the data are read. */
  int read_back = trial->target == TARGET_FILE || ((trial->target == STORED || trial->target == REPLICA) && below(2));
  if (read_back) add_fault(trial, (owner + 1) % ranks, round + (trial->target != TARGET_FILE), "message", 0, 0);
  if (trial->several)
    add_fault(trial, (int)below((unsigned)ranks), 1 + below(last), targets[below(MESSAGE + 2)], (int)below(CHANGES), 0);
}

static void draw_group(struct trial *trial, int clean)
{
  const int32_t algorithms[] = {FTSORT_AUTO,     FTSORT_HYPERQUICKSORT, FTSORT_QUICKMERGE, FTSORT_QUICKMERGE_MODIFIED,
                                FTSORT_BITONIC, FTSORT_BITONIC,        FTSORT_SAMPLESORT};
  const ftsort_config initial = FTSORT_CONFIG_INIT;
  const uint32_t all = FTSORT_CHECK_PROGRESS | FTSORT_CHECK_FEASIBILITY | FTSORT_CHECK_CONSISTENCY;
  trial->config = initial;
  trial->config.algorithm = algorithms[below(7)];
  trial->config.store = (int32_t)below(4);
  trial->config.store_directory = trial->directory;
  trial->config.pivot =
      trial->config.algorithm == FTSORT_BITONIC || below(2) ? FTSORT_PIVOT_SAMPLED : FTSORT_PIVOT_PAPER;
  trial->config.dense = below(4) == 0;
  trial->config.replicas = ranks > 2 ? 1 + below(2) : 1;
  trial->config.threads = 1;
  trial->config.timeout_ms = 60000;
  trial->config.checks = FTSORT_CHECK_DIGEST;
  if (trial->config.algorithm == FTSORT_BITONIC && ranks > 1) {
    const uint32_t sets[] = {FTSORT_CHECK_DIGEST, all, all, all | FTSORT_CHECK_DIGEST};
    trial->config.checks = sets[below(4)];
  }
  if (trial->config.store == FTSORT_STORE_RELOAD || below(4) == 0) trial->config.reload = reload;
  trial->config.on_event = on_event;
  trial->config.user = trial;
  trial->faults[0] = '\0';
  trial->changed = 0;
  trial->target = trial->change = trial->several = 0;
  if (!clean) draw_schedule(trial);
  trial->config.faults = trial->faults;
}

/* Whether the blocks of all ranks together are the records that this program has sorted. With some changes and
 * checks the order of equal keys may differ. */
static int is_right(const struct trial *trial, const ftsort_result *result)
{
  static unsigned char mine[sizeof trial->sorted], all[sizeof trial->sorted], expected[sizeof trial->sorted];
  static unsigned char seen[MOST_RANKS * MOST_RECORDS];
  const size_t size = trial->kind->bytes;
  int odd = 0, same, loose = trial->target == ORDER || trial->target == SWAP || trial->several
                             || !(trial->config.checks & FTSORT_CHECK_DIGEST);
  memset(mine, 0, sizeof mine);
  memset(seen, 0, sizeof seen);
  for (size_t i = 0; i < ftsort_result_count(result); i++) {
    ftsort_block block;
    if (ftsort_result_block(result, i, &block) != FTSORT_OK || block.offset + block.count > trial->total) {
      odd = 1;
      continue;
    }
    for (size_t j = 0; j < block.count; j++) seen[block.offset + j]++;
    if (block.count) memcpy(mine + block.offset * size, block.data, block.count * size);
  }
  odd |= ftsort_result_total(result) != trial->total;
  MPI_Allreduce(MPI_IN_PLACE, &odd, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, seen, (int)trial->total, MPI_UNSIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(mine, all, (int)(trial->total * size), MPI_UNSIGNED_CHAR, MPI_BOR, MPI_COMM_WORLD);
  for (size_t i = 0; i < trial->total; i++) odd |= seen[i] != 1;
  same = memcmp(all, trial->sorted, trial->total * size) == 0;
  if (odd || same || !loose) return !odd && same;
  for (size_t i = 0; i < trial->total; i++)
    if (compare_keys(trial->kind, all + i * size, trial->sorted + i * size) != 0) return 0;
  /* Compares the records in the order of all of their bytes. */
  struct kind whole = {size, 0, size, FTSORT_KEY_BYTES};
  memcpy(expected, trial->sorted, sizeof expected);
  sort_directly(&whole, expected, trial->total);
  sort_directly(&whole, all, trial->total);
  return memcmp(all, expected, trial->total * size) == 0;
}

static void name_trial(const struct trial *trial, long number, const char *verdict, int status, const char *text)
{
  if (rank == 0)
    fprintf(stderr, "trial %ld %s: status %d (%s), ranks %d, algorithm %d, store %d, checks %u, dense %d, pivot %d, "
                    "records of %zu bytes, %zu in all, faults \"%s\"\n",
            number, verdict, status, text ? text : "", ranks, trial->config.algorithm, trial->config.store,
            trial->config.checks, trial->config.dense, trial->config.pivot, trial->kind->bytes, trial->total,
            trial->faults);
}

/* Runs one trial, and counts its outcome. */
static void run_trial(ftsort *group, struct trial *trial, long number, struct count *count)
{
  ftsort_record record = {sizeof record, trial->kind->bytes, trial->kind->offset, trial->kind->key_bytes,
                          trial->kind->key, 0, 0, NULL, NULL, NULL, 0, 0};
  const unsigned char *input = trial->inputs;
  ftsort_result *result;
  ftsort_stats stats = FTSORT_STATS_INIT;
  for (int i = 0; i < rank; i++) input += trial->counts[i] * trial->kind->bytes;
  int status = ftsort_run(group, &record, input, trial->counts[rank], &result);
  ftsort_get_stats(group, &stats);
  int worst = status;
  long sums[2] = {(long)stats.injected + trial->changed, (long)stats.corruptions};
  MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  int injected = sums[0] > 0, refused = worst == FTSORT_ERR_CORRUPT || worst == FTSORT_ERR_DATA_LOST;
  int found = sums[1] > 0 || refused, right = worst == FTSORT_OK && is_right(trial, result);
  int missed = worst == FTSORT_OK && !right, alarm = !injected && found;
  int failed = worst != FTSORT_OK && !refused;
  count->runs++;
  count->absent += !injected;
  count->injected += injected;
  count->harmless += injected && !found && right;
  count->detected += injected && found;
  count->corrected += injected && found && right;
  count->refused += injected && refused;
  count->missed += missed;
  count->alarms += alarm;
  count->failed += failed;
  if (missed || alarm || failed)
    name_trial(trial, number, missed ? "missed" : alarm ? "alarm" : "failed", worst, ftsort_last_error(group));
  ftsort_result_free(result);
}

static void print(const char *checks, const char *target, const char *change, const struct count *count, int *bad)
{
  if (count->runs == 0) return;
  *bad |= count->missed || count->alarms || count->failed;
  if (rank == 0)
    printf("injections checks=%s target=%s change=%s runs=%ld absent=%ld injected=%ld harmless=%ld detected=%ld "
           "corrected=%ld refused=%ld missed=%ld alarms=%ld failed=%ld\n",
           checks, target, change, count->runs, count->absent, count->injected, count->harmless, count->detected,
           count->corrected, count->refused, count->missed, count->alarms, count->failed);
}

int main(int argc, char **argv)
{
  /* Single changes, with digests and with the checks of 1989 alone; then several changes at once. */
  static struct count counts[2][TARGETS][CHANGES], several, clean_runs;
  static struct trial trial;
  int bad = 0, clean = argc == 5 && strcmp(argv[4], "clean") == 0;
  if (argc != 4 && !clean) {
    fprintf(stderr, "usage: injections FIRST COUNT DIR [clean]\n");
    return 2;
  }
  long first = atol(argv[1]), end = first + atol(argv[2]);
  trial.directory = argv[3];
  /* Wrong records may cause a Rust panic, which ftsort catches; a backtrace would take longer than a sort. */
  setenv("RUST_BACKTRACE", "0", 1);
  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks < 2 || ranks > MOST_RANKS) MPI_Abort(MPI_COMM_WORLD, 2);
  for (long number = first; number < end;) {
    ftsort *group;
    state = (uint64_t)number * 0xd1342543de82ef95u + (uint64_t)ranks;
    draw_group(&trial, clean);
    if (ftsort_init(MPI_COMM_WORLD, &trial.config, &group) != FTSORT_OK) {
      fprintf(stderr, "trial %ld: no group: %s\n", number, ftsort_last_error(NULL));
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    /* Without changes, a group is used for many sorts. */
    for (int i = 0; i < (clean ? CLEAN_SORTS : 1) && number < end; i++, number++) {
      int by_1989 = !(trial.config.checks & FTSORT_CHECK_DIGEST);
      struct count *count = clean ? &clean_runs
                            : trial.several ? &several
                                            : &counts[by_1989][trial.target][trial.change];
      draw_records(&trial);
      run_trial(group, &trial, number, count);
    }
    ftsort_free(group);
  }
  for (int by_1989 = 0; by_1989 < 2; by_1989++)
    for (int target = 0; target < TARGETS; target++)
      for (int change = 0; change < CHANGES; change++)
        print(by_1989 ? "1989" : "digest", targets[target], changes[change], &counts[by_1989][target][change], &bad);
  print("any", "several", "any", &several, &bad);
  print("any", "none", "none", &clean_runs, &bad);
  MPI_Finalize();
  return bad;
}
