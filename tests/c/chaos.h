/* The groups, the present step and the inputs of chaos.c. */
#ifndef CHAOS_H
#define CHAOS_H
#include <string.h>

#include "ftsort.h"
#include "ftsort_store.h"
#include "ftsort_verify.h"
#include "outside.h"

#define MOST_RANKS 16
#define MOST_RECORDS 30000

/* The groups: the algorithm, the store, the copies or shares, whether blocks are dense or have digests, whether the
 * highest rank is a spare, and a feature: redundancy that is released after each call, or a monitor. It has a thread of its
 * own, where MPI allows it, and excludes slow ranks or gives them smaller shares, or it works in the foreground. */
enum feature { PLAIN, RELEASED, EXCLUDING, WEIGHING, FOREGROUND };
static const struct {
  const char *name;
  int32_t algorithm, store, replicas, dense;
  uint32_t checks, spares;
  enum feature feature;
} plans[] = {
    {"default", FTSORT_AUTO, FTSORT_STORE_MEMORY, 0, 0, 0, 0, PLAIN},
    {"hyperquicksort", FTSORT_HYPERQUICKSORT, FTSORT_STORE_MEMORY, -1, 0, 0, 0, PLAIN}, /* N - 1 copies */
    {"dense", FTSORT_SAMPLESORT, FTSORT_STORE_MEMORY, 2, 1, 0, 0, PLAIN},
    {"bitonic", FTSORT_BITONIC, FTSORT_STORE_MEMORY, 1, 0, 0, 0, PLAIN},
    {"parity", FTSORT_AUTO, FTSORT_STORE_PARITY, 2, 0, 0, 0, PLAIN},
    {"spares", FTSORT_AUTO, FTSORT_STORE_MEMORY, 1, 0, 0, 1, PLAIN},
    {"released", FTSORT_AUTO, FTSORT_STORE_MEMORY, 1, 0, 0, 0, RELEASED},
    {"excluding", FTSORT_AUTO, FTSORT_STORE_MEMORY, 1, 0, 0, 0, EXCLUDING},
    {"weighing", FTSORT_AUTO, FTSORT_STORE_MEMORY, 1, 0, 0, 0, WEIGHING},
    {"foreground", FTSORT_AUTO, FTSORT_STORE_RELOAD, 0, 0, 0, 0, FOREGROUND},
    {"quickmerge", FTSORT_QUICKMERGE, FTSORT_STORE_DIRECTORY, 0, 0, 0, 0, PLAIN},
    {"modified", FTSORT_QUICKMERGE_MODIFIED, FTSORT_STORE_DIRECTORY, 0, 0, FTSORT_CHECK_DIGEST, 0, PLAIN},
    {"reload", FTSORT_AUTO, FTSORT_STORE_RELOAD, 0, 0, 0, 0, PLAIN},
    {"reload-bitonic", FTSORT_BITONIC, FTSORT_STORE_RELOAD, 0, 0, 0, 0, PLAIN},
    {"none", FTSORT_AUTO, FTSORT_STORE_NONE, 0, 0, 0, 0, PLAIN},
};
enum { GROUPS = sizeof plans / sizeof plans[0] };

static const ftsort_record u32 = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
static int rank, ranks;
static uint64_t seed;

/* The present step: its kind is the word in the lines, and the callbacks and the checks need the rest. */
static struct step {
  int number, group;
  const char *kind;
  int inputs[MOST_RANKS]; /* the number of the step that decides the input of each rank; 0: the rank has none */
  uint64_t part, total;   /* see chaos.c */
  uint32_t *expected;     /* the records of all inputs, sorted */
  size_t records, handed_out;
  int wrong; /* results that differ from the expected ones */
} step;

static uint64_t drawn_in(int number, uint64_t place) { return mix(mix(seed << 32 | (uint64_t)number) + place); }

static uint64_t drawn(uint64_t place) { return drawn_in(step.number, place); }

static void expect(int condition, const char *text)
{
  if (condition) return;
  step.wrong++;
  fprintf(stderr, "rank %d, step %d, group %s: wrong: %s\n", rank, step.number, plans[step.group].name, text);
}

static void *allocate(size_t bytes)
{
  void *place = malloc(bytes + 1);
  if (place == NULL) abort();
  return place;
}

/* ---- Inputs of sorts -------------------------------------------------------------------------------------- */

/* The arrays of a call with several of them; the only array of other calls is array 0. */
enum { MOST_ARRAYS = 5 };

static size_t count_in(int owner, int array)
{
  const int number = step.inputs[owner];
  const uint64_t bits = drawn_in(number, (uint64_t)(owner + 400 * array));
  if (number == 0 || bits % 7 == 0) return 0;
  return (bits >> 8) % (drawn_in(number, 100) % 3 && array == 0 ? MOST_RECORDS : 300);
}

static size_t count_of(int owner) { return count_in(owner, 0); }

static void fill_in(int owner, int array, uint32_t *keys)
{
  const int number = step.inputs[owner];
  const uint64_t place = drawn_in(number, (uint64_t)(owner + 400 * array)), few = drawn_in(number, 101) % 4 == 0;
  size_t i, count = count_in(owner, array);
  for (i = 0; i < count; i++) keys[i] = (uint32_t)mix(place + i) >> (few ? 29 : 0);
}

static void fill(int owner, uint32_t *keys) { fill_in(owner, 0, keys); }

static uint32_t *input_of(int owner)
{
  uint32_t *keys = (uint32_t *)allocate(count_of(owner) * sizeof *keys);
  fill(owner, keys);
  return keys;
}

/* Sorts by counting, byte by byte: faster than qsort, so that more of the time is left for ftsort. */
static void sort_by_counting(uint32_t *keys, size_t count)
{
  uint32_t *other = (uint32_t *)allocate(count * sizeof *other), *from = keys, *to = other, *swap;
  int shift, k;
  size_t i;
  for (shift = 0; shift < 32; shift += 8) {
    size_t places[257] = {0};
    for (i = 0; i < count; i++) places[(from[i] >> shift & 255) + 1]++;
    for (k = 0; k < 256; k++) places[k + 1] += places[k];
    for (i = 0; i < count; i++) to[places[from[i] >> shift & 255]++] = from[i];
    swap = from;
    from = to;
    to = swap;
  }
  free(other);
}

/* Makes the records of an array of all ranks, rank by rank, and returns their number. */
static size_t all_records(int array, uint32_t **all)
{
  size_t records = 0, room = 0;
  int owner;
  for (owner = 0; owner < ranks; owner++) room += count_in(owner, array);
  *all = (uint32_t *)allocate(room * sizeof **all);
  for (owner = 0; owner < ranks; owner++) {
    fill_in(owner, array, *all + records);
    records += count_in(owner, array);
  }
  return records;
}

static void expect_inputs(void)
{
  step.records = all_records(0, &step.expected);
  sort_by_counting(step.expected, step.records);
}

/* Compares the blocks of a result with the expected records, and counts them. */
static void compare_blocks(const ftsort_result *result, const uint32_t *expected, size_t records)
{
  ftsort_block block;
  size_t i;
  expect(ftsort_result_total(result) == records, "the number of records");
  step.total += records;
  for (i = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++) {
    step.part += block.count;
    expect(block.offset <= records && block.count <= records - block.offset &&
               memcmp(block.data, expected + block.offset, block.count * sizeof *expected) == 0,
           "a block of a sort");
  }
}

#endif
