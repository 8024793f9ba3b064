/* Wrong data by the thousand: many small sorts in one mpirun, in each of which the fault schedule changes
 * something, drawn by a number.
 *
 *   injections FIRST COUNT DIR [clean]     (under mpirun)
 *
 * Trial i draws an algorithm, a store, the checks, the kind of records, how many each rank has, and what is
 * changed where; the same on all ranks. What comes out is compared, byte for byte, with what this program
 * sorts itself. "clean" changes nothing and counts false alarms. DIR is for the directory store.
 *
 * Rank 0 prints for each kind of change: runs; absent (there was nothing to be changed); injected; harmless
 * (nothing was found, the result is right); detected; corrected (of these, the result is right); refused (no
 * result: FTSORT_ERR_CORRUPT or FTSORT_ERR_DATA_LOST); missed (a wrong result was given out); alarms
 * (something was found where nothing was changed); failed (any other status). The exit status is 1 if
 * something was missed, failed, or found where nothing was; the trials are named on stderr. Trial i alone:
 * FIRST i, COUNT 1. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ftsort.h"

enum { MOST_RANKS = 16, MOST_RECORDS = 60, MOST_BYTES = 100, CLEAN_SORTS = 50 };

static int rank, ranks;

/* splitmix64: what is drawn is the same on all ranks. */
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
  /* All inputs, in the order of ranks; and sorted. */
  unsigned char inputs[MOST_RANKS * MOST_RECORDS * MOST_BYTES], sorted[MOST_RANKS * MOST_RECORDS * MOST_BYTES];
  char faults[256];
  /* "file": after which round a file is changed, what decides which, and whether one was. */
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

/* Stable, and short: there are few records. */
static void sort_apart(const struct kind *kind, unsigned char *records, size_t count)
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

/* Any bytes with a key from some range. */
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
  sort_apart(trial->kind, trial->sorted, trial->total);
}

static int hand_out_again(void *user, int32_t of, ftsort_buffer *out)
{
  const struct trial *trial = user;
  const unsigned char *place = trial->inputs;
  for (int i = 0; i < of; i++) place += trial->counts[i] * trial->kind->bytes;
  return ftsort_buffer_append(out, place, trial->counts[of] * trial->kind->bytes);
}

/* Changes a bit of a file in the store, of a version of some node's block. */
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

static void add_fault(struct trial *trial, int of, unsigned round, const char *what, int change, int again)
{
  size_t used = strlen(trial->faults);
  snprintf(trial->faults + used, sizeof trial->faults - used, "%s%d~%u.%s.%s/%u%s", used ? " " : "", of, round,
           what, changes[change], below(1 << 20), again ? "*" : "");
}

/* What the checks of 1989 promise to find without digests: in all of their messages, and in blocks after the
 * first exchange. */
static void draw_lie(struct trial *trial, unsigned dimension)
{
  unsigned rounds = dimension * (dimension + 3) / 2;
  trial->target = below(2) ? BLOCK : MESSAGE;
  unsigned first = trial->target == BLOCK ? 2 : 1;
  add_fault(trial, (int)below((unsigned)ranks), first + below(rounds - first + 1), targets[trial->target],
            trial->change, 0);
}

static void draw_faults(struct trial *trial)
{
  unsigned dimension = 0;
  int of = (int)below((unsigned)ranks), again = below(8) == 0;
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
    draw_lie(trial, dimension);
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
  if (trial->target != TARGET_FILE) add_fault(trial, of, round, targets[trial->target], trial->change, again);
  /* What is stored matters where it is read. */
  int read_back = trial->target == TARGET_FILE || ((trial->target == STORED || trial->target == REPLICA) && below(2));
  if (read_back) add_fault(trial, (of + 1) % ranks, round + (trial->target != TARGET_FILE), "message", 0, 0);
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
  trial->config.pivot = trial->config.algorithm == FTSORT_BITONIC || below(2) ? FTSORT_PIVOT_SAMPLED : FTSORT_PIVOT_PAPER;
  trial->config.dense = below(4) == 0;
  trial->config.replicas = ranks > 2 ? 1 + below(2) : 1;
  trial->config.threads = 1;
  trial->config.timeout_ms = 60000;
  trial->config.checks = FTSORT_CHECK_DIGEST;
  if (trial->config.algorithm == FTSORT_BITONIC && ranks > 1) {
    const uint32_t sets[] = {FTSORT_CHECK_DIGEST, all, all, all | FTSORT_CHECK_DIGEST};
    trial->config.checks = sets[below(4)];
  }
  if (trial->config.store == FTSORT_STORE_RELOAD || below(4) == 0) trial->config.reload = hand_out_again;
  trial->config.on_event = on_event;
  trial->config.user = trial;
  trial->faults[0] = '\0';
  trial->changed = 0;
  trial->target = trial->change = trial->several = 0;
  if (!clean) draw_faults(trial);
  trial->config.faults = trial->faults;
}

/* Are the blocks of all ranks together what this program sorted? Where only the order of equal keys may differ,
 * 1, too. */
static int is_right(const struct trial *trial, const ftsort_result *result)
{
  static unsigned char mine[sizeof trial->sorted], all[sizeof trial->sorted], expected[sizeof trial->sorted];
  static unsigned char covered[MOST_RANKS * MOST_RECORDS];
  const size_t size = trial->kind->bytes;
  int odd = 0, same, loose = trial->target == ORDER || trial->target == SWAP || trial->several
                             || !(trial->config.checks & FTSORT_CHECK_DIGEST);
  memset(mine, 0, sizeof mine);
  memset(covered, 0, sizeof covered);
  for (size_t i = 0; i < ftsort_result_count(result); i++) {
    ftsort_block block;
    if (ftsort_result_block(result, i, &block) != FTSORT_OK || block.offset + block.count > trial->total) {
      odd = 1;
      continue;
    }
    for (size_t j = 0; j < block.count; j++) covered[block.offset + j]++;
    if (block.count) memcpy(mine + block.offset * size, block.data, block.count * size);
  }
  odd |= ftsort_result_total(result) != trial->total;
  MPI_Allreduce(MPI_IN_PLACE, &odd, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, covered, (int)trial->total, MPI_UNSIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(mine, all, (int)(trial->total * size), MPI_UNSIGNED_CHAR, MPI_BOR, MPI_COMM_WORLD);
  for (size_t i = 0; i < trial->total; i++) odd |= covered[i] != 1;
  same = memcmp(all, trial->sorted, trial->total * size) == 0;
  if (odd || same || !loose) return !odd && same;
  for (size_t i = 0; i < trial->total; i++)
    if (compare_keys(trial->kind, all + i * size, trial->sorted + i * size) != 0) return 0;
  /* The same records: by all of their bytes in one order. */
  struct kind whole = {size, 0, size, FTSORT_KEY_BYTES};
  memcpy(expected, trial->sorted, sizeof expected);
  sort_apart(&whole, expected, trial->total);
  sort_apart(&whole, all, trial->total);
  return memcmp(all, expected, trial->total * size) == 0;
}

static void say(const struct trial *trial, long number, const char *what, int status, const char *text)
{
  if (rank == 0)
    fprintf(stderr, "trial %ld %s: status %d (%s), ranks %d, algorithm %d, store %d, checks %u, dense %d, pivot %d, "
                    "records of %zu bytes, %zu in all, faults \"%s\"\n",
            number, what, status, text ? text : "", ranks, trial->config.algorithm, trial->config.store,
            trial->config.checks, trial->config.dense, trial->config.pivot, trial->kind->bytes, trial->total,
            trial->faults);
}

/* One sort, and what came of it. */
static void play(ftsort *group, struct trial *trial, long number, struct count *count)
{
  ftsort_record record = {sizeof record, trial->kind->bytes, trial->kind->offset, trial->kind->key_bytes,
                          trial->kind->key, 0, 0, NULL, NULL};
  const unsigned char *input = trial->inputs;
  ftsort_result *result;
  ftsort_stats stats = FTSORT_STATS_INIT;
  for (int i = 0; i < rank; i++) input += trial->counts[i] * trial->kind->bytes;
  int status = ftsort_run(group, &record, input, trial->counts[rank], &result);
  ftsort_get_stats(group, &stats);
  int worst = status;
  long told[2] = {(long)stats.injected + trial->changed, (long)stats.corruptions};
  MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, told, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  int injected = told[0] > 0, refused = worst == FTSORT_ERR_CORRUPT || worst == FTSORT_ERR_DATA_LOST;
  int found = told[1] > 0 || refused, right = worst == FTSORT_OK && is_right(trial, result);
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
    say(trial, number, missed ? "missed" : alarm ? "alarm" : "failed", worst, ftsort_last_error(group));
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
  /* With digests, and with the checks of 1989 alone; of changes that come alone, then of several at once. */
  static struct count counts[2][TARGETS][CHANGES], several, clean_runs;
  static struct trial trial;
  int bad = 0, clean = argc == 5 && strcmp(argv[4], "clean") == 0;
  if (argc != 4 && !clean) {
    fprintf(stderr, "usage: injections FIRST COUNT DIR [clean]\n");
    return 2;
  }
  long first = atol(argv[1]), end = first + atol(argv[2]);
  trial.directory = argv[3];
  /* What is made of wrong records may panic, which ftsort catches; a trace of it takes longer than a sort. */
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
    /* Where nothing is changed, a group serves for many sorts. */
    for (int i = 0; i < (clean ? CLEAN_SORTS : 1) && number < end; i++, number++) {
      int by_1989 = !(trial.config.checks & FTSORT_CHECK_DIGEST);
      struct count *count = clean ? &clean_runs
                            : trial.several ? &several
                                            : &counts[by_1989][trial.target][trial.change];
      draw_records(&trial);
      play(group, &trial, number, count);
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
