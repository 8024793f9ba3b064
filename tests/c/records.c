/* Records of every kind, sorted by every algorithm and compared bit for bit with a stable sort of all
 * inputs together, which every rank makes for itself.
 *
 *   records      (under mpirun, 1, 3 or 4 ranks)
 *
 * Prints "records: fine" on rank 0 if all is right. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "ftsort.h"

#define SHOWN 20 /* of what is wrong in sorts: the rest is more of the same */
#define KEY_BYTES 20
#define MAX_RANKS 8

static const size_t widths[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};

/* splitmix64: the same bits for the same place on every rank. */
static uint64_t mix(uint64_t x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* What is sorted, and how. The key is where `record` says; where it says nothing, because a comparator
 * looks at whole records, it is a number of this kind and place. */
struct job {
  ftsort_record record;
  int32_t kind;
  size_t offset, width;
  size_t count; /* of a rank's records, more or less */
  int many;     /* different keys, or few */
};

/* Ranks have different numbers of records, some none. */
static size_t count_of(const struct job *job, int owner)
{
  if (job->count % 3 == 0 && owner % 2 == 1) return 0;
  return job->count + 13 * (size_t)owner;
}

/* The bits of a number of this kind: one of few that are special, or any. */
static uint64_t number(int32_t kind, uint64_t place, int many)
{
  static const uint64_t floats[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
                                    0x00000001, 0x80000001, 0x7f800001, 0x3f800000, 0xbf800000, 0x7f7fffff};
  static const uint64_t doubles[] = {0x0000000000000000, 0x8000000000000000, 0x7ff0000000000000, 0xfff0000000000000,
                                     0x7ff8000000000000, 0xfff8000000000000, 0x0000000000000001, 0x8000000000000001,
                                     0x7ff0000000000001, 0x3ff0000000000000, 0xbff0000000000000, 0x7fefffffffffffff};
  uint64_t bits = mix(place), top = (uint64_t)1 << (8 * widths[kind] - 1);
  const uint64_t integers[] = {0, 1, 2, ~(uint64_t)0, ~(uint64_t)1, top, top - 1, top + 1, top >> 1, 0x100, 0xff, 0x7f};
  if (many && bits % 4) return mix(bits);
  if (kind == FTSORT_KEY_F32) return floats[bits / 4 % 12];
  if (kind == FTSORT_KEY_F64) return doubles[bits / 4 % 12];
  return integers[bits / 4 % 12];
}

/* Record `i` of a rank: the key, and in the bytes round it the rank and the position. */
static void fill(const struct job *job, int owner, size_t i, unsigned char *record)
{
  uint64_t place = (uint64_t)owner << 40 | i, payload = (uint64_t)i * MAX_RANKS + (uint64_t)owner, bits;
  size_t at, k;
  for (at = 0, k = 0; at < job->record.record_bytes; at++) {
    if (at >= job->offset && at < job->offset + job->width) continue;
    record[at] = (unsigned char)(k < 4 ? payload >> 8 * k : mix(place + k));
    k++;
  }
  if (job->kind != FTSORT_KEY_BYTES) {
    bits = number(job->kind, place ^ job->count << 20, job->many);
    memcpy(record + job->offset, &bits, job->width); /* a little-endian machine */
    return;
  }
  /* Long common prefixes, and differences in every byte. */
  memset(record + job->offset, 'k', job->width);
  bits = mix(place);
  record[job->offset + bits % job->width] = (unsigned char)("akz"[bits / 32 % 3]);
  if (job->many) record[job->offset + job->width - 1] = (unsigned char)(bits >> 32);
  if (job->many) record[job->offset + (bits >> 40) % job->width] = (unsigned char)(bits >> 48);
}

static const struct job *order_of; /* for qsort */

static int order_of_numbers(int32_t kind, const unsigned char *a, const unsigned char *b)
{
#define ORDER(T)                          \
  {                                       \
    T x, y;                               \
    memcpy(&x, a, sizeof x);              \
    memcpy(&y, b, sizeof y);              \
    return x < y ? -1 : x > y;            \
  }
  /* IEEE 754's total order: as sign and magnitude. */
#define TOTAL_ORDER(I, MAGNITUDE)         \
  {                                       \
    I x, y;                               \
    memcpy(&x, a, sizeof x);              \
    memcpy(&y, b, sizeof y);              \
    if (x < 0) x = -(x & MAGNITUDE) - 1;  \
    if (y < 0) y = -(y & MAGNITUDE) - 1;  \
    return x < y ? -1 : x > y;            \
  }
  switch (kind) {
  case FTSORT_KEY_I8: ORDER(int8_t)
  case FTSORT_KEY_U8: ORDER(uint8_t)
  case FTSORT_KEY_I16: ORDER(int16_t)
  case FTSORT_KEY_U16: ORDER(uint16_t)
  case FTSORT_KEY_I32: ORDER(int32_t)
  case FTSORT_KEY_U32: ORDER(uint32_t)
  case FTSORT_KEY_I64: ORDER(int64_t)
  case FTSORT_KEY_U64: ORDER(uint64_t)
  case FTSORT_KEY_F32: TOTAL_ORDER(int32_t, INT32_MAX)
  default: TOTAL_ORDER(int64_t, INT64_MAX)
  }
}

static int order_of_keys(const struct job *job, const unsigned char *a, const unsigned char *b)
{
  if (job->kind == FTSORT_KEY_BYTES) return memcmp(a + job->offset, b + job->offset, job->width);
  return order_of_numbers(job->kind, a + job->offset, b + job->offset);
}

/* The order in which the result must be: by key, then by rank and position, which is how the records lie. */
static int order_of_places(const void *a, const void *b)
{
  const unsigned char *one = *(const unsigned char *const *)a, *other = *(const unsigned char *const *)b;
  int order = order_of_keys(order_of, one, other);
  if (order != 0) return order_of->record.descending ? -order : order;
  return one < other ? -1 : one > other;
}

/* The comparator under test. It is given the job, and records aligned as in an array. */
static volatile int misaligned;

static int compare(void *user, const void *a, const void *b)
{
  const struct job *job = (const struct job *)user;
  size_t alignment = 16;
  int order;
  while (job->record.record_bytes % alignment) alignment /= 2;
  if ((uintptr_t)a % alignment || (uintptr_t)b % alignment) misaligned = 1;
  order = order_of_keys(job, (const unsigned char *)a, (const unsigned char *)b);
  return order < 0 ? INT_MIN : order > 0 ? INT_MAX : 0;
}

/* All ranks' records, rank by rank; `mine` is where this rank's are. */
static unsigned char *make_all(const struct job *job, size_t *total, size_t *mine)
{
  size_t size = job->record.record_bytes, i;
  unsigned char *all = (unsigned char *)malloc(1);
  int owner;
  *total = 0;
  for (owner = 0; owner < ranks; owner++) {
    size_t count = count_of(job, owner);
    if (owner == rank) *mine = *total;
    all = (unsigned char *)realloc(all, (*total + count) * size + 1);
    for (i = 0; i < count; i++) fill(job, owner, i, all + (*total + i) * size);
    *total += count;
  }
  return all;
}

static unsigned char *sorted_stably(const struct job *job, const unsigned char *all, size_t total)
{
  size_t size = job->record.record_bytes, i;
  unsigned char *sorted = (unsigned char *)malloc(total * size + 1);
  const unsigned char **places = (const unsigned char **)malloc(total * sizeof *places + 1);
  for (i = 0; i < total; i++) places[i] = all + i * size;
  order_of = job;
  qsort(places, total, sizeof *places, order_of_places);
  for (i = 0; i < total; i++) memcpy(sorted + i * size, places[i], size);
  free(places);
  return sorted;
}

/* Is the whole result, on all ranks, what is expected? One answer for all. */
static int is_as_expected(const ftsort_result *result, const unsigned char *expected, size_t total, size_t size)
{
  unsigned long long counts[MAX_RANKS] = {0}, offset = 0;
  ftsort_block block;
  size_t k;
  int fine = ftsort_result_total(result) == total, node;
  for (k = 0; k < ftsort_result_count(result); k++) {
    fine &= ftsort_result_block(result, k, &block) == FTSORT_OK && block.data != NULL && block.node < MAX_RANKS;
    fine &= block.offset + block.count <= total;
    if (!fine) break;
    fine = memcmp(block.data, expected + block.offset * size, block.count * size) == 0;
    counts[block.node] += block.count;
  }
  MPI_Allreduce(MPI_IN_PLACE, counts, MAX_RANKS, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  for (k = 0; fine && k < ftsort_result_count(result); k++) {
    ftsort_result_block(result, k, &block);
    for (node = 0, offset = 0; node < block.node; node++) offset += counts[node];
    fine &= block.offset == offset;
  }
  for (node = 0, offset = 0; node < MAX_RANKS; node++) offset += counts[node];
  fine &= offset == total;
  MPI_Allreduce(MPI_IN_PLACE, &fine, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return fine;
}

/* Groups of all algorithms, with two stores, and a dense one. */
enum { GROUPS = 13 };
static const struct { int32_t algorithm, pivot; const char *name; } algorithms[] = {
  {FTSORT_AUTO, FTSORT_PIVOT_SAMPLED, "auto"},
  {FTSORT_HYPERQUICKSORT, FTSORT_PIVOT_SAMPLED, "hyperquicksort"},
  {FTSORT_QUICKMERGE, FTSORT_PIVOT_SAMPLED, "quickmerge"},
  {FTSORT_QUICKMERGE_MODIFIED, FTSORT_PIVOT_PAPER, "quickmerge_modified"},
  {FTSORT_BITONIC, FTSORT_PIVOT_SAMPLED, "bitonic"},
  {FTSORT_SAMPLESORT, FTSORT_PIVOT_SAMPLED, "samplesort"},
};
static ftsort *groups[GROUPS];

static ftsort *make_group(int32_t algorithm, int32_t pivot, int32_t store, int32_t dense)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  config.algorithm = algorithm;
  config.pivot = pivot;
  config.store = store;
  config.dense = dense;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  return group;
}

static void make_groups(void)
{
  int i;
  for (i = 0; i < GROUPS; i++)
    groups[i] = make_group(algorithms[i % 6].algorithm, algorithms[i % 6].pivot,
                           i / 6 == 1 ? FTSORT_STORE_NONE : FTSORT_STORE_MEMORY, i == 12);
}

static int sorts;

/* The same records by every algorithm. */
static void sort_by_all(const struct job *job)
{
  size_t total, mine = 0, size = job->record.record_bytes;
  unsigned char *all = make_all(job, &total, &mine), *expected = sorted_stably(job, all, total);
  ftsort_result *result;
  ftsort_status status;
  int i, fine;
  for (i = 0; i < GROUPS; i++) {
    sorts++;
    result = NULL;
    status = ftsort_run(groups[i], &job->record, all + mine * size, count_of(job, rank), &result);
    fine = is_as_expected(result, expected, total, size);
    ftsort_result_free(result);
    if (status == FTSORT_OK && fine) continue;
    if (failures++ < SHOWN)
      fprintf(stderr, "rank %d: group %d (%s), key %d (%d) at %zu of %zu bytes, %zu each, %s keys%s: %d %s\n", rank, i,
              algorithms[i % 6].name, (int)job->record.key, (int)job->kind, job->offset, size, job->count,
              job->many ? "many" : "few", job->record.descending ? ", descending" : "", (int)status,
              status == FTSORT_OK ? "wrong order" : ftsort_last_error(groups[i]));
  }
  free(all);
  free(expected);
}

/* Both directions, few and many keys, with counts that change from case to case. */
static void sort_job(struct job job)
{
  static const size_t counts[] = {37, 600, 151, 1, 1000};
  static int turn;
  for (job.many = 0; job.many < 2; job.many++)
    for (job.record.descending = 0; job.record.descending < 2; job.record.descending++) {
      job.count = counts[turn++ % 5];
      job.record.stable = turn % 3 == 0;
      job.record.user = job.record.compare ? &job : NULL;
      sort_by_all(&job);
    }
}

static struct job job_of(int32_t kind, size_t size, size_t offset, size_t width)
{
  const ftsort_record plain = FTSORT_RECORD_PLAIN(char, 0);
  struct job job;
  memset(&job, 0, sizeof job);
  job.record = plain;
  job.record.record_bytes = size;
  job.record.key_offset = job.offset = offset;
  job.record.key = job.kind = kind;
  job.width = width;
  return job;
}

static struct job by_comparator(struct job job)
{
  job.record.key = FTSORT_KEY_COMPARE;
  job.record.key_offset = job.record.key_bytes = 0;
  job.record.compare = compare;
  return job;
}

static void numbers(void)
{
  static const size_t sizes[] = {5, 9, 11, 16, 24, 100};
  int32_t kind;
  size_t i;
  for (kind = FTSORT_KEY_I8; kind <= FTSORT_KEY_F64; kind++) {
    size_t width = widths[kind], odd;
    sort_job(job_of(kind, width, 0, width));
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      /* The last offset at which the key fits, made odd; or the first one. */
      if (sizes[i] < width) continue;
      odd = (sizes[i] - width) | 1;
      if (odd > sizes[i] - width) odd = odd >= 2 ? odd - 2 : 0;
      sort_job(job_of(kind, sizes[i], (size_t)kind % 2 || odd == 0 ? odd : 1, width));
    }
  }
}

static void bytes(void)
{
  static const size_t keys[] = {1, 7, 8, 10, 20};
  size_t i;
  for (i = 0; i < 5; i++) {
    struct job job = job_of(FTSORT_KEY_BYTES, keys[i], 0, keys[i]);
    job.record.key_bytes = keys[i];
    sort_job(job);
    job = job_of(FTSORT_KEY_BYTES, keys[i] + 9, 3, keys[i]);
    job.record.key_bytes = keys[i];
    sort_job(job);
  }
}

static void comparators(void)
{
  sort_job(by_comparator(job_of(FTSORT_KEY_I32, 4, 0, 4)));
  sort_job(by_comparator(job_of(FTSORT_KEY_U16, 5, 1, 2)));
  sort_job(by_comparator(job_of(FTSORT_KEY_F64, 24, 7, 8)));
  sort_job(by_comparator(job_of(FTSORT_KEY_BYTES, 32, 16, 10)));
  EXPECT(!misaligned);
}

/* Enough for digits, buckets and several messages at once. */
static void larger(void)
{
  struct job job = job_of(FTSORT_KEY_F64, 24, 11, 8);
  job.count = 20000;
  job.record.descending = 1;
  sort_by_all(&job);
  job = job_of(FTSORT_KEY_U32, 4, 0, 4);
  job.count = 40000;
  job.many = 1;
  sort_by_all(&job);
}

/* The total order of floats, written down by hand. Each rank brings all of it, backwards. */
static void floats_by_hand(void)
{
  static const uint32_t single[] = {0xffffffff, 0xffc00000, 0xff800001, 0xff800000, 0xff7fffff, 0xbf800000, 0x80800000,
                                    0x80000001, 0x80000000, 0x00000000, 0x00000001, 0x00800000, 0x3f800000, 0x7f7fffff,
                                    0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
  enum { COUNT = sizeof single / sizeof *single };
  const ftsort_record f32 = FTSORT_RECORD_PLAIN(float, FTSORT_KEY_F32), f64 = FTSORT_RECORD_PLAIN(double, FTSORT_KEY_F64);
  uint32_t input[COUNT], expected[COUNT * MAX_RANKS];
  uint64_t doubles[COUNT], wide[COUNT * MAX_RANKS];
  ftsort_result *result = NULL;
  int i, k;
  for (i = 0; i < COUNT; i++) {
    uint32_t bits = single[i];
    /* The same signs, exponents and fractions, each at its place in a double. */
    uint64_t exponent = (bits >> 23 & 255) == 255 ? 2047 : (bits >> 23 & 255);
    uint64_t wider = (uint64_t)(bits >> 31) << 63 | exponent << 52 | (uint64_t)(bits & 0x7fffff) << 29;
    input[COUNT - 1 - i] = bits;
    doubles[COUNT - 1 - i] = wider;
    for (k = 0; k < ranks; k++) expected[i * ranks + k] = bits, wide[i * ranks + k] = wider;
  }
  for (i = 0; i < GROUPS; i++) {
    EXPECT(ftsort_run(groups[i], &f32, input, COUNT, &result) == FTSORT_OK);
    EXPECT(is_as_expected(result, (const unsigned char *)expected, (size_t)(COUNT * ranks), 4));
    ftsort_result_free(result);
    EXPECT(ftsort_run(groups[i], &f64, doubles, COUNT, &result) == FTSORT_OK);
    EXPECT(is_as_expected(result, (const unsigned char *)wide, (size_t)(COUNT * ranks), 8));
    ftsort_result_free(result);
  }
}

/* A pair of a number and whose it is. */
struct pair {
  int32_t number, who;
};

static int order_of_pairs(const void *a, const void *b)
{
  const struct pair *one = (const struct pair *)a, *other = (const struct pair *)b;
  if (one->number != other->number) return one->number < other->number ? -1 : 1;
  return one->who < other->who ? -1 : one->who > other->who;
}

/* Up and down again over all ranks, in equal shares; equal numbers may come in any order. */
static void bitonic_merge(void)
{
  enum { COUNT = 500 };
  ftsort_record record = FTSORT_RECORD_MEMBER(struct pair, number, FTSORT_KEY_I32);
  ftsort *group = make_group(FTSORT_BITONIC_MERGE, FTSORT_PIVOT_SAMPLED, FTSORT_STORE_MEMORY, 1);
  struct pair input[COUNT], all[COUNT * MAX_RANKS], *found;
  ftsort_result *result = NULL;
  ftsort_block block;
  int total = COUNT * ranks, i, turn, start = rank * COUNT, fine = 1;
  record.stable = 1;
  EXPECT(ftsort_run(group, &record, input, COUNT, &result) == FTSORT_ERR_ARGUMENT && result == NULL);
  EXPECT(strstr(ftsort_last_error(group), "record.stable") != NULL);
  record.stable = 0;
  for (turn = 0; turn < 2; turn++) {
    for (i = 0; i < total; i++) {
      /* Rotated, so that it begins on its way. */
      int place = (i + total / 3) % total;
      all[i].number = (place < total / 2 ? place : total - place) / 3;
      all[i].who = i;
    }
    memcpy(input, all + start, sizeof input);
    record.descending = turn;
    if (ranks == 3) {
      EXPECT(ftsort_run(group, &record, input, COUNT, &result) == FTSORT_ERR_ARGUMENT);
      EXPECT(strstr(ftsort_last_error(group), "2^d ranks") != NULL);
      continue;
    }
    EXPECT(ftsort_run(group, &record, input, COUNT, &result) == FTSORT_OK);
    qsort(all, (size_t)total, sizeof *all, order_of_pairs);
    EXPECT(ftsort_result_count(result) == 1 && ftsort_result_block(result, 0, &block) == FTSORT_OK);
    EXPECT(block.count == COUNT && block.offset == (uint64_t)start);
    found = (struct pair *)malloc((size_t)total * sizeof *found);
    MPI_Allgather(block.data, COUNT * (int)sizeof *found, MPI_BYTE, found, COUNT * (int)sizeof *found, MPI_BYTE,
                  MPI_COMM_WORLD);
    for (i = 1; i < total; i++)
      fine &= turn ? found[i - 1].number >= found[i].number : found[i - 1].number <= found[i].number;
    EXPECT(fine);
    qsort(found, (size_t)total, sizeof *found, order_of_pairs);
    EXPECT(memcmp(found, all, (size_t)total * sizeof *found) == 0);
    free(found);
    ftsort_result_free(result);
    /* Up, down and up again and down: no bitonic sequence. */
    for (i = 0; i < COUNT; i++) input[i].number = i % 250;
    EXPECT(ftsort_run(group, &record, input, COUNT, &result) == FTSORT_ERR_ARGUMENT);
    EXPECT(strstr(ftsort_last_error(group), "bitonic") != NULL);
  }
  ftsort_free(group);
}

static void refused(ftsort_record record, const char *words)
{
  static const char input[64];
  ftsort_result *result = (ftsort_result *)&failures;
  EXPECT(ftsort_run(groups[0], &record, input, 1, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(result == NULL);
  EXPECT(strstr(ftsort_last_error(groups[0]), words) != NULL);
  if (!strstr(ftsort_last_error(groups[0]), words))
    fprintf(stderr, "  no \"%s\" in \"%s\"\n", words, ftsort_last_error(groups[0]));
}

static void refusals(void)
{
  int i;
  const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  const ftsort_record other = FTSORT_RECORD_COMPARE(int32_t, compare, NULL);
  ftsort_record record = other;
  record.compare = NULL;
  refused(record, "record.compare is NULL");
  record = other;
  record.key_offset = 1;
  refused(record, "record.key_offset is 1");
  record = other;
  record.key_bytes = 4;
  refused(record, "record.key_bytes is 4");
  record = i32;
  record.compare = compare;
  refused(record, "record.compare is not NULL");
  record = i32;
  record.record_bytes = 9;
  record.key_offset = 6;
  refused(record, "record.key_offset is 6");
  record.key_offset = SIZE_MAX;
  refused(record, "record.key_offset is ");
  record = i32;
  record.key_bytes = 3;
  refused(record, "record.key_bytes is 3");
  record.key_bytes = SIZE_MAX;
  refused(record, "record.key_bytes is ");
  record = i32;
  record.record_bytes = 0;
  refused(record, "record.record_bytes is 0");
  record = i32;
  record.key = FTSORT_KEY_BYTES;
  refused(record, "record.key_bytes is 0");
  record.key_bytes = 5;
  refused(record, "record.record_bytes is 4");
  record.key_bytes = 4;
  record.key_offset = 1;
  refused(record, "record.key_offset is 1");
  record = i32;
  record.key = 0;
  refused(record, "record.key is 0");
  record.key = 13;
  refused(record, "record.key is 13");
  record = i32;
  record.struct_size = 4096;
  refused(record, "record.struct_size is 4096");
  record.struct_size = 0;
  refused(record, "record.struct_size is 0");
  /* Alike, but for the direction on one rank, or on all others: also where the last sort was in one of both. */
  sort_job(job_of(FTSORT_KEY_I32, 4, 0, 4));
  for (i = 0; i < 4 && ranks > 1; i++) {
    struct job job = job_of(FTSORT_KEY_I32, 4, 0, 4);
    record = i32;
    record.descending = (rank == 1) == (i % 2);
    refused(record, "not the same");
    record.descending = !record.descending;
    refused(record, "not the same");
    job.record.descending = i / 2;
    sort_job(job); /* the group stays usable */
  }
}

static void is_record_of(MPI_Datatype type, int32_t key, size_t size)
{
  ftsort_record record;
  memset(&record, 0xff, sizeof record);
  EXPECT(ftsort_record_of_type(type, &record) == FTSORT_OK);
  EXPECT(record.struct_size == sizeof record && record.record_bytes == size && record.key == key);
  EXPECT(record.key_offset == 0 && (record.key_bytes == 0 || record.key_bytes == widths[key]));
  EXPECT(!record.descending && !record.stable && record.compare == NULL && record.user == NULL);
}

static void is_no_record(MPI_Datatype type, const char *words)
{
  ftsort_record record;
  EXPECT(ftsort_record_of_type(type, &record) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(NULL), words) != NULL);
}

struct double_int {
  double value;
  int index;
};

static void datatypes(void)
{
  struct job job;
  MPI_Datatype type;
  is_record_of(MPI_INT, FTSORT_KEY_I32, 4);
  is_record_of(MPI_DOUBLE, FTSORT_KEY_F64, 8);
  is_record_of(MPI_FLOAT, FTSORT_KEY_F32, 4);
  is_record_of(MPI_UNSIGNED_CHAR, FTSORT_KEY_U8, 1);
  is_record_of(MPI_SIGNED_CHAR, FTSORT_KEY_I8, 1);
  is_record_of(MPI_SHORT, FTSORT_KEY_I16, 2);
  is_record_of(MPI_UNSIGNED_SHORT, FTSORT_KEY_U16, 2);
  is_record_of(MPI_UNSIGNED, FTSORT_KEY_U32, 4);
  is_record_of(MPI_LONG, sizeof(long) == 8 ? FTSORT_KEY_I64 : FTSORT_KEY_I32, sizeof(long));
  is_record_of(MPI_UINT64_T, FTSORT_KEY_U64, 8);
  is_record_of(MPI_DOUBLE_INT, FTSORT_KEY_F64, sizeof(struct double_int));
  is_record_of(MPI_2INT, FTSORT_KEY_I32, 2 * sizeof(int));
  is_record_of(MPI_SHORT_INT, FTSORT_KEY_I16, 2 * sizeof(int));
  /* Pairs are sorted by their numbers, and keep whatever else is in them. */
  job = job_of(FTSORT_KEY_F64, sizeof(struct double_int), 0, 8);
  EXPECT(ftsort_record_of_type(MPI_DOUBLE_INT, &job.record) == FTSORT_OK);
  sort_job(job);
  is_no_record(MPI_C_DOUBLE_COMPLEX, "COMPLEX");
  is_no_record(MPI_LONG_DOUBLE, "MPI_LONG_DOUBLE");
  is_no_record(MPI_LONG_DOUBLE_INT, "MPI_LONG_DOUBLE_INT");
  is_no_record(MPI_PACKED, "MPI_PACKED");
  is_no_record(MPI_DATATYPE_NULL, "MPI_DATATYPE_NULL");
  /* Not predefined, whatever it is called. */
  MPI_Type_contiguous(2, MPI_INT, &type);
  MPI_Type_commit(&type);
  is_no_record(type, "not one of MPI's predefined types");
  MPI_Type_set_name(type, "MPI_INT");
  is_no_record(type, "not one of MPI's predefined types");
  MPI_Type_free(&type);
  EXPECT(ftsort_record_of_type(MPI_INT, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(NULL), "out is NULL") != NULL);
}

int main(int argc, char **argv)
{
  int all = 0, i;
  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  make_groups();
  numbers();
  bytes();
  comparators();
  larger();
  floats_by_hand();
  bitonic_merge();
  refusals();
  datatypes();
  for (i = 0; i < GROUPS; i++) ftsort_free(groups[i]);
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("records: %s after %d sorts\n", all == 0 ? "fine" : "NOT as documented", sorts);
  MPI_Finalize();
  return all != 0;
}
