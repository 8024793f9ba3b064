/* Tests sorts of every kind of record by every algorithm. The results are compared, bit for bit, with a stable sort
 * of all inputs, which every rank makes for itself.
 *
 *   records [few]      (under mpirun, 1, 3 or 4 ranks; few: with the memory store only)
 *
 * Prints "records: fine" on rank 0 if all results are right. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "ftsort.h"
#include "record_jobs.h"

#define SHOWN 20 /* the number of wrong sorts that are printed */

/* Groups for all algorithms with the memory store, one with dense results, and then all algorithms without a store. */
enum { ALGORITHMS = 7, WITH_STORE = ALGORITHMS + 1, GROUPS = WITH_STORE + ALGORITHMS };
static const struct { int32_t algorithm, pivot; const char *name; } algorithms[] = {
  {FTSORT_AUTO, FTSORT_PIVOT_SAMPLED, "auto"},
  {FTSORT_HYPERQUICKSORT, FTSORT_PIVOT_SAMPLED, "hyperquicksort"},
  {FTSORT_QUICKMERGE, FTSORT_PIVOT_SAMPLED, "quickmerge"},
  {FTSORT_QUICKMERGE_MODIFIED, FTSORT_PIVOT_PAPER, "quickmerge_modified"},
  {FTSORT_BITONIC, FTSORT_PIVOT_SAMPLED, "bitonic"},
  {FTSORT_SAMPLESORT, FTSORT_PIVOT_SAMPLED, "samplesort"},
  {FTSORT_SAMPLESORT_2, FTSORT_PIVOT_SAMPLED, "samplesort_2"},
};
static ftsort *groups[GROUPS];
static int group_count = GROUPS;

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

static int algorithm_of(int i) { return i < WITH_STORE ? i % ALGORITHMS : i - WITH_STORE; }

static void make_groups(void)
{
  int i;
  for (i = 0; i < group_count; i++)
    groups[i] = make_group(algorithms[algorithm_of(i)].algorithm, algorithms[algorithm_of(i)].pivot,
                           i < WITH_STORE ? FTSORT_STORE_MEMORY : FTSORT_STORE_NONE, i == ALGORITHMS);
}

static int sorts;

/* Sorts the same records by every algorithm. */
static void sort_by_all(const struct job *job)
{
  size_t total, mine = 0, size = job->record.record_bytes;
  unsigned char *all = make_all(job, &total, &mine), *expected = sorted_stably(job, all, total);
  ftsort_result *result;
  ftsort_status status;
  int i, fine;
  for (i = 0; i < group_count; i++) {
    sorts++;
    result = NULL;
    status = ftsort_run(groups[i], &job->record, all + mine * size, count_of(job, rank), &result);
    fine = is_as_expected(result, expected, total, size);
    ftsort_result_free(result);
    if (status == FTSORT_OK && fine) continue;
    if (failures++ < SHOWN)
      fprintf(stderr, "rank %d: group %d (%s), key %d (%d) at %zu of %zu bytes, %zu each, %s keys%s: %d %s\n", rank, i,
              algorithms[algorithm_of(i)].name, (int)job->record.key, (int)job->kind, job->offset, size, job->count,
              job->many ? "many" : "few", job->record.descending ? ", descending" : "", (int)status,
              status == FTSORT_OK ? "wrong order" : ftsort_last_error(groups[i]));
  }
  free(all);
  free(expected);
}

/* Sorts in both directions, with few and many keys, and with a count that changes from case to case. */
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
      /* The last odd offset at which the key fits, or the first one. */
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

/* Enough records for radix digits, buckets and several messages at once. */
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

/* The total order of floating-point numbers, written out. Each rank brings all of them, in reverse. */
static void special_floats(void)
{
  static const uint32_t single[] = {0xffffffff, 0xffc00000, 0xff800001, 0xff800000, 0xff7fffff, 0xbf800000, 0x80800000,
                                    0x80000001, 0x80000000, 0x00000000, 0x00000001, 0x00800000, 0x3f800000, 0x7f7fffff,
                                    0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
  enum { COUNT = sizeof single / sizeof *single };
  const ftsort_record f32 = FTSORT_RECORD_PLAIN(float, FTSORT_KEY_F32);
  const ftsort_record f64 = FTSORT_RECORD_PLAIN(double, FTSORT_KEY_F64);
  uint32_t input[COUNT], expected[COUNT * MAX_RANKS];
  uint64_t doubles[COUNT], wide[COUNT * MAX_RANKS];
  ftsort_result *result = NULL;
  int i, k;
  for (i = 0; i < COUNT; i++) {
    uint32_t bits = single[i];
    /* The double with the same sign, exponent and fraction. */
    uint64_t exponent = (bits >> 23 & 255) == 255 ? 2047 : (bits >> 23 & 255);
    uint64_t wider = (uint64_t)(bits >> 31) << 63 | exponent << 52 | (uint64_t)(bits & 0x7fffff) << 29;
    input[COUNT - 1 - i] = bits;
    doubles[COUNT - 1 - i] = wider;
    for (k = 0; k < ranks; k++) expected[i * ranks + k] = bits, wide[i * ranks + k] = wider;
  }
  for (i = 0; i < group_count; i++) {
    EXPECT(ftsort_run(groups[i], &f32, input, COUNT, &result) == FTSORT_OK);
    EXPECT(is_as_expected(result, (const unsigned char *)expected, (size_t)(COUNT * ranks), 4));
    ftsort_result_free(result);
    EXPECT(ftsort_run(groups[i], &f64, doubles, COUNT, &result) == FTSORT_OK);
    EXPECT(is_as_expected(result, (const unsigned char *)wide, (size_t)(COUNT * ranks), 8));
    ftsort_result_free(result);
  }
}

/* A number, and its place in the input. */
struct pair {
  int32_t number, place;
};

static int order_of_pairs(const void *a, const void *b)
{
  const struct pair *one = (const struct pair *)a, *other = (const struct pair *)b;
  if (one->number != other->number) return one->number < other->number ? -1 : 1;
  return one->place < other->place ? -1 : one->place > other->place;
}

/* A bitonic input in equal shares. Equal numbers may be in any order. */
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
      /* Rotated, so that the input begins in the middle of the ascending part. */
      int step = (i + total / 3) % total;
      all[i].number = (step < total / 2 ? step : total - step) / 3;
      all[i].place = i;
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
    /* An input with several maxima is not bitonic. */
    for (i = 0; i < COUNT; i++) input[i].number = i % 250;
    EXPECT(ftsort_run(group, &record, input, COUNT, &result) == FTSORT_ERR_ARGUMENT);
    EXPECT(strstr(ftsort_last_error(group), "bitonic") != NULL);
  }
  ftsort_free(group);
}

/* No order at all. */
static int contradicts(void *user, const void *a, const void *b)
{
  uint32_t one, other;
  (void)user;
  memcpy(&one, a, sizeof one);
  memcpy(&other, b, sizeof other);
  return one * 2654435761u % 1009 * (other * 2654435761u % 1009) % 7 < 3 ? 1 : -1;
}

/* Such a comparator causes an error or a wrong order, the same status on all ranks, and no output of the library. */
static void contradictions(void)
{
  static const ftsort_record record = FTSORT_RECORD_COMPARE(uint32_t, contradicts, NULL);
  enum { COUNT = 5000 };
  static const size_t counts[] = {40, COUNT};
  static uint32_t input[COUNT];
  int group, found = 0;
  size_t i, size;
  for (i = 0; i < COUNT; i++) input[i] = (uint32_t)(i * 40503u + (size_t)rank * 977);
  for (group = 0; group < WITH_STORE; group++) {
    for (size = 0; size < sizeof counts / sizeof *counts; size++) {
      ftsort_result *result = (ftsort_result *)&failures;
      int status = ftsort_run(groups[group], &record, input, counts[size], &result), lowest, highest;
      EXPECT(status == FTSORT_OK || status == FTSORT_ERR_CALLBACK);
      EXPECT((result != NULL) == (status == FTSORT_OK));
      found += status == FTSORT_ERR_CALLBACK;
      MPI_Allreduce(&status, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
      MPI_Allreduce(&status, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
      EXPECT(lowest == highest);
      ftsort_result_free(result);
    }
  }
  EXPECT(found > 0);
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

static void refuse_lists(void)
{
  const ftsort_key_part wrong[2] = {{0, 0, FTSORT_KEY_I32, 0}, {2, 0, FTSORT_KEY_I32, 0}};
  const ftsort_record list = FTSORT_RECORD_LIST(int32_t, wrong);
  ftsort_record record = list;
  refused(record, "record.parts[1].offset is 2, but 4 bytes");
  record.part_count = 0;
  refused(record, "record.part_count is 0");
  record.part_count = SIZE_MAX;
  refused(record, "record.part_count is ");
  record.part_count = 2;
  record.parts = NULL;
  refused(record, "record.parts is NULL, but record.part_count is 2");
  record = list;
  record.key = FTSORT_KEY_I32;
  refused(record, "record.part_count is 2, but record.key is 5");
  record = list;
  record.part_count = 1; /* the first part is valid */
  record.key_offset = 1;
  refused(record, "record.key_offset is 1");
  record = list;
  record.struct_size = offsetof(ftsort_record, parts);
  refused(record, "record.part_count is 0");
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
  record.key = 17;
  refused(record, "record.key is 17");
  record.key = FTSORT_KEY_TEXT32;
  record.key_bytes = 3;
  refused(record, "record.key_bytes is 3");
  refuse_lists();
  record = i32;
  record.struct_size = 4096;
  refused(record, "record.struct_size is 4096");
  record.struct_size = 0;
  refused(record, "record.struct_size is 0");
  /* The same record, except for the direction on one rank or on all others, after a sort in either direction. */
  sort_job(job_of(FTSORT_KEY_I32, 4, 0, 4));
  for (i = 0; i < 4 && ranks > 1; i++) {
    struct job job = job_of(FTSORT_KEY_I32, 4, 0, 4);
    record = i32;
    record.descending = (rank == 1) == (i % 2);
    refused(record, "not the same");
    record.descending = !record.descending;
    refused(record, "not the same");
    job.record.descending = i / 2;
    sort_job(job); /* the group can still be used */
  }
}

static void expect_record(MPI_Datatype type, int32_t key, size_t size)
{
  ftsort_record record;
  memset(&record, 0xff, sizeof record);
  EXPECT(ftsort_record_of_type(type, &record) == FTSORT_OK);
  EXPECT(record.struct_size == sizeof record && record.record_bytes == size && record.key == key);
  EXPECT(record.key_offset == 0 && (record.key_bytes == 0 || record.key_bytes == widths[key]));
  EXPECT(!record.descending && !record.stable && record.compare == NULL && record.user == NULL);
  EXPECT(record.parts == NULL && record.part_count == 0);
}

static void expect_no_record(MPI_Datatype type, const char *words)
{
  ftsort_record record;
  EXPECT(ftsort_record_of_type(type, &record) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(NULL), words) != NULL);
}

struct double_int {
  double value;
  int index;
};

/* A number behind 8 bytes of a struct, which is behind 8 bytes of another one; and bytes before the first one. */
static void nested_datatypes(void)
{
  const int one = 1;
  const MPI_Aint place = 8;
  MPI_Datatype number = MPI_DOUBLE, inner, outer, type;
  ftsort_record record;
  MPI_Type_create_struct(1, &one, &place, &number, &inner);
  MPI_Type_create_struct(1, &one, &place, &inner, &outer);
  MPI_Type_create_resized(outer, 0, 24, &type);
  EXPECT(ftsort_record_of_type(type, &record) == FTSORT_OK);
  EXPECT(record.record_bytes == 24 && record.key_offset == 16 && record.key == FTSORT_KEY_F64);
  MPI_Type_free(&type);
  MPI_Type_free(&outer);
  MPI_Type_free(&inner);
  MPI_Type_create_resized(MPI_INT, -4, 8, &type);
  expect_no_record(type, "lower bound -4");
  MPI_Type_free(&type);
}

static void datatypes(void)
{
  struct job job;
  MPI_Datatype type, inner;
  int bytes;
  expect_record(MPI_INT, FTSORT_KEY_I32, 4);
  expect_record(MPI_DOUBLE, FTSORT_KEY_F64, 8);
  expect_record(MPI_FLOAT, FTSORT_KEY_F32, 4);
  expect_record(MPI_UNSIGNED_CHAR, FTSORT_KEY_U8, 1);
  expect_record(MPI_SIGNED_CHAR, FTSORT_KEY_I8, 1);
  expect_record(MPI_SHORT, FTSORT_KEY_I16, 2);
  expect_record(MPI_UNSIGNED_SHORT, FTSORT_KEY_U16, 2);
  expect_record(MPI_UNSIGNED, FTSORT_KEY_U32, 4);
  expect_record(MPI_LONG, sizeof(long) == 8 ? FTSORT_KEY_I64 : FTSORT_KEY_I32, sizeof(long));
  expect_record(MPI_UINT64_T, FTSORT_KEY_U64, 8);
  expect_record(MPI_DOUBLE_INT, FTSORT_KEY_F64, sizeof(struct double_int));
  expect_record(MPI_2INT, FTSORT_KEY_I32, 2 * sizeof(int));
  MPI_Type_size(MPI_2DOUBLE_PRECISION, &bytes);
  if (bytes == 2 * (int)sizeof(double)) expect_record(MPI_2DOUBLE_PRECISION, FTSORT_KEY_F64, 2 * sizeof(double));
  expect_record(MPI_SHORT_INT, FTSORT_KEY_I16, 2 * sizeof(int));
  /* Pairs are sorted by their first number, and keep their other bytes. */
  job = job_of(FTSORT_KEY_F64, sizeof(struct double_int), 0, 8);
  EXPECT(ftsort_record_of_type(MPI_DOUBLE_INT, &job.record) == FTSORT_OK);
  sort_job(job);
  expect_no_record(MPI_C_DOUBLE_COMPLEX, "COMPLEX");
  expect_no_record(MPI_LONG_DOUBLE, "MPI_LONG_DOUBLE");
  expect_no_record(MPI_LONG_DOUBLE_INT, "MPI_LONG_DOUBLE_INT");
  expect_no_record(MPI_PACKED, "MPI_PACKED");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (MPI_Type_create_f90_real(6, 30, &inner) == MPI_SUCCESS) {
    /* Must not free the predefined type inside of the other one. */
    MPI_Type_contiguous(2, inner, &type);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    expect_no_record(type, "type is");
    MPI_Type_free(&type);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  expect_no_record(MPI_DATATYPE_NULL, "MPI_DATATYPE_NULL");
  /* A derived type is what its constructor says, whatever its name is. */
  MPI_Type_contiguous(2, MPI_INT, &type);
  MPI_Type_commit(&type);
  expect_record(type, FTSORT_KEY_I32, 2 * sizeof(int));
  MPI_Type_set_name(type, "MPI_INT");
  expect_record(type, FTSORT_KEY_I32, 2 * sizeof(int));
  MPI_Type_free(&type);
  MPI_Type_vector(2, 1, 3, MPI_INT, &type);
  MPI_Type_set_name(type, "MPI_INT");
  expect_no_record(type, "derived type");
  MPI_Type_free(&type);
  nested_datatypes();
  EXPECT(ftsort_record_of_type(MPI_INT, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(NULL), "record is NULL") != NULL);
}

int main(int argc, char **argv)
{
  int i;
  if (argc > 1 && strcmp(argv[1], "few") == 0) group_count = WITH_STORE;
  start_mpi(&argc, &argv);
  make_groups();
  numbers();
  bytes();
  comparators();
  contradictions();
  larger();
  special_floats();
  bitonic_merge();
  refusals();
  datatypes();
  for (i = 0; i < group_count; i++) ftsort_free(groups[i]);
  if (rank == 0) printf("records: %d sorts\n", sorts);
  return end_mpi("records");
}
