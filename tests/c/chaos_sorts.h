/* The calls of chaos.c that sort: with results and protected inputs that later steps use, of many arrays, and queries. */
#ifndef CHAOS_SORTS_H
#define CHAOS_SORTS_H
#include "chaos.h"
#include "ftsort_query.h"
#include "ftsort_tree.h"

static ftsort_status sort(ftsort *group, ftsort_result **result)
{
  uint32_t *keys = input_of(rank);
  ftsort_status status = ftsort_run(group, &u32, keys, count_of(rank), result);
  free(keys);
  expect_inputs();
  if (status == FTSORT_OK) compare_blocks(*result, step.expected, step.records);
  return status;
}

static int consume(void *user, const void *records, size_t count)
{
  (void)user;
  if (count > step.records - step.handed_out ||
      memcmp(records, step.expected + step.handed_out, count * sizeof *step.expected) != 0)
    return 1;
  step.handed_out += count;
  return 0;
}

/* Sorts, and brings the result to one rank. The parts are the records that were handed out. */
static ftsort_status gather(ftsort *group, ftsort_result **result)
{
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort_status status = sort(group, result);
  step.part = 0;
  if (status != FTSORT_OK) return status;
  options.sink = (int32_t)(drawn(102) % (uint64_t)ranks);
  options.has_sink = !ftsort_is_spare(group, options.sink);
  status = ftsort_gather_sorted(group, &options, *result, consume, NULL);
  expect(status != FTSORT_ERR_CALLBACK, "a piece of a gather");
  step.part = step.handed_out;
  return status;
}

/* ---- Results and inputs that are kept over several steps --------------------------------------------------- */

/* The kept result of each group, and its protected input. */
static struct {
  ftsort_result *result;
  int inputs[MOST_RANKS];
} kept[GROUPS];
static struct {
  ftsort_input *input;
  int inputs[MOST_RANKS];
} held[GROUPS];

static ftsort_status keep(ftsort *group, ftsort_result **result)
{
  ftsort_status status = sort(group, result);
  kept[step.group].result = *result;
  memcpy(kept[step.group].inputs, step.inputs, sizeof step.inputs);
  *result = NULL;
  return status;
}

/* Recovers the kept result, and compares its blocks: also those that are left after a loss. */
static ftsort_status recover(ftsort *group, ftsort_result **result)
{
  ftsort_result *mine = kept[step.group].result;
  ftsort_status status;
  memcpy(step.inputs, kept[step.group].inputs, sizeof step.inputs);
  status = ftsort_result_recover(group, mine);
  expect_inputs();
  compare_blocks(mine, step.expected, step.records);
  if (status == FTSORT_OK && drawn(109) % 3 != 0) return status;
  kept[step.group].result = NULL;
  *result = mine;
  return status;
}

static void release_input(void)
{
  ftsort_input_free(held[step.group].input);
  held[step.group].input = NULL;
}

/* Sorts the protected input, often in descending order. */
static ftsort_status sort_held(ftsort *group, ftsort_result **result)
{
  ftsort_record record = u32;
  ftsort_status status;
  size_t i;
  memcpy(step.inputs, held[step.group].inputs, sizeof step.inputs);
  record.descending = (int32_t)(drawn(110) % 2);
  status = ftsort_run_protected(group, held[step.group].input, record.descending ? &record : NULL, result);
  expect_inputs();
  for (i = 0; record.descending && i < step.records / 2; i++) {
    const uint32_t first = step.expected[i];
    step.expected[i] = step.expected[step.records - 1 - i];
    step.expected[step.records - 1 - i] = first;
  }
  if (status == FTSORT_OK) compare_blocks(*result, step.expected, step.records);
  if (status != FTSORT_OK || drawn(109) % 4 == 0) release_input();
  return status;
}

static ftsort_status protect(ftsort *group, ftsort_result **result)
{
  uint32_t *keys = input_of(rank);
  ftsort_status status = ftsort_protect(group, &u32, keys, count_of(rank), &held[step.group].input);
  (void)result;
  free(keys);
  memcpy(held[step.group].inputs, step.inputs, sizeof step.inputs);
  return status;
}

/* Replaces the protected records of the ranks that are not known as failed. */
static ftsort_status update(ftsort *group, ftsort_result **result)
{
  uint32_t *keys = input_of(rank);
  ftsort_status status;
  int owner;
  (void)result;
  for (owner = 0; owner < ranks; owner++)
    if (step.inputs[owner] == 0) step.inputs[owner] = held[step.group].inputs[owner];
  status = ftsort_input_update(group, held[step.group].input, keys, count_of(rank));
  free(keys);
  memcpy(held[step.group].inputs, step.inputs, sizeof step.inputs);
  if (status != FTSORT_OK) release_input();
  return status;
}

/* ---- Many arrays, and queries ------------------------------------------------------------------------------ */

static int arrays_of_step(void) { return 1 + (int)(drawn(111) % MOST_ARRAYS); }

static ftsort_status many(ftsort *group, ftsort_result **result)
{
  const int count = arrays_of_step();
  ftsort_array arrays[MOST_ARRAYS];
  ftsort_result *results[MOST_ARRAYS];
  ftsort_status status;
  int i;
  (void)result;
  for (i = 0; i < count; i++) {
    uint32_t *keys = (uint32_t *)allocate(count_in(rank, i) * sizeof *keys);
    fill_in(rank, i, keys);
    arrays[i].record = &u32;
    arrays[i].data = keys;
    arrays[i].count = count_in(rank, i);
  }
  status = ftsort_run_many(group, arrays, (size_t)count, results);
  for (i = 0; i < count; i++) {
    uint32_t *expected;
    const size_t records = all_records(i, &expected);
    free((void *)arrays[i].data);
    sort_by_counting(expected, records);
    if (status == FTSORT_OK) compare_blocks(results[i], expected, records);
    free(expected);
    ftsort_result_free(results[i]);
  }
  return status;
}

/* The records at some positions, the same on all ranks. */
static ftsort_status select_some(ftsort *group, ftsort_result **result)
{
  uint32_t *keys = input_of(rank), found[8] = {0};
  uint64_t positions[8];
  ftsort_status status;
  size_t i, count;
  (void)result;
  expect_inputs();
  count = step.records ? 8 : 0;
  for (i = 0; i < count; i++) positions[i] = drawn(500 + i) % step.records;
  status = ftsort_select(group, &u32, keys, count_of(rank), positions, count, found);
  for (i = 0; i < count && status == FTSORT_OK; i++)
    expect(found[i] == step.expected[positions[i]], "a selected record");
  free(keys);
  return status;
}

static ftsort_status top(ftsort *group, ftsort_result **result)
{
  const uint64_t wanted = drawn(112) % 1000;
  uint32_t *keys = input_of(rank);
  ftsort_status status = ftsort_top(group, &u32, keys, count_of(rank), wanted, result);
  free(keys);
  expect_inputs();
  if (status == FTSORT_OK)
    compare_blocks(*result, step.expected, step.records < wanted ? step.records : (size_t)wanted);
  return status;
}

/* A column of a block of a result. */
static const void *column_of(const ftsort_result *result, size_t index, size_t column, size_t element_bytes)
{
  const void *data = NULL;
  size_t bytes = 0;
  expect(ftsort_result_column(result, index, column, &data, &bytes) == FTSORT_OK && bytes == element_bytes,
         "a column of a result");
  return data;
}

static ftsort_status unique(ftsort *group, ftsort_result **result)
{
  uint32_t *keys = input_of(rank);
  ftsort_status status = ftsort_unique(group, &u32, keys, count_of(rank), result);
  size_t i, k, distinct = 0, *firsts;
  ftsort_block block;
  free(keys);
  expect_inputs();
  if (status != FTSORT_OK) return status;
  firsts = (size_t *)allocate((step.records + 1) * sizeof *firsts);
  for (i = 0; i < step.records; i++)
    if (i == 0 || step.expected[i] != step.expected[i - 1]) firsts[distinct++] = i;
  firsts[distinct] = step.records;
  for (i = 0; i < distinct; i++) step.expected[i] = step.expected[firsts[i]];
  compare_blocks(*result, step.expected, distinct);
  for (i = 0; ftsort_result_block(*result, i, &block) == FTSORT_OK && !step.wrong; i++) {
    const uint64_t *counts = (const uint64_t *)column_of(*result, i, 1, sizeof *counts);
    for (k = 0; k < block.count && !step.wrong; k++) {
      const size_t place = (size_t)block.offset + k;
      expect(counts[k] == firsts[place + 1] - firsts[place], "the number of equal records");
    }
  }
  free(firsts);
  return status;
}

/* The positions of a block, and the records of all inputs to which they belong. */
typedef struct {
  const uint64_t *places;
  const uint32_t *all;
  size_t offset;
} positions_of_block;

typedef int (*position_check)(const positions_of_block *block, size_t k);

/* Checks the positions in the blocks of a result one by one. */
static ftsort_status compare_positions(ftsort_status status, const ftsort_result *result, position_check is_right)
{
  uint32_t *all;
  size_t i, k, records = all_records(0, &all);
  ftsort_block block;
  expect_inputs();
  step.total = records;
  for (i = 0; status == FTSORT_OK && ftsort_result_block(result, i, &block) == FTSORT_OK; i++) {
    positions_of_block own;
    own.places = (const uint64_t *)block.data;
    own.all = all;
    own.offset = (size_t)block.offset;
    step.part += block.count;
    for (k = 0; k < block.count && !step.wrong; k++)
      expect(own.places[k] < records && is_right(&own, k), "a position of a record");
  }
  free(all);
  return status;
}

/* Equal records keep their order. */
static int is_in_order(const positions_of_block *block, size_t k)
{
  const uint64_t *places = block->places;
  const uint32_t *all = block->all;
  return all[places[k]] == step.expected[block->offset + k] &&
         (k == 0 || all[places[k]] != all[places[k - 1]] || places[k - 1] < places[k]);
}

static ftsort_status argsort(ftsort *group, ftsort_result **result)
{
  uint32_t *keys = input_of(rank);
  ftsort_status status = ftsort_argsort(group, &u32, keys, count_of(rank), result);
  free(keys);
  return compare_positions(status, *result, is_in_order);
}

static int is_place_in_order(const positions_of_block *block, size_t k)
{
  return block->all[block->offset + k] == step.expected[block->places[k]];
}

/* The inverse of the sorted order: the blocks have the inputs' order and sizes. */
static ftsort_status positions(ftsort *group, ftsort_result **result)
{
  uint32_t *keys = input_of(rank);
  ftsort_status status = ftsort_positions(group, &u32, keys, count_of(rank), result);
  free(keys);
  return compare_positions(status, *result, is_place_in_order);
}

static void fill_values(const uint32_t *keys, uint64_t *values, size_t count)
{
  size_t i;
  for (i = 0; i < count; i++) values[i] = mix(keys[i]);
}

static ftsort_status by_key(ftsort *group, ftsort_result **result)
{
  const size_t count = count_of(rank);
  uint32_t *keys = input_of(rank);
  uint64_t *values = (uint64_t *)allocate(count * sizeof *values);
  ftsort_status status;
  ftsort_block block;
  size_t i, k;
  fill_values(keys, values, count);
  status = ftsort_sort_by_key(group, &u32, keys, values, sizeof *values, count, result);
  free(values);
  free(keys);
  expect_inputs();
  if (status != FTSORT_OK) return status;
  compare_blocks(*result, step.expected, step.records);
  for (i = 0; ftsort_result_block(*result, i, &block) == FTSORT_OK && !step.wrong; i++) {
    const uint64_t *moved = (const uint64_t *)column_of(*result, i, 1, sizeof *moved);
    for (k = 0; k < block.count && !step.wrong; k++)
      expect(moved[k] == mix(((const uint32_t *)block.data)[k]), "the value of a key");
  }
  return status;
}

/* Makes the input of a rank in the present call again. */
static int reload_records(int owner, ftsort_buffer *data)
{
  const int count = strcmp(step.kind, "many") == 0 ? arrays_of_step() : 1;
  const size_t value_bytes = strcmp(step.kind, "by-key") == 0 ? sizeof(uint64_t) : 0;
  uint32_t *keys;
  size_t records = 0;
  int i;
  for (i = 0; i < count; i++) records += count_in(owner, i);
  keys = (uint32_t *)ftsort_buffer_resize(data, records * (sizeof *keys + value_bytes));
  if (keys == NULL) return 1;
  for (i = 0, records = 0; i < count; i++) {
    fill_in(owner, i, keys + records);
    records += count_in(owner, i);
  }
  if (value_bytes) {
    uint64_t *values = (uint64_t *)allocate(records * value_bytes);
    fill_values(keys, values, records);
    memcpy(keys + records, values, records * value_bytes);
    free(values);
  }
  return 0;
}

#endif
