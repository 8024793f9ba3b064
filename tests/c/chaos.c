/* The program of scripts/chaos.py: loops of mixed calls, while ranks are killed, stopped and slowed down from outside.
 *
 *   chaos DIR SEED STEPS      (under mpirun, at most 16 ranks)
 *
 * The program makes several groups, each with its own store and algorithm (chaos.h), and waits for the common start.
 * Then it makes STEPS steps; the seed decides the kind, the group and the sizes of each. A result or a protected input can
 * stay for later steps. Every rank can compute the inputs of all ranks, and compares the blocks that it receives with the
 * expected ones, bit for bit, without ftsort. The ranks that contribute to a call are those which the group did not know
 * as failed before it, without idle spares.
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

#include "chaos.h"
#include "chaos_sorts.h"
#include "ftsort_monitor.h"
#include "ftsort_rounds.h"

#define MOST_BYTES 5000

static int lines;
static ftsort *groups[GROUPS];
/* The step that committed the states of each group, or 0, and whether some of them were lost since. */
static int committed_step[GROUPS], is_lossy[GROUPS];

/* ---- Rounds and trees ------------------------------------------------------------------------------------- */

static size_t length_of(void) { return 1 + drawn(103) % 3000; }

static void fill_numbers(int node, uint64_t *numbers)
{
  const uint64_t place = drawn(200 + (uint64_t)node);
  size_t i;
  for (i = 0; i < length_of(); i++) numbers[i] = mix(place + i);
}

static uint64_t *numbers_of(int node)
{
  uint64_t *numbers = (uint64_t *)allocate(length_of() * sizeof *numbers);
  fill_numbers(node, numbers);
  return numbers;
}

/* An idle spare has no input. */
static size_t bytes_of_input(void) { return step.inputs[rank] ? length_of() * sizeof(uint64_t) : 0; }

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
static ftsort_status rounds(ftsort *group, ftsort_result **result)
{
  const int nodes = 1 << ftsort_dimension(group);
  ftsort_rounds all = FTSORT_ROUNDS_INIT;
  uint64_t *mine = numbers_of(rank);
  ftsort_status status;
  ftsort_block block;
  all.begin = begin;
  all.absorb = add;
  all.begin_all = (int32_t)(drawn(105) % 2);
  all.ascending = (int32_t)(drawn(106) % 2);
  status = ftsort_rounds_run(group, &all, mine, bytes_of_input(), result);
  free(mine);
  step.total = (uint64_t)nodes;
  for (; ftsort_result_block(*result, step.part, &block) == FTSORT_OK; step.part++)
    expect(is_sum(&block, nodes, NULL), "a state of rounds");
  return status;
}

/* Adds the numbers of the contributing ranks along a tree. */
static ftsort_status merge(ftsort *group, ftsort_result **result)
{
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  uint64_t *mine = numbers_of(rank);
  ftsort_status status;
  ftsort_block block;
  options.operation = FTSORT_TREE_SUM;
  options.key = FTSORT_KEY_U64;
  options.has_sink = (int32_t)(drawn(107) % 2);
  options.sink = (int32_t)(drawn(102) % (uint64_t)ranks);
  status = ftsort_tree_merge(group, &options, mine, bytes_of_input(), result);
  free(mine);
  step.total = 1;
  for (; ftsort_result_block(*result, step.part, &block) == FTSORT_OK; step.part++)
    expect(is_sum(&block, ranks, step.inputs), "the result of a tree");
  return status;
}

static ftsort_status broadcast(ftsort *group, ftsort_result **result)
{
  uint64_t *numbers = numbers_of(rank), *expected;
  const size_t bytes = length_of() * sizeof *numbers;
  ftsort_status status;
  int root = (int)(drawn(108) % (uint64_t)ranks);
  (void)result;
  while (!step.inputs[root]) root = (root + 1) % ranks;
  expected = numbers_of(root);
  status = ftsort_tree_broadcast(group, NULL, root, numbers, bytes);
  expect(status != FTSORT_OK || memcmp(numbers, expected, bytes) == 0, "the bytes of a broadcast");
  free(numbers);
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

static ftsort_status check(ftsort *group, ftsort_result **result)
{
  size_t new_failures = 0;
  ftsort_status status = ftsort_fault_check(group, &new_failures);
  (void)result;
  if (status == FTSORT_ERR_DATA_LOST) is_lossy[step.group] = 1;
  step.total = new_failures;
  return status;
}

/* Compares the states of an earlier step, and commits new ones. Each failure prevents the commit once. */
static ftsort_status states(ftsort *group, ftsort_result **result)
{
  unsigned char state[MOST_BYTES];
  int committed = 0, tries, node;
  ftsort_status status = FTSORT_OK;
  for (tries = 0; tries <= ranks && !committed; tries++) {
    status = check(group, result);
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

static ftsort_status agree(ftsort *group, ftsort_result **result)
{
  uint32_t flags = ~((uint32_t)1 << rank);
  ftsort_status status = ftsort_agree(group, &flags, NULL);
  (void)result;
  expect(!(flags >> rank & 1), "an agreed number");
  step.total = flags;
  return status;
}

/* ---- Steps ------------------------------------------------------------------------------------------------ */

/* The kinds of steps; a kind with two entries is drawn twice as often. */
static const struct kind {
  const char *name;
  ftsort_status (*call)(ftsort *group, ftsort_result **result);
} kinds[] = {
    {"sort", sort},           {"sort", sort},       {"gather", gather},   {"keep", keep},
    {"keep", keep},           {"protect", protect}, {"protect", protect}, {"many", many},
    {"select", select_some},  {"top", top},         {"unique", unique},   {"argsort", argsort},
    {"positions", positions}, {"by-key", by_key},   {"rounds", rounds},   {"merge", merge},
    {"broadcast", broadcast}, {"states", states},   {"agree", agree},     {"check", check},
};
/* The kinds of steps that use a kept result or a protected input. */
static const struct kind recovers = {"recover", recover}, sorts_again = {"again", sort_held}, updates = {"update", update};

/* Draws the kind of the present step. A group that keeps a result or an input uses it. */
static const struct kind *kind_of_step(void)
{
  const struct kind *kind = &kinds[drawn(99) % (sizeof kinds / sizeof kinds[0])];
  if (kind->call == keep && kept[step.group].result) return &recovers;
  if (kind->call == protect && held[step.group].input) return drawn(97) % 3 ? &sorts_again : &updates;
  return kind;
}

static int reload(void *user, int32_t owner, ftsort_buffer *data)
{
  if (strcmp(step.kind, "rounds") == 0) return begin(user, owner, data);
  return reload_records((int)owner, data);
}

/* Makes a step, and returns whether the next one can follow. */
static int make_step(int number)
{
  const struct kind *kind;
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
  group = groups[step.group];
  kind = kind_of_step();
  step.kind = kind->name;
  for (owner = 0; owner < ranks; owner++)
    step.inputs[owner] = ftsort_is_failed(group, owner) || ftsort_is_spare(group, owner) ? 0 : number;
  say(lines, "begin %d %s %s\n", number, step.kind, plans[step.group].name);
  status = kind->call(group, &result);
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

static ftsort *make_group(const char *directory, int number)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group;
  config.algorithm = plans[number].algorithm;
  config.store = plans[number].store;
  config.store_directory = directory;
  if (plans[number].store == FTSORT_STORE_PARITY)
    config.parity = (uint32_t)plans[number].replicas;
  else
    config.replicas = (uint32_t)(plans[number].replicas < 0 ? ranks - 1 : plans[number].replicas);
  config.dense = plans[number].dense;
  config.checks = plans[number].checks;
  config.spares = plans[number].spares;
  config.release_after_run = plans[number].feature == RELEASED;
  config.reload = plans[number].store == FTSORT_STORE_RELOAD ? reload : NULL;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "group %s: %s\n", plans[number].name, ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (plans[number].feature >= EXCLUDING) {
    ftsort_monitor_options options = FTSORT_MONITOR_OPTIONS_INIT;
    options.mode = plans[number].feature == FOREGROUND ? FTSORT_MONITOR_FOREGROUND : FTSORT_MONITOR_AUTO;
    options.sharing = plans[number].feature == WEIGHING ? FTSORT_SHARING_WEIGHTS : FTSORT_SHARING_EXCLUDE;
    options.interval_ms = 20;
    if (plans[number].feature == EXCLUDING) options.first_ms = 50;
    if (ftsort_monitor_start(group, &options, NULL) != FTSORT_OK) {
      fprintf(stderr, "group %s: %s\n", plans[number].name, ftsort_last_error(group));
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  return group;
}

int main(int argc, char **argv)
{
  char path[512];
  int i, number, steps, granted;
  if (argc != 4) {
    fprintf(stderr, "the first lines of chaos.c describe the arguments\n");
    return 2;
  }
  seed = strtoull(argv[2], NULL, 10);
  steps = atoi(argv[3]);
  ftsort_prepare();
  /* With threads, monitors run in a thread of their own. */
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(path, sizeof path, "%s/steps.%d", argv[1], rank);
  lines = open(path, O_CREAT | O_WRONLY | O_APPEND, 0644);
  if (lines < 0 || ranks > MOST_RANKS) MPI_Abort(MPI_COMM_WORLD, 1);
  for (i = 0; i < GROUPS; i++) groups[i] = make_group(argv[1], i);
  start_together(rank, ranks);
  for (number = 1; number <= steps && make_step(number); number++) continue;
  say(lines, "done\n");
  for (i = 0; i < GROUPS; i++) {
    ftsort_result_free(kept[i].result);
    ftsort_input_free(held[i].input);
  }
  for (i = 1; i < GROUPS; i++) ftsort_free(groups[i]);
  ftsort_leave(groups[0], 0);
  return 1;
}
