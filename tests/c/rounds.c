/* Tests round-based algorithms of a caller: invalid arguments, the tasks of callbacks, and results, on MPI and on
 * simulated ranks.
 *
 *   rounds args DIR          2 to 5 ranks; prints "rounds: fine" on rank 0. DIR is a writable folder that all share
 *   rounds gather STORE DIR  with failures; each survivor prints "node V: right" for each node that it executes
 *   rounds sort STORE DIR    the same with a HyperQuickSort */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "ftsort_rounds.h"
#include "ftsort_store.h"
#include "ftsort_verify.h"
#include "round_algorithms.h"

static ftsort *group;

/* ---- Invalid arguments ---- */

static void refused(const ftsort_rounds *rounds, const void *state, size_t bytes, ftsort_status expected,
                    const char *word)
{
  ftsort_result *result = (ftsort_result *)&failures;
  ftsort_status status = ftsort_rounds_run(group, rounds, state, bytes, &result);
  EXPECT(status == expected && result == NULL);
  if (status != expected || (word && strstr(ftsort_last_error(group), word) == NULL))
    fprintf(stderr, "rank %d: %d, %s is not in: %s\n", rank, status, word, ftsort_last_error(group)), failures++;
}

static int propose_nothing(void *user, const ftsort_task *task, ftsort_buffer *proposal)
{
  (void)user, (void)task, (void)proposal;
  return 0;
}

static void bad_arguments(void)
{
  ftsort_round plan[2] = {{0, 0}, {0, 0}};
  ftsort_rounds rounds = none;
  ftsort_result *result = NULL;
  ftsort_block state;

  EXPECT(ftsort_rounds_run(NULL, &none, NULL, 0, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_rounds_run(group, &none, NULL, 0, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_result_count(NULL) == 0);
  EXPECT(ftsort_result_block(NULL, 0, &state) == FTSORT_ERR_ARGUMENT);
  ftsort_result_free(NULL);
  EXPECT(ftsort_buffer_resize(NULL, 1) == NULL && ftsort_buffer_reuse(NULL, NULL) == NULL);
  EXPECT(ftsort_buffer_append(NULL, NULL, 0) == 1 && ftsort_buffer_pass(NULL, 0, 0) == 1);

  refused(NULL, NULL, 0, FTSORT_ERR_ARGUMENT, "rounds is NULL");
  refused(&none, NULL, 0, FTSORT_ERR_ARGUMENT, "rounds.absorb is NULL");
  rounds = gathering();
  refused(&rounds, NULL, 8, FTSORT_ERR_ARGUMENT, "state is NULL");
  rounds.struct_size = 4096;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "rounds.struct_size is 4096");
  rounds = gathering();
  rounds.round_count = 1;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "rounds.plan is NULL");
  rounds.plan = plan;
  rounds.round_count = 0;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "rounds.round_count is 0");
  rounds.round_count = 2;
  plan[1].dimension = 9;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "round 2 exchanges along dimension 9");
  plan[1].dimension = 0;
  plan[1].share = 1;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "rounds.propose is NULL");
  rounds.propose = propose_nothing;
  plan[1].share = 9;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "round 2 shares a value in subcubes of 9");
  rounds = gathering();
  rounds.begin = NULL;
  rounds.begin_all = 1;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "rounds.begin is NULL");

  rounds = gathering();
  rounds.store_every = 2;
  refused(&rounds, NULL, 0, FTSORT_ERR_STATE, "rounds.store_every is 2");

  /* Not the same on all ranks, then invalid on one. */
  rounds = gathering();
  rounds.ascending = rank == 1 || ftsort_dimension(group) < 2;
  rounds.share_limit = rank == 1 ? 7 : 0;
  refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "not the same");
  rounds = gathering();
  if (rank == 1) rounds.absorb = NULL;
  refused(&rounds, NULL, 0, rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT, NULL);
}

/* ---- Callbacks that fail: the same status on all ranks, and a text on the rank of the callback. ---- */

static int victim;

static int refuse_emit(void *user, const ftsort_task *task, ftsort_buffer *outbox)
{
  (void)user;
  if (ftsort_buffer_resize(outbox, 1000) == NULL) return 1;
  return task->node == victim && task->round == 1 ? 42 : 0;
}

static int refuse_absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  (void)user, (void)inbox;
  if (ftsort_buffer_reuse(next, NULL) == NULL && bytes > 0) return 1;
  return task->node == victim ? -3 : 0;
}

static int refuse_propose(void *user, const ftsort_task *task, ftsort_buffer *proposal)
{
  (void)user;
  return task->node == victim ? 5 : ftsort_buffer_append(proposal, "x", 1);
}

static int propose_much(void *user, const ftsort_task *task, ftsort_buffer *proposal)
{
  (void)user, (void)task;
  return ftsort_buffer_resize(proposal, 9) == NULL;
}

static int refuse_decide(void *user, const ftsort_task *task, const ftsort_proposal *proposals, size_t count,
                         ftsort_buffer *shared)
{
  (void)user, (void)proposals, (void)count, (void)shared;
  return task->node == 0 ? 6 : 0;
}

static int refuse_begin(void *user, int32_t node, ftsort_buffer *state)
{
  (void)user, (void)state;
  return node == victim ? 8 : 0;
}

/* A callback that only rank 1 has is as invalid as other rounds. */
static void different_callbacks(void)
{
  const ftsort_round plan = {0, 0};
  int i;
  for (i = 0; i < 4; i++) {
    ftsort_rounds rounds = gathering();
    rounds.plan = &plan;
    rounds.round_count = 1;
    rounds.emit = propose_nothing;
    if (i != 3) rounds.propose = propose_nothing;
    if (rank != 1 && i == 0) rounds.begin = NULL;
    if (rank != 1 && i == 1) rounds.emit = NULL;
    if (rank == 1 && i == 2) rounds.decide = refuse_decide;
    if (rank == 1 && i == 3) rounds.propose = propose_nothing;
    refused(&rounds, NULL, 0, FTSORT_ERR_ARGUMENT, "not the same");
  }
}

static void failing_callbacks(void)
{
  ftsort_rounds rounds;
  for (victim = 0; victim < ranks; victim++) {
    char word[100];
    const char *emit = "the emit callback returned 42", *absorb = "the absorb callback returned -3";
    int here = ftsort_executor(group, victim) == rank;
    rounds = gathering();
    rounds.emit = refuse_emit;
    snprintf(word, sizeof word, "%s for node %d in round 1", emit, victim);
    refused(&rounds, "abc", 3, FTSORT_ERR_CALLBACK, here ? word : "another rank has the details");
    rounds.emit = NULL;
    rounds.absorb = refuse_absorb;
    snprintf(word, sizeof word, "%s for node %d in round 1", absorb, victim);
    refused(&rounds, "abc", 3, FTSORT_ERR_CALLBACK, here ? word : "another rank has the details");
    rounds = gathering();
    rounds.begin = refuse_begin;
    rounds.begin_all = 1;
    refused(&rounds, NULL, 0, FTSORT_ERR_CALLBACK, here ? "begin callback returned 8" : "another rank has the details");
  }
  victim = 0;
  rounds = gathering();
  rounds.propose = refuse_propose;
  refused(&rounds, NULL, 0, FTSORT_ERR_CALLBACK, rank == 0 ? "propose callback returned 5" : NULL);
  rounds.propose = propose_much;
  rounds.share_limit = 8;
  refused(&rounds, NULL, 0, FTSORT_ERR_CALLBACK, rank == 0 ? "has 9 bytes, more than the limit of 8" : NULL);
  rounds.share_limit = 9;
  rounds.decide = refuse_decide;
  refused(&rounds, NULL, 0, FTSORT_ERR_CALLBACK, rank == 0 ? "decide callback returned 6" : NULL);
}

/* ---- Results ---- */

static void run_gathering(ftsort *on, const char *title)
{
  ftsort_rounds rounds = gathering();
  ftsort_result *result = NULL;
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_block state;
  char text[64];
  int nodes = 1 << ftsort_dimension(on), node, mine = 0;
  size_t i, bytes = text_of(rank, ranks, text);
  ftsort_status status = ftsort_rounds_run(on, &rounds, bytes ? text : NULL, bytes, &result);
  EXPECT(status == FTSORT_OK);
  if (status != FTSORT_OK) fprintf(stderr, "%s: %s\n", title, ftsort_last_error(on));
  for (node = 0; node < nodes; node++) mine += ftsort_executor(on, node) == rank;
  EXPECT(ftsort_result_count(result) == (size_t)mine);
  for (i = 0; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
    EXPECT(ftsort_executor(on, state.node) == rank);
    EXPECT(has_all_texts(&state, ranks, nodes));
  }
  EXPECT(i == (size_t)mine && wrong_tasks == 0);
  EXPECT(ftsort_result_block(result, i, &state) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_result_block(result, 0, NULL) == FTSORT_ERR_ARGUMENT);
  ftsort_get_stats(on, &stats);
  EXPECT(stats.rounds == ftsort_dimension(on) + 1 && stats.rounds_replayed == 0 && stats.algorithm == -1);
  EXPECT(stats.exchange_seconds > 0 && stats.merge_seconds == 0 && stats.bytes_sent > 0);
  ftsort_result_free(result);
}

/* A root's proposal is shared with its subcube. Rounds without an exchange. The last shared value stays valid. */
static int propose_own(void *user, const ftsort_task *task, ftsort_buffer *proposal)
{
  (void)user;
  return ftsort_buffer_append(proposal, &task->node, sizeof task->node);
}

static int add_all(void *user, const ftsort_task *task, const ftsort_proposal *proposals, size_t count,
                   ftsort_buffer *shared)
{
  int32_t sum = 0, failed = 0;
  size_t i;
  for (i = 0; i < count; i++) {
    if (proposals[i].bytes != 4 || (i > 0 && proposals[i].node != proposals[i - 1].node + 1)) return 1;
    sum += *(const int32_t *)proposals[i].data;
    failed += proposals[i].is_failed != 0;
  }
  (void)user;
  if (!task->is_root || task->state_bytes != 0) return 2;
  return ftsort_buffer_append(shared, &sum, sizeof sum) || ftsort_buffer_append(shared, &failed, sizeof failed);
}

static int note_shared(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  (void)user, (void)inbox;
  if (bytes != 0 || task->partner != -1 || task->dimension != FTSORT_NO_EXCHANGE) return 1;
  return ftsort_buffer_append(next, task->state, task->state_bytes) ||
         ftsort_buffer_append(next, task->shared, task->shared_bytes);
}

static void sharing(void)
{
  const ftsort_round plan[4] = {{FTSORT_NO_EXCHANGE, 0},
                                {FTSORT_NO_EXCHANGE, 1},
                                {FTSORT_NO_EXCHANGE, FTSORT_SHARE_ALL},
                                {FTSORT_NO_EXCHANGE, 0}};
  ftsort_rounds rounds = none;
  ftsort_result *result = NULL;
  ftsort_block state;
  int32_t nodes = 1 << ftsort_dimension(group);
  size_t i;
  rounds.plan = plan;
  rounds.round_count = 4;
  rounds.propose = propose_own;
  rounds.absorb = note_shared;
  EXPECT(ftsort_rounds_run(group, &rounds, NULL, 0, &result) == FTSORT_OK);
  for (i = 0; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
    const int32_t *found = (const int32_t *)state.data;
    EXPECT(state.count == 12 && found[0] == (state.node & ~1) && found[1] == 0 && found[2] == 0);
  }
  ftsort_result_free(result);
  rounds.decide = add_all;
  EXPECT(ftsort_rounds_run(group, &rounds, NULL, 0, &result) == FTSORT_OK);
  for (i = 0; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
    const int32_t *found = (const int32_t *)state.data, low = state.node & ~1;
    EXPECT(state.count == 24 && found[0] == 2 * low + 1 && found[1] == (low + 1 >= ranks) + (low >= ranks));
    EXPECT(found[2] == nodes * (nodes - 1) / 2 && found[3] == nodes - ranks && found[4] == found[2]);
  }
  ftsort_result_free(result);
}

/* Parts of states are sent without a copy, and messages become states. The other order of calls is refused. */
static int pass_end(void *user, const ftsort_task *task, ftsort_buffer *outbox)
{
  size_t skip = task->state_bytes < 3 ? task->state_bytes : 3;
  (void)user;
  if (ftsort_buffer_reuse(outbox, NULL) != NULL) return 11;
  if (ftsort_buffer_pass(outbox, 1, task->state_bytes) != 1) return 12;
  if (ftsort_buffer_append(outbox, "forgotten", 9) != 0) return 13;
  if (ftsort_buffer_pass(outbox, skip, task->state_bytes - skip) != 0) return 14;
  return ftsort_buffer_append(outbox, "!", 1);
}

static int take_message(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  size_t found = 77;
  char *data, *again;
  (void)user, (void)task;
  if ((size_t)inbox % 64 != 0 || ftsort_buffer_pass(next, 0, 0) != 1) return 21;
  data = (char *)ftsort_buffer_reuse(next, &found);
  again = (char *)ftsort_buffer_reuse(next, NULL);
  if (data == NULL || data != again || found != bytes || bytes == 0 || data[bytes - 1] != '!') return 22;
  data[bytes - 1] = '?';
  return ftsort_buffer_append(next, "+", 1);
}

static void buffers(void)
{
  ftsort_rounds rounds = none;
  ftsort_result *result = NULL;
  ftsort_block state;
  const ftsort_round one = {0, 0};
  ftsort_status status;
  size_t i;
  char text[64], expected[64];
  rounds.plan = &one;
  rounds.round_count = 1;
  rounds.emit = pass_end;
  rounds.absorb = take_message;
  status = ftsort_rounds_run(group, &rounds, text, (size_t)sprintf(text, "abc%d", rank), &result);
  EXPECT(status == FTSORT_OK);
  if (status != FTSORT_OK) fprintf(stderr, "%s\n", ftsort_last_error(group));
  for (i = 0; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
    int from = state.node ^ 1;
    size_t length = (size_t)(from < ranks ? sprintf(expected, "%d?+", from) : sprintf(expected, "?+"));
    EXPECT(state.count == length && memcmp(state.data, expected, length) == 0);
  }
  ftsort_result_free(result);
}

/* ---- Purity ---- */

static int calls;

static int count_calls(void *user, const ftsort_task *task, ftsort_buffer *outbox)
{
  (void)user, (void)task;
  calls++;
  return ftsort_buffer_append(outbox, &calls, sizeof calls);
}

static int leave_message(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  (void)user, (void)inbox, (void)bytes;
  return ftsort_buffer_append(next, task->state, task->state_bytes);
}

static int write_to_state(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  (void)user, (void)inbox, (void)bytes, (void)next;
  if (task->state_bytes > 0) ++*(char *)(size_t)task->state;
  return 0;
}

static void purity(void)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_rounds rounds = none;
  ftsort *plain = group;
  ftsort_result *result = NULL;
  rounds.emit = count_calls;
  rounds.absorb = leave_message;
  EXPECT(ftsort_rounds_run(plain, &rounds, "abc", 3, &result) == FTSORT_OK); /* purity is not checked */
  ftsort_result_free(result);
  config.checks = FTSORT_CHECK_PURITY | FTSORT_CHECK_DIGEST;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  run_gathering(group, "checked for purity");
  refused(&rounds, "abc", 3, FTSORT_ERR_CALLBACK, "in round 1 is not pure: the results of two calls differ");
  rounds.emit = NULL;
  rounds.absorb = write_to_state;
  refused(&rounds, "abc", 3, FTSORT_ERR_CALLBACK, "it changed the state that it was given");
  ftsort_free(group);
  group = plain;
}

/* ---- HyperQuickSort: the same bytes as the built-in one. ---- */

static void sort_as_the_built_in(void)
{
  const ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_rounds rounds = quick_sort();
  ftsort_result *own = NULL;
  ftsort_result *built_in = NULL;
  ftsort *sorter = NULL;
  ftsort_block state;
  ftsort_block block;
  int32_t list[2000];
  size_t i, count = list_of(rank, list);
  config.algorithm = FTSORT_HYPERQUICKSORT;
  config.pivot = FTSORT_PIVOT_PAPER;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &sorter) == FTSORT_OK);
  EXPECT(ftsort_run(sorter, &record, list, count, &built_in) == FTSORT_OK);
  EXPECT(ftsort_rounds_run(sorter, &rounds, list, 4 * count, &own) == FTSORT_OK);
  EXPECT(ftsort_result_count(built_in) == ftsort_result_count(own));
  for (i = 0; ftsort_result_block(built_in, i, &block) == FTSORT_OK; i++) {
    EXPECT(ftsort_result_block(own, i, &state) == FTSORT_OK);
    EXPECT(state.node == block.node && state.count == 4 * block.count);
    EXPECT(memcmp(state.data, block.data, state.count) == 0);
  }
  ftsort_result_free(built_in);
  ftsort_result_free(own);
  ftsort_free(sorter);
}

/* ---- Simulated ranks ---- */

static void simulation(void)
{
  ftsort_simulation_options setting = FTSORT_SIMULATION_OPTIONS_INIT;
  ftsort_rounds rounds = gathering();
  ftsort_result *result = NULL;
  ftsort_block state;
  char texts[8][64];
  const void *states[8];
  size_t bytes[8], i;
  int node, seed, runs = 0, lost = 0;
  ftsort_status status;
  for (node = 0; node < 8; node++) {
    bytes[node] = text_of(node, 8, texts[node]);
    states[node] = bytes[node] ? texts[node] : NULL;
  }
  for (seed = 0; seed < 128; seed++) {
    setting.seed = (uint64_t)seed;
    setting.ranks = 1 + (uint32_t)seed % 8;
    setting.failures = (uint32_t)seed / 8 % setting.ranks;
    setting.store = seed % 4;
    setting.replicas = setting.failures;
    setting.reload = seed % 3 == 0;
    status = ftsort_rounds_simulate(&rounds, &setting, states, bytes, &result);
    lost += status == FTSORT_ERR_DATA_LOST;
    EXPECT(status == FTSORT_OK || (status == FTSORT_ERR_DATA_LOST && !setting.reload && setting.store != 3));
    if (status != FTSORT_OK && status != FTSORT_ERR_DATA_LOST) fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    for (i = 0, node = -1; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
      int nodes = 1;
      while (nodes < (int)setting.ranks) nodes *= 2;
      runs += i == 0;
      EXPECT(state.node > node);
      node = state.node;
      EXPECT(has_all_texts(&state, (int)setting.ranks, nodes));
    }
    ftsort_result_free(result);
  }
  EXPECT(runs > 60 && lost > 4 && runs + lost <= 128);

  /* Failures of algorithms are found, and invalid options are refused. */
  memset(&setting, 0, sizeof setting);
  setting.struct_size = sizeof setting;
  setting.failures = 4;
  EXPECT(ftsort_rounds_simulate(&rounds, &setting, states, bytes, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(NULL), "simulation.failures is 4") != NULL && result == NULL);
  setting.failures = 0;
  setting.schedule = "1@x";
  EXPECT(ftsort_rounds_simulate(&rounds, &setting, states, bytes, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(NULL), "has \"1@x\"") != NULL);
  setting.store = FTSORT_STORE_NONE;
  setting.schedule = "1@20";
  EXPECT(ftsort_rounds_simulate(&rounds, &setting, states, bytes, &result) == FTSORT_ERR_DATA_LOST);
  EXPECT(strstr(ftsort_last_error(NULL), "(seed=0 store=none failures=1@20)") != NULL);
  setting.schedule = NULL;
  EXPECT(ftsort_rounds_simulate(&rounds, &setting, NULL, bytes, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_rounds_simulate(&rounds, &setting, states, bytes, NULL) == FTSORT_ERR_ARGUMENT);
  rounds.emit = count_calls;
  EXPECT(ftsort_rounds_simulate(&rounds, &setting, states, bytes, &result) == FTSORT_ERR_CALLBACK);
  EXPECT(strstr(ftsort_last_error(NULL), "is not pure") != NULL);
  rounds = gathering();
  rounds.begin_all = 1;
  setting.failures = 1;
  for (setting.seed = 0; setting.seed < 16; setting.seed++) {
    EXPECT(ftsort_rounds_simulate(&rounds, &setting, NULL, NULL, &result) == FTSORT_OK);
    ftsort_result_free(result);
  }
  EXPECT(ftsort_rounds_simulate(&rounds, NULL, NULL, NULL, &result) == FTSORT_OK);
  EXPECT(ftsort_result_block(result, 0, &state) == FTSORT_OK && state.count == 12);
  EXPECT(memcmp(state.data, "<0><1><2><3>", 12) == 0);
  ftsort_result_free(result);
}

/* ---- With failures ---- */

static void with_failures(const char *algorithm, const char *store, const char *dir)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_rounds rounds = strcmp(algorithm, "sort") == 0 ? quick_sort() : gathering();
  ftsort_result *result = NULL;
  ftsort_block state;
  ftsort_status status;
  int32_t list[2000], all[20000];
  char text[64];
  size_t i, bytes, total = 0;
  int node, sorts = strcmp(algorithm, "sort") == 0;
  config.store = strcmp(store, "directory") == 0 ? FTSORT_STORE_DIRECTORY
                 : strcmp(store, "none") == 0    ? FTSORT_STORE_NONE
                 : strcmp(store, "reload") == 0  ? FTSORT_STORE_RELOAD
                 : strcmp(store, "parity") == 0  ? FTSORT_STORE_PARITY
                                                 : FTSORT_STORE_MEMORY;
  config.store_directory = dir;
  if (strcmp(store, "none") != 0) config.reload = sorts ? reload_list : reload_text;
  if (strcmp(store, "checked") == 0) config.checks = FTSORT_CHECK_DIGEST;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) exit(3);
  bytes = sorts ? 4 * list_of(rank, list) : text_of(rank, ranks, text);
  status = ftsort_rounds_run(group, &rounds, sorts ? (const void *)list : text, bytes, &result);
  if (status != FTSORT_OK) printf("status=%d: %s\n", status, ftsort_last_error(group));
  for (node = 0; node < ranks; node++) total += list_of(node, all + total);
  qsort(all, total, sizeof *all, by_value);
  for (i = 0; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
    int right = sorts ? is_sorted(&state, all, total) : has_all_texts(&state, ranks, 1 << ftsort_dimension(group));
    const int32_t *found = (const int32_t *)state.data;
    size_t count = sorts ? state.count / 4 : 0;
    printf("node %d: %s, %d numbers from %d to %d\n", (int)state.node, right ? "right" : "WRONG", (int)count,
           count ? (int)found[0] : 0, count ? (int)found[count - 1] : 0);
  }
  ftsort_result_free(result);
  ftsort_leave(group, 0);
}

int main(int argc, char **argv)
{
  const char *algorithm = argc > 1 ? argv[1] : "args";
  ftsort_allow_faults();
  start_mpi(&argc, &argv);
  if (strcmp(algorithm, "args") != 0) with_failures(algorithm, argc > 2 ? argv[2] : "memory", argc > 3 ? argv[3] : "");
  if (ftsort_init(MPI_COMM_WORLD, NULL, &group) != FTSORT_OK) return 3;
  bad_arguments();
  different_callbacks();
  failing_callbacks();
  run_gathering(group, "memory");
  sharing();
  buffers();
  purity();
  sort_as_the_built_in();
  if (rank == 0) simulation();
  report("rounds");
  ftsort_leave(group, failures != 0);
  return 1;
}
