/* The jobs of records.c: how records are generated, and which result a stable sort of them has. */
#ifndef RECORD_JOBS_H
#define RECORD_JOBS_H
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "ftsort.h"
#include "../../c_examples/measure.h"

#define MAX_RANKS 8

static const size_t widths[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};

/* Records and their key. If the record names no key, because a comparator gets whole records, `kind`, `offset` and
 * `width` say where the comparator finds a number. */
struct job {
  ftsort_record record;
  int32_t kind;
  size_t offset, width;
  size_t count; /* records of a rank, approximately */
  int many;     /* whether there are many different keys, or few */
};

/* The number of records of a rank: different for each rank, and 0 for some. */
static size_t count_of(const struct job *job, int owner)
{
  if (job->count % 3 == 0 && owner % 2 == 1) return 0;
  return job->count + 13 * (size_t)owner;
}

/* The bits of a number of this kind: a special value, such as a limit or a NaN, or any value. */
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

/* Writes record `i` of a rank: the key, and in the bytes around it the rank and the position. */
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
    memcpy(record + job->offset, &bits, job->width); /* requires a little-endian machine */
    return;
  }
  /* Keys with long common prefixes, and with differences in every byte. */
  memset(record + job->offset, 'k', job->width);
  bits = mix(place);
  record[job->offset + bits % job->width] = (unsigned char)("akz"[bits / 32 % 3]);
  if (job->many) record[job->offset + job->width - 1] = (unsigned char)(bits >> 32);
  if (job->many) record[job->offset + (bits >> 40) % job->width] = (unsigned char)(bits >> 48);
}

static const struct job *order_of; /* the job that order_of_places compares for */

static int order_of_numbers(int32_t kind, const unsigned char *a, const unsigned char *b)
{
#define ORDER(T)                          \
  {                                       \
    T x, y;                               \
    memcpy(&x, a, sizeof x);              \
    memcpy(&y, b, sizeof y);              \
    return x < y ? -1 : x > y;            \
  }
  /* The total order of IEEE 754: by sign and magnitude. */
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

/* The order of the result: by key, then by rank and position, which is the order of the records in memory. */
static int order_of_places(const void *a, const void *b)
{
  const unsigned char *one = *(const unsigned char *const *)a, *other = *(const unsigned char *const *)b;
  int order = order_of_keys(order_of, one, other);
  if (order != 0) return order_of->record.descending ? -order : order;
  return one < other ? -1 : one > other;
}

/* The comparator that the library calls. It must get the job, and records that are aligned as in an array. */
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

/* Returns the records of all ranks, rank by rank; `mine` receives the index of the first one of this rank. */
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

/* Whether the blocks of all ranks are the expected records. The answer is the same on all ranks. */
static int is_as_expected(const ftsort_result *result, const unsigned char *expected, size_t total, size_t size)
{
  unsigned long long counts[MAX_RANKS] = {0}, offset = 0;
  ftsort_block block;
  size_t k;
  int fine = ftsort_result_total(result) == total, node;
  for (k = 0; k < ftsort_result_count(result); k++) {
    fine &= ftsort_result_block(result, k, &block) == FTSORT_OK && block.data != NULL && block.node < MAX_RANKS;
    /* The greatest power of two up to 16 that divides the size. */
    fine &= (size_t)block.data % ((size | 16) & (0 - (size | 16))) == 0;
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

#endif
