/* The program of scripts/chaos.py: loops of mixed calls, while ranks are killed, stopped and slowed down from outside.
 *
 *   chaos DIR SEED STEPS      (under mpirun, at most 16 ranks)
 *
 * The program makes several groups, each with its own store and algorithm, and waits for the common start. Then it
 * makes STEPS steps; the seed decides the kind, the group and the sizes of each. Every rank can compute the inputs of
 * all ranks, and compares the blocks that it receives with the expected ones, bit for bit, without ftsort. The ranks that
 * contribute to a call are those which the group did not know as failed before it.
 *
 * Each rank appends a line to DIR/steps.RANK before and after each step:
 *
 *   begin STEP KIND GROUP
 *   end STEP STATUS PART TOTAL LOST WRONG      PART: the elements of the result on this rank; TOTAL: on all ranks;
 *                                              LOST: the ranks of ftsort_lost_ranks, or "-"
 *   done                                       after the last step
 *
 * The script compares the lines of all ranks: the status must be the same on all ranks, and the parts of a complete
 * result are the total. */
#include <fcntl.h>
#include <string.h>

#include "ftsort.h"
#include "ftsort_rounds.h"
#include "ftsort_store.h"
#include "ftsort_tree.h"
#include "ftsort_verify.h"
#include "outside.h"

#define MOST_RANKS 16
#define MOST_RECORDS 30000
#define MOST_BYTES 5000

/* The groups: the algorithm, the store, the copies, and whether blocks are dense or have digests. */
static const struct {
  const char *name;
  int32_t algorithm, store, replicas, dense;
  uint32_t checks;
} plans[] = {
    {"default", FTSORT_AUTO, FTSORT_STORE_MEMORY, 0, 0, 0},
    {"hyperquicksort", FTSORT_HYPERQUICKSORT, FTSORT_STORE_MEMORY, -1, 0, 0}, /* N - 1 copies */
    {"dense", FTSORT_SAMPLESORT, FTSORT_STORE_MEMORY, 2, 1, 0},
    {"bitonic", FTSORT_BITONIC, FTSORT_STORE_MEMORY, 1, 0, 0},
    {"quickmerge", FTSORT_QUICKMERGE, FTSORT_STORE_DIRECTORY, 0, 0, 0},
    {"modified", FTSORT_QUICKMERGE_MODIFIED, FTSORT_STORE_DIRECTORY, 0, 0, FTSORT_CHECK_DIGEST},
    {"reload", FTSORT_AUTO, FTSORT_STORE_RELOAD, 0, 0, 0},
    {"reload-bitonic", FTSORT_BITONIC, FTSORT_STORE_RELOAD, 0, 0, 0},
    {"none", FTSORT_AUTO, FTSORT_STORE_NONE, 0, 0, 0},
};
enum { GROUPS = sizeof plans / sizeof plans[0] };

static const ftsort_record u32 = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
static int rank, ranks, lines;
static uint64_t seed;

/* The present step: its kind is the word in the lines, and the callbacks and the checks need the rest. */
static struct step {
  int number, group;
  const char *kind;
  int contributes[MOST_RANKS];
  uint64_t part, total; /* see above */
  uint32_t *expected;   /* the records of all contributing ranks, sorted */
  size_t records, handed_out;
  int wrong; /* results that differ from the expected ones */
} step;

static ftsort *groups[GROUPS];
/* The step that committed the states of each group, or 0, and whether some of them were lost since. */
static int committed_step[GROUPS], is_lossy[GROUPS];

static uint64_t drawn(uint64_t place) { return mix(mix(seed << 32 | (uint64_t)step.number) + place); }

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

/* ---- Sorts ----------------------------------------------------------------------------------------------- */

static size_t count_of(int owner)
{
  const uint64_t bits = drawn((uint64_t)owner);
  if (bits % 7 == 0) return 0;
  return (bits >> 8) % (drawn(100) % 3 ? MOST_RECORDS : 300);
}

static void fill(int owner, uint32_t *keys)
{
  const uint64_t place = drawn((uint64_t)owner), few = drawn(101) % 4 == 0;
  size_t i, count = count_of(owner);
  for (i = 0; i < count; i++) keys[i] = (uint32_t)mix(place + i) >> (few ? 29 : 0);
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

static ftsort_status sort(ftsort *group, ftsort_result **result)
{
  const size_t count = count_of(rank);
  uint32_t *keys = (uint32_t *)allocate(count * sizeof *keys);
  ftsort_status status;
  ftsort_block block;
  size_t i;
  int owner;
  step.expected = (uint32_t *)allocate((size_t)ranks * MOST_RECORDS * sizeof *step.expected);
  for (owner = 0; owner < ranks; owner++) {
    if (!step.contributes[owner]) continue;
    fill(owner, step.expected + step.records);
    step.records += count_of(owner);
  }
  sort_by_counting(step.expected, step.records);
  fill(rank, keys);
  status = ftsort_run(group, &u32, keys, count, result);
  free(keys);
  if (status != FTSORT_OK) return status;
  step.total = ftsort_result_total(*result);
  expect(step.total == step.records, "the number of records");
  for (i = 0; ftsort_result_block(*result, i, &block) == FTSORT_OK; i++) {
    step.part += block.count;
    expect(block.offset <= step.records && block.count <= step.records - block.offset &&
               memcmp(block.data, step.expected + block.offset, block.count * sizeof *keys) == 0,
           "a block of a sort");
  }
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

/* Brings the result of a sort to one rank. The parts are the records that were handed out. */
static ftsort_status gather(ftsort *group, ftsort_result *result)
{
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort_status status;
  options.has_sink = 1;
  options.sink = (int32_t)(drawn(102) % (uint64_t)ranks);
  status = ftsort_gather_sorted(group, &options, result, consume, NULL);
  expect(status != FTSORT_ERR_CALLBACK, "a piece of a gather");
  step.part = step.handed_out;
  return status;
}

/* ---- Rounds and trees ------------------------------------------------------------------------------------- */

static size_t length_of(void) { return 1 + drawn(103) % 3000; }

static void fill_numbers(int node, uint64_t *numbers)
{
  const uint64_t place = drawn(200 + (uint64_t)node);
  size_t i;
  for (i = 0; i < length_of(); i++) numbers[i] = mix(place + i);
}

static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  uint64_t *numbers = (uint64_t *)ftsort_buffer_resize(state, length_of() * sizeof *numbers);
  (void)user;
  if (numbers == NULL) return 1;
  fill_numbers((int)node, numbers);
  return 0;
}

static int add(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  const uint64_t *mine = (const uint64_t *)task->state, *other = (const uint64_t *)inbox;
  uint64_t *sums = (uint64_t *)ftsort_buffer_resize(next, task->state_bytes);
  size_t i;
  (void)user;
  if (sums == NULL || bytes != task->state_bytes) return 1;
  for (i = 0; i < bytes / sizeof *sums; i++) sums[i] = mine[i] + other[i];
  return 0;
}

/* Whether these bytes are the sums of the numbers of the chosen nodes, or of all if none are chosen. */
static int is_sum(const ftsort_block *block, int nodes, const int *chosen)
{
  uint64_t *sums = (uint64_t *)calloc(length_of(), sizeof *sums);
  uint64_t *numbers = (uint64_t *)allocate(length_of() * sizeof *numbers);
  int node, equal;
  size_t i;
  if (sums == NULL) abort();
  for (node = 0; node < nodes; node++) {
    if (chosen && !chosen[node]) continue;
    fill_numbers(node, numbers);
    for (i = 0; i < length_of(); i++) sums[i] += numbers[i];
  }
  equal = block->count == length_of() * sizeof *sums && memcmp(block->data, sums, block->count) == 0;
  free(numbers);
  free(sums);
  return equal;
}

/* Adds the numbers of all nodes by rounds. Failed ranks contribute too, because `begin` creates their states. */
static ftsort_status rounds(ftsort *group, const uint64_t *mine, ftsort_result **result)
{
  const int nodes = 1 << ftsort_dimension(group);
  ftsort_rounds all = FTSORT_ROUNDS_INIT;
  ftsort_status status;
  ftsort_block block;
  all.begin = begin;
  all.absorb = add;
  all.begin_all = (int32_t)(drawn(105) % 2);
  all.ascending = (int32_t)(drawn(106) % 2);
  status = ftsort_rounds_run(group, &all, mine, length_of() * sizeof *mine, result);
  step.total = (uint64_t)nodes;
  for (; ftsort_result_block(*result, step.part, &block) == FTSORT_OK; step.part++)
    expect(is_sum(&block, nodes, NULL), "a state of rounds");
  return status;
}

/* Adds the numbers of the contributing ranks along a tree. */
static ftsort_status merge(ftsort *group, const uint64_t *mine, ftsort_result **result)
{
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort_status status;
  ftsort_block block;
  options.operation = FTSORT_TREE_SUM;
  options.key = FTSORT_KEY_U64;
  options.has_sink = (int32_t)(drawn(107) % 2);
  options.sink = (int32_t)(drawn(102) % (uint64_t)ranks);
  status = ftsort_tree_merge(group, &options, mine, length_of() * sizeof *mine, result);
  step.total = 1;
  for (; ftsort_result_block(*result, step.part, &block) == FTSORT_OK; step.part++)
    expect(is_sum(&block, ranks, step.contributes), "the result of a tree");
  return status;
}

static ftsort_status broadcast(ftsort *group, uint64_t *numbers)
{
  const size_t bytes = length_of() * sizeof *numbers;
  uint64_t *expected = (uint64_t *)allocate(bytes);
  ftsort_status status;
  int root = (int)(drawn(108) % (uint64_t)ranks);
  while (!step.contributes[root]) root = (root + 1) % ranks;
  fill_numbers(root, expected);
  status = ftsort_tree_broadcast(group, NULL, root, numbers, bytes);
  expect(status != FTSORT_OK || memcmp(numbers, expected, bytes) == 0, "the bytes of a broadcast");
  free(expected);
  return status;
}

/* ---- Stored states ---------------------------------------------------------------------------------------- */

static size_t state_of(int number, int node, unsigned char *state)
{
  const uint64_t place = mix(seed << 32 | (uint64_t)number) + (uint64_t)node * 65536;
  size_t bytes = mix(place) % MOST_BYTES, i;
  for (i = 0; i < bytes; i++) state[i] = (unsigned char)mix(place + i);
  return bytes;
}

/* Compares the committed states of the nodes of this rank, and returns their number. */
static uint64_t compare_states(ftsort *group)
{
  unsigned char expected[MOST_BYTES];
  uint64_t found = 0;
  int node;
  for (node = 0; node < 1 << ftsort_dimension(group); node++) {
    const void *state = NULL;
    size_t bytes = 0;
    if (ftsort_executor(group, node) != rank) continue;
    expect(ftsort_store_get(group, node, &state, &bytes) == FTSORT_OK, "the status of a state");
    if (state == NULL && (committed_step[step.group] == 0 || is_lossy[step.group])) continue;
    found++;
    expect(state != NULL && bytes == state_of(committed_step[step.group], node, expected) &&
               memcmp(state, expected, bytes) == 0,
           "a stored state");
  }
  return found;
}

static ftsort_status check(ftsort *group)
{
  size_t new_failures = 0;
  ftsort_status status = ftsort_fault_check(group, &new_failures);
  if (status == FTSORT_ERR_DATA_LOST) is_lossy[step.group] = 1;
  step.total = new_failures;
  return status;
}

/* Compares the states of an earlier step, and commits new ones. Each failure prevents the commit once. */
static ftsort_status states(ftsort *group)
{
  unsigned char state[MOST_BYTES];
  int committed = 0, tries, node;
  ftsort_status status = FTSORT_OK;
  for (tries = 0; tries <= ranks && !committed; tries++) {
    status = check(group);
    if (status != FTSORT_OK && status != FTSORT_ERR_DATA_LOST) return status;
    compare_states(group);
    for (node = 0; node < 1 << ftsort_dimension(group); node++)
      if (ftsort_executor(group, node) == rank)
        expect(ftsort_store_put(group, node, state, state_of(step.number, node, state)) == FTSORT_OK,
               "the status of a put state");
    status = ftsort_store_commit(group, 1, &committed);
    if (status != FTSORT_OK && status != FTSORT_ERR_DATA_LOST) return status;
    if (status == FTSORT_ERR_DATA_LOST) is_lossy[step.group] = 1;
  }
  expect(committed, "a commit of states after the last failure");
  committed_step[step.group] = step.number;
  is_lossy[step.group] = 0;
  step.part = compare_states(group);
  step.total = (uint64_t)1 << ftsort_dimension(group);
  return status;
}

/* ---- Steps ------------------------------------------------------------------------------------------------ */

static int reload(void *user, int32_t owner, ftsort_buffer *data)
{
  uint32_t *keys;
  (void)user;
  if (strcmp(step.kind, "rounds") == 0) return begin(NULL, owner, data);
  keys = (uint32_t *)ftsort_buffer_resize(data, count_of((int)owner) * sizeof *keys);
  if (keys == NULL) return 1;
  fill((int)owner, keys);
  return 0;
}

static ftsort_status call(ftsort *group, ftsort_result **result)
{
  uint64_t *mine = (uint64_t *)allocate(length_of() * sizeof *mine);
  uint32_t flags = ~((uint32_t)1 << rank);
  ftsort_status status = FTSORT_OK;
  fill_numbers(rank, mine);
  switch (step.kind[0]) {
  case 's': status = step.kind[1] == 'o' ? sort(group, result) : states(group); break;
  case 'g':
    status = sort(group, result);
    step.part = 0;
    if (status == FTSORT_OK) status = gather(group, *result);
    break;
  case 'r': status = rounds(group, mine, result); break;
  case 'm': status = merge(group, mine, result); break;
  case 'b': status = broadcast(group, mine); break;
  case 'c': status = check(group); break;
  default:
    status = ftsort_agree(group, &flags, NULL);
    expect(!(flags >> rank & 1), "an agreed number");
    step.total = flags;
  }
  free(mine);
  return status;
}

/* Makes a step, and returns whether the next one can follow. */
static int make_step(int number)
{
  static const char *const kinds[] = {"sort",  "sort",      "sort",   "gather", "rounds",
                                      "merge", "broadcast", "states", "agree",  "check"};
  ftsort_result *result = NULL;
  ftsort_status status;
  ftsort *group;
  char lost[128] = "-";
  int32_t named[MOST_RANKS];
  size_t count, i;
  int owner;

  memset(&step, 0, sizeof step);
  step.number = number;
  step.group = (int)(drawn(98) % GROUPS);
  step.kind = kinds[drawn(99) % (sizeof kinds / sizeof kinds[0])];
  group = groups[step.group];
  for (owner = 0; owner < ranks; owner++) step.contributes[owner] = !ftsort_is_failed(group, owner);
  say(lines, "begin %d %s %s\n", number, step.kind, plans[step.group].name);
  status = call(group, &result);
  count = status == FTSORT_ERR_DATA_LOST ? ftsort_lost_ranks(group, named, MOST_RANKS) : 0;
  for (i = 0; i < count; i++)
    snprintf(i ? lost + strlen(lost) : lost, 8, "%s%d", i ? "," : "", (int)named[i]);
  if (status != FTSORT_OK && status != FTSORT_ERR_DATA_LOST)
    fprintf(stderr, "rank %d, step %d: %s\n", rank, number, ftsort_last_error(group));
  say(lines, "end %d %d %llu %llu %s %d\n", number, (int)status, (unsigned long long)step.part,
      (unsigned long long)step.total, lost, step.wrong);
  ftsort_result_free(result);
  free(step.expected);
  return status == FTSORT_OK || status == FTSORT_ERR_DATA_LOST;
}

int main(int argc, char **argv)
{
  char path[512];
  int i, number, steps;
  if (argc != 4) {
    fprintf(stderr, "the first lines of chaos.c describe the arguments\n");
    return 2;
  }
  seed = strtoull(argv[2], NULL, 10);
  steps = atoi(argv[3]);
  ftsort_prepare();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(path, sizeof path, "%s/steps.%d", argv[1], rank);
  lines = open(path, O_CREAT | O_WRONLY | O_APPEND, 0644);
  if (lines < 0 || ranks > MOST_RANKS) MPI_Abort(MPI_COMM_WORLD, 1);
  for (i = 0; i < GROUPS; i++) {
    ftsort_config config = FTSORT_CONFIG_INIT;
    config.algorithm = plans[i].algorithm;
    config.store = plans[i].store;
    config.store_directory = argv[1];
    config.replicas = (uint32_t)(plans[i].replicas < 0 ? ranks - 1 : plans[i].replicas);
    config.dense = plans[i].dense;
    config.checks = plans[i].checks;
    config.reload = plans[i].store == FTSORT_STORE_RELOAD ? reload : NULL;
    if (ftsort_init(MPI_COMM_WORLD, &config, &groups[i]) != FTSORT_OK) {
      fprintf(stderr, "group %s: %s\n", plans[i].name, ftsort_last_error(NULL));
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  start_together(rank, ranks);
  for (number = 1; number <= steps && make_step(number); number++) continue;
  say(lines, "done\n");
  for (i = 1; i < GROUPS; i++) ftsort_free(groups[i]);
  ftsort_leave(groups[0], 0);
  return 1;
}
