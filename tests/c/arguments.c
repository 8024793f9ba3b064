/* Calls the functions with random arguments. Each call must return a documented status, the same one on all ranks,
 * and the group must be usable afterwards. Structs are drawn from a seed, the same on all ranks or different on one:
 * pointers are NULL or valid, and numbers have any value.
 *
 *   arguments DIR [SECONDS [SEED [GROUP]]]      (under mpirun, up to 64 ranks)
 *
 * Makes groups until the time is over, beginning with group number GROUP of the seed. Prints the seed first, and
 * "arguments: fine" on rank 0 if all statuses are right. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort_all.h"

#define ROOM 4096 /* bytes of an input */
#define CALLS 24  /* of each group */
#define LINKS 4
#define PARTS 3
#define MOST_RANKS 64

static long number_of_group;
static const char *volatile doing = "no call";

/* No call takes long: the alarm means that a call hangs. */
static void on_alarm(int number)
{
  char text[200];
  int length = snprintf(text, sizeof text, "rank %d hangs in group %ld, %s\n", rank, number_of_group, doing);
  (void)number;
  if (write(2, text, (size_t)length) < 0) _exit(3);
  _exit(2);
}

/* The state of splitmix64: the same on all ranks, except between `apart` and `together`. */
static uint64_t common;

static uint64_t mix(uint64_t x)
{
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t draw(void) { return mix(common += 0x9e3779b97f4a7c15u); }

static uint64_t below(uint64_t n) { return draw() % n; }

/* A number that is small, near a limit, or any. */
static uint64_t number(void)
{
  switch (below(8)) {
  case 0: return draw();
  case 1: return ~(uint64_t)0 - below(4);
  case 2: return (uint64_t)INT64_MAX + below(3) - 1;
  case 3: return (uint64_t)1 << below(64);
  case 4: return (uint32_t)draw();
  default: return below(20);
  }
}

/* Usually the valid value. */
static uint64_t mostly(uint64_t valid) { return below(24) == 0 ? number() : valid; }

/* The size of a struct: the full one, a shorter one, or any number. */
static size_t size_of_struct(size_t full)
{
  if (below(24) == 0) return (size_t)number();
  return below(12) == 0 ? sizeof(size_t) * (1 + below(full / sizeof(size_t))) : full;
}

static int on_reload(void *user, int32_t owner, ftsort_buffer *out)
{
  (void)user, (void)owner, (void)out;
  return 1;
}

static void on_event(void *user, const ftsort_event *event)
{
  (void)user;
  EXPECT(event->struct_size == sizeof *event);
}

static void on_log(void *user, int level, const char *line)
{
  (void)user;
  EXPECT(level >= 0 && level <= 2 && line[0] != '\0');
}

static char user_of_compare;

static int compare(void *user, const void *a, const void *b)
{
  /* A result may have records of another size than the latest draw: every record has a first byte. */
  /* A shorter struct has no `user`. */
  EXPECT(user == NULL || user == &user_of_compare);
  return memcmp(a, b, 1);
}

static int merge(void *user, const void *low, size_t low_bytes, const void *high, size_t high_bytes, ftsort_buffer *out)
{
  char *bytes = ftsort_buffer_resize(out, low_bytes + high_bytes);
  (void)user;
  if (bytes == NULL) return 1;
  memcpy(bytes, low, low_bytes);
  memcpy(bytes + low_bytes, high, high_bytes);
  return 0;
}

static int consume(void *user, const void *records, size_t count)
{
  (void)user;
  EXPECT(records != NULL && count > 0);
  return below(16) == 0;
}

/* Checks that a status is documented and the same on all ranks, or that some ranks report an invalid argument and
 * all others that a peer does; and that an error has a text. If any rank has found a mistake, all ranks stop,
 * because no rank may wait for one that has stopped: then it returns 0. */
static int agreed(ftsort_status status, const char *text)
{
  int32_t all[2 * MOST_RANKS], mine[2];
  int i, wrong = 0, alike = 1, stop = 0;
  EXPECT(strcmp(ftsort_status_text(status), "unknown status") != 0);
  EXPECT(status == FTSORT_OK || text[0] != '\0');
  /* No rank has failed. ftsort_run_stored needs a name for the states, which no group here has. */
  EXPECT(status > FTSORT_ERR_DATA_LOST && status != FTSORT_ERR_NO_ULFM);
  EXPECT(status != FTSORT_ERR_STATE || strcmp(doing, "ftsort_run_stored") == 0);
  mine[0] = status;
  mine[1] = failures;
  MPI_Allgather(mine, 2, MPI_INT32_T, all, 2, MPI_INT32_T, MPI_COMM_WORLD);
  for (i = 0; i < 2 * ranks; i += 2) {
    wrong |= all[i] == FTSORT_ERR_ARGUMENT;
    alike &= all[i] == all[0];
    stop |= all[i + 1] > 0;
  }
  for (i = 0; i < 2 * ranks && !alike; i += 2)
    stop |= all[i] != FTSORT_ERR_ARGUMENT && all[i] != FTSORT_ERR_PEER_ARGUMENT;
  stop |= status == FTSORT_ERR_PEER_ARGUMENT && !wrong;
  if (stop) {
    fprintf(stderr, "rank %d, group %ld, %s: status %d, %s\n", rank, number_of_group, doing, status, text);
    failures++;
  }
  return !stop;
}

/* From here on, until `together`, one rank may draw other values than all others. */
static uint64_t apart(void)
{
  uint64_t kept = draw();
  if (below(3) == 0 && (int)(kept % (uint64_t)ranks) == rank) common++;
  return kept;
}

static void together(uint64_t kept) { common = kept; }

/* Checks that the group can be used. One that merges bitonic sequences refuses if ranks are no power of two. */
static ftsort_status sort_valid(ftsort *group)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  int32_t data[50];
  ftsort_result *result = NULL;
  uint64_t wrong = 9;
  ftsort_status status;
  int i;
  doing = "a valid sort";
  for (i = 0; i < 50; i++) data[i] = rank * 50 + i; /* valid for every algorithm */
  status = ftsort_run(group, &plain, data, 50, &result);
  if (status == FTSORT_OK) {
    EXPECT(ftsort_result_total(result) == (uint64_t)(50 * ranks));
    status = ftsort_result_verify(group, result, data, 50, &wrong);
    EXPECT(wrong == 0);
    ftsort_result_free(result);
  }
  EXPECT(status == FTSORT_OK || ((ranks & (ranks - 1)) && strstr(ftsort_last_error(group), "on 2^d ranks")));
  return status;
}

/* The arguments of one call. */
typedef struct given {
  unsigned char room[ROOM];
  ftsort_record record;
  ftsort_key_part parts[PARTS];
  size_t record_bytes;
  const ftsort_record *a_record;
  ftsort_tree_options tree;
  int32_t links[2 * LINKS];
  const ftsort_tree_options *a_tree;
  size_t bytes, count;
  const void *input;
  int has_place;
} given;

static void draw_record(given *g)
{
  static const size_t widths[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
  ftsort_record *record = &g->record;
  int i;
  memset(record, 0, sizeof *record);
  record->struct_size = size_of_struct(sizeof *record);
  record->key = (int32_t)mostly(1 + below(16));
  record->record_bytes = (size_t)mostly(1 + below(40));
  record->descending = (int32_t)mostly(below(2));
  record->stable = (int32_t)mostly(below(2));
  if (record->key >= 1 && record->key <= 10 && below(2)) record->record_bytes = widths[record->key];
  if (record->key >= FTSORT_KEY_TEXT && below(4)) record->record_bytes = 4 * (size_t)(1 + below(10));
  if (record->key == FTSORT_KEY_BYTES || (record->key >= FTSORT_KEY_TEXT && record->key <= FTSORT_KEY_TEXT32))
    record->key_bytes = (size_t)mostly(record->record_bytes);
  if (below(16) == 0) record->key_offset = (size_t)number();
  if (below(16) == 0) record->key_bytes = (size_t)number();
  if ((record->key == FTSORT_KEY_COMPARE) != (below(16) == 0)) record->compare = compare;
  for (i = 0; i < PARTS; i++) {
    ftsort_key_part *part = &g->parts[i];
    part->key = (int32_t)mostly(1 + below(15));
    part->offset = (size_t)mostly(below(8));
    part->bytes = (size_t)mostly(part->key > FTSORT_KEY_F64 ? 4 * (1 + below(4)) : 0);
    part->descending = (int32_t)mostly(below(2));
  }
  /* At most the existing number if there are parts; any number if there are none. */
  if ((record->key == FTSORT_KEY_LIST) != (below(16) == 0)) {
    record->parts = below(16) ? g->parts : NULL;
    record->part_count = record->parts ? (size_t)below(PARTS + 1) : (size_t)number();
  }
  g->record_bytes = record->record_bytes < ROOM ? record->record_bytes : 0;
  record->user = &user_of_compare;
  g->a_record = below(24) ? record : NULL;
}

/* A count, and a pointer that is valid for as many records, or NULL. */
static const void *draw_input(const given *g, size_t *count)
{
  size_t size = g->record.record_bytes, most = size == 0 ? ROOM : ROOM / size;
  *count = below(4) == 0 ? (size_t)number() : (size_t)below(most + 1);
  if (below(16) == 0) return NULL;
  /* The library cannot know the size of the input: all that it would read must exist. */
  if (size > 0 && *count > most && *count <= (size_t)PTRDIFF_MAX / size) *count = 0;
  return g->room;
}

static void draw_tree(given *g)
{
  ftsort_tree_options *tree = &g->tree;
  int i;
  memset(tree, 0, sizeof *tree);
  tree->struct_size = size_of_struct(sizeof *tree);
  tree->has_sink = (int32_t)mostly(below(2));
  tree->sink = (int32_t)mostly(below((uint64_t)ranks));
  tree->operation = (int32_t)mostly(below(8));
  tree->key = (int32_t)mostly(1 + below(10));
  tree->ordered = (int32_t)mostly(below(2));
  tree->reroute = (int32_t)mostly(below(3));
  /* No link is as slow as this, however busy the machine is. */
  if (below(16) == 0) tree->detect_ms = 100000 + (uint32_t)number() % 1000000;
  for (i = 0; i < 2 * LINKS; i++) g->links[i] = (int32_t)mostly(below((uint64_t)ranks));
  if (below(4) == 0) tree->link_count = (size_t)below(LINKS + 1);
  tree->links = below(16) ? g->links : NULL;
  if (tree->links == NULL) tree->link_count = (size_t)number();
  tree->record = g->a_record;
  tree->merge = below(16) ? merge : NULL;
  g->a_tree = below(8) ? tree : NULL;
}

static void draw_given(given *g)
{
  size_t i;
  for (i = 0; i < ROOM; i += 8) {
    uint64_t bits = mix(common + i);
    memcpy(g->room + i, &bits, 8);
  }
  draw_record(g);
  draw_tree(g);
  g->input = draw_input(g, &g->count);
  g->has_place = below(24) > 0;
  switch (below(4)) {
  case 0: g->bytes = (size_t)below(ROOM); break;
  case 1: g->bytes = g->record_bytes; break; /* a list of one record is sorted */
  default: g->bytes = 8 * (size_t)below(ROOM / 8);
  }
}

static ftsort_status run(int stores, ftsort *group, const given *g, ftsort_result **result)
{
  ftsort_result *fresh = NULL;
  ftsort_status status;
  doing = stores ? "ftsort_run_stored" : "ftsort_run";
  status = (stores ? ftsort_run_stored : ftsort_run)(group, g->a_record, g->input, g->count,
                                                     g->has_place ? &fresh : NULL);
  EXPECT((status == FTSORT_OK) == (fresh != NULL));
  if (fresh) {
    ftsort_result_free(*result);
    *result = fresh;
  }
  return status;
}

/* Sorts several arrays, of which one may differ from the others. The first result replaces the last one. */
static ftsort_status run_many(ftsort *group, const given *g, ftsort_result **result)
{
  ftsort_array arrays[5];
  ftsort_result *fresh[5] = {NULL, NULL, NULL, NULL, NULL};
  size_t count = (size_t)below(6), changed = (size_t)below(40), i;
  size_t asked = below(24) ? count : SIZE_MAX - (size_t)below(4);
  ftsort_status status;
  for (i = 0; i < 5; i++) {
    arrays[i].record = i == changed && below(2) ? NULL : g->a_record;
    arrays[i].data = g->input;
    arrays[i].count = i == changed && below(2) ? SIZE_MAX - (size_t)below(4) : g->count;
  }
  doing = "ftsort_run_many";
  status = ftsort_run_many(group, below(24) ? arrays : NULL, asked, g->has_place ? fresh : NULL);
  for (i = 0; i < 5; i++) {
    EXPECT(fresh[i] == NULL || (status == FTSORT_OK && i < asked));
    if (i == 0 && fresh[i]) ftsort_result_free(*result), *result = fresh[i];
    else ftsort_result_free(fresh[i]);
  }
  return status;
}

/* An operation of ftsort_query.h, the same on all ranks. */
static ftsort_status query(size_t function, ftsort *group, const given *g)
{
  static unsigned char found[4 * ROOM];
  ftsort_aggregate aggregates[3];
  ftsort_result *fresh = NULL, **place = g->has_place ? &fresh : NULL;
  uint64_t positions[4];
  double fractions[4];
  const void *column;
  size_t wanted = below(24) ? (size_t)below(5) : SIZE_MAX, width, i;
  ftsort_status status;
  for (i = 0; i < 4; i++) positions[i] = mostly(below(8));
  for (i = 0; i < 4; i++) fractions[i] = below(16) ? (double)below(5) / 4 : (double)number();
  for (i = 0; i < 3; i++) {
    aggregates[i].aggregation = (int32_t)mostly(1 + below(4));
    aggregates[i].kind = (int32_t)mostly(1 + below(10));
    aggregates[i].offset = (size_t)mostly(below(4));
  }
  if (wanted <= 4 && (g->record.record_bytes > ROOM || below(24) == 0)) wanted = 0;
  switch (function) {
  case 0:
    doing = "ftsort_sort_by_key";
    i = (size_t)below(3);
    /* The library cannot know the size of the values: all that it would read must exist. */
    status = ftsort_sort_by_key(group, g->a_record, g->input, g->room, g->count <= ROOM / 2 ? i : 0, g->count, place);
    break;
  case 1: doing = "ftsort_argsort"; status = ftsort_argsort(group, g->a_record, g->input, g->count, place); break;
  case 2: doing = "ftsort_positions"; status = ftsort_positions(group, g->a_record, g->input, g->count, place); break;
  case 3: doing = "ftsort_unique"; status = ftsort_unique(group, g->a_record, g->input, g->count, place); break;
  case 4:
    doing = "ftsort_group_by";
    status = ftsort_group_by(group, g->a_record, below(16) ? aggregates : NULL, wanted > 3 && wanted < 5 ? 3 : wanted,
                             g->input, g->count, place);
    break;
  case 5: doing = "ftsort_top"; status = ftsort_top(group, g->a_record, g->input, g->count, mostly(9), place); break;
  case 6:
    doing = "ftsort_select";
    return ftsort_select(group, g->a_record, g->input, g->count, below(16) ? positions : NULL, wanted,
                         below(16) ? found : NULL);
  default:
    doing = "ftsort_quantiles";
    return ftsort_quantiles(group, g->a_record, g->input, g->count, below(16) ? fractions : NULL, wanted,
                            below(16) ? found : NULL);
  }
  EXPECT((status == FTSORT_OK) == (fresh != NULL));
  i = (size_t)below(4);
  EXPECT(ftsort_result_column(fresh, 0, i, below(8) ? &column : NULL, below(2) ? &width : NULL) <= FTSORT_OK);
  ftsort_result_free(fresh);
  return status;
}

static ftsort_status protect(ftsort *group, const given *g)
{
  ftsort_input *input = NULL;
  ftsort_result *fresh = NULL;
  ftsort_status status;
  doing = "ftsort_protect";
  status = ftsort_protect(group, g->a_record, g->input, g->count, g->has_place ? &input : NULL);
  EXPECT((status == FTSORT_OK) == (input != NULL));
  if (status != FTSORT_OK) return status;
  doing = "ftsort_run_protected";
  status = ftsort_run_protected(group, input, below(4) ? NULL : g->a_record, below(16) ? &fresh : NULL);
  EXPECT((status == FTSORT_OK) == (fresh != NULL));
  ftsort_result_free(fresh);
  ftsort_input_free(input);
  return status;
}

static ftsort_status merge_on_a_tree(ftsort *group, const given *g)
{
  ftsort_result *merged = NULL;
  ftsort_status status;
  ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
  doing = "ftsort_tree_merge";
  status = ftsort_tree_merge(group, g->a_tree, below(16) ? g->room : NULL, g->bytes, g->has_place ? &merged : NULL);
  EXPECT(ftsort_tree_get_info(group, &info) == FTSORT_OK);
  EXPECT(merged == NULL || (status == FTSORT_OK && info.executor == rank));
  EXPECT(ftsort_result_count(merged) == (merged != NULL));
  ftsort_result_free(merged);
  return status;
}

static ftsort_status collective(size_t function, ftsort *group, given *g, ftsort_result **result)
{
  uint64_t violations = 0;
  uint32_t flags = (uint32_t)draw();
  size_t count, *place = g->has_place ? &count : NULL;
  const void *output;
  ftsort_result *array = NULL;
  int32_t root;
  int committed, status;
  switch (function) {
  case 0:
    doing = "ftsort_result_verify";
    return ftsort_result_verify(group, below(2) ? *result : NULL, NULL, below(8) ? 0 : 1, place ? &violations : NULL);
  case 1:
    doing = "ftsort_result_of_array";
    output = draw_input(g, &count);
    if (below(16) == 0 && count * g->record.record_bytes < ROOM) output = g->room + 1;
    status = ftsort_result_of_array(group, g->a_record, output, count, g->has_place ? &array : NULL);
    EXPECT((status == FTSORT_OK) == (array != NULL));
    status = ftsort_result_verify(group, array, g->input, g->count, place ? &violations : NULL);
    ftsort_result_free(array);
    return status;
  case 2:
    doing = "ftsort_store_commit";
    status = ftsort_store_commit(group, (int)mostly(1), place ? &committed : NULL);
    EXPECT(status != FTSORT_OK || committed == 0 || committed == 1);
    return status;
  case 3: doing = "ftsort_agree"; return ftsort_agree(group, &flags, place);
  case 4: doing = "ftsort_fault_check"; return ftsort_fault_check(group, place);
  case 5: doing = "ftsort_store_clear"; return ftsort_store_clear(group);
  case 6: return merge_on_a_tree(group, g);
  case 7:
    doing = "ftsort_tree_broadcast";
    root = (int32_t)mostly(below((uint64_t)ranks));
    return ftsort_tree_broadcast(group, g->a_tree, root, below(16) ? g->room : NULL, g->bytes);
  case 8:
    doing = "ftsort_gather_sorted";
    return ftsort_gather_sorted(group, g->a_tree, below(16) ? *result : NULL, below(16) ? consume : NULL, NULL);
  case 9: doing = "ftsort_result_recover"; return ftsort_result_recover(group, below(4) ? *result : NULL);
  case 10: return protect(group, g);
  case 11: return run_many(group, g, result);
  case 12: case 13: case 14: case 15: case 16: case 17: case 18: case 19: return query(function - 12, group, g);
  default: return run(function == 20, group, g, result);
  }
}

static void states(ftsort *group, const given *g)
{
  const void *state = NULL;
  size_t bytes = g->bytes;
  int32_t node = (int32_t)mostly((uint64_t)rank);
  ftsort_status status = ftsort_store_put(group, node, below(8) ? g->room : NULL, bytes);
  EXPECT(status == FTSORT_OK || status == FTSORT_ERR_ARGUMENT || status == FTSORT_ERR_MEMORY);
  status = ftsort_store_get(group, node, g->has_place ? &state : NULL, below(2) ? &bytes : NULL);
  EXPECT(status == FTSORT_OK || status == FTSORT_ERR_ARGUMENT);
}

static void queries(ftsort *group, const ftsort_result *result)
{
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_block block;
  ftsort_status status;
  int32_t node = (int32_t)number();
  ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
  stats.struct_size = (size_t)below(sizeof stats + 1);
  EXPECT(ftsort_get_stats(group, &stats) == (stats.struct_size < sizeof(size_t) ? FTSORT_ERR_ARGUMENT : FTSORT_OK));
  EXPECT(ftsort_is_failed(group, node) == (node < 0 || node >= ranks));
  EXPECT(ftsort_executor(group, node) >= -1 && ftsort_partner(group, node, (uint32_t)number()) >= -1);
  EXPECT(ftsort_comm_rank(group, node) >= 0 || ftsort_comm_rank(group, node) == MPI_PROC_NULL);
  EXPECT(ftsort_lost_ranks(group, NULL, (size_t)number()) == 0);
  EXPECT(ftsort_inject(group, (uint32_t)number()) == FTSORT_OK);
  info.struct_size = (size_t)below(sizeof info + 1);
  status = ftsort_tree_get_info(group, &info);
  EXPECT(status == (info.struct_size < sizeof(size_t) ? FTSORT_ERR_ARGUMENT : FTSORT_OK));
  status = ftsort_result_block(result, (size_t)number(), &block);
  EXPECT(status == FTSORT_OK || status == FTSORT_ERR_ARGUMENT);
}

/* Returns 0 if all ranks must stop. */
static int call(ftsort *group, ftsort_result **result)
{
  static given g;
  ftsort_status status;
  size_t function = (size_t)below(26);
  uint64_t kept = apart();
  alarm(40);
  draw_given(&g);
  if (function >= 24) {
    doing = "local functions";
    if (function == 24) states(group, &g);
    else queries(group, *result);
    together(kept);
    return 1;
  }
  status = collective(function, group, &g, result);
  together(kept);
  if (!agreed(status, ftsort_last_error(group))) return 0;
  if (status == FTSORT_OK || below(4)) return 1;
  status = sort_valid(group);
  return agreed(status, ftsort_last_error(group));
}

static ftsort_status make(const char *dir, ftsort **group)
{
  static const char *const texts[] = {"",       "none", "one@", "9@1", "0~9.block", "window=5ms seed=3",
                                      "seed=x", "-1@0", "\xff"};
  static ftsort_config config;
  static char trace[4096];
  memset(&config, 0, sizeof config);
  config.struct_size = size_of_struct(sizeof config);
  config.algorithm = (int32_t)mostly(below(7));
  config.store = (int32_t)mostly(below(4));
  config.pivot = (int32_t)mostly(below(2));
  config.repair = (int32_t)mostly(below(8) == 0);
  config.dense = (int32_t)mostly(below(2));
  config.replicas = (uint32_t)mostly(below(3));
  config.threads = (uint32_t)below(3); /* each group starts as many as it is asked for */
  config.accept_no_ulfm = (int32_t)number();
  if (below(4) == 0) config.timeout_ms = 40000 + (uint32_t)number() % 1000000;
  config.min_survivors = (uint32_t)mostly(below(2));
  if (below(8) == 0) config.memory_limit = (size_t)number();
  if (below(8) > 0) config.store_directory = below(16) ? dir : "/nowhere/at/all";
  config.faults = texts[below(4) ? below(2) : below(9)];
  if (below(16) > 0) config.reload = on_reload;
  if (below(2)) config.on_event = on_event;
  if (below(2)) config.on_log = on_log;
  config.checks = (uint32_t)mostly(below(2));
  snprintf(trace, sizeof trace, "%s/trace", dir);
  config.trace = below(4) ? "" : below(4) ? trace : "/nowhere/at/all";
  doing = "ftsort_init";
  return ftsort_init(MPI_COMM_WORLD, below(24) ? &config : NULL, group);
}

/* Makes a group and calls functions on it; adds to the counts. Returns 0 if all ranks must stop. */
static int test_group(const char *dir, long *made, long *calls)
{
  ftsort *group = (ftsort *)&common;
  ftsort_result *result = NULL;
  ftsort_status status;
  int goes_on, k;
  uint64_t kept;
  alarm(40);
  kept = apart();
  status = make(dir, &group);
  together(kept);
  EXPECT((status == FTSORT_OK) == (group != NULL));
  goes_on = agreed(status, ftsort_last_error(NULL));
  if (group == NULL) return goes_on;
  ++*made;
  for (k = 0; k < CALLS && goes_on; k++, ++*calls) goes_on = call(group, &result);
  doing = "the end"; /* committed states stay in files until they are cleared */
  if (goes_on) goes_on = agreed(ftsort_store_clear(group), ftsort_last_error(group));
  ftsort_result_free(result);
  ftsort_free(group);
  return goes_on;
}

int main(int argc, char **argv)
{
  double end = argc > 2 ? atof(argv[2]) : 5;
  long made = 0, calls = 0, first;
  int goes_on = 1, i;
  uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
  if (argc < 2) return 2;
  start_mpi(&argc, &argv);
  if (ranks > MOST_RANKS) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("arguments: seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  signal(SIGALRM, on_alarm);
  end += MPI_Wtime();
  first = number_of_group = argc > 4 ? atol(argv[4]) : 0;
  for (; goes_on; number_of_group++) {
    int in_time = MPI_Wtime() < end;
    MPI_Bcast(&in_time, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!in_time) break;
    /* Consecutive seeds have no group in common. */
    common = mix(mix(seed) + (uint64_t)number_of_group);
    goes_on = test_group(argv[1], &made, &calls);
  }
  if (rank == 0 && failures == 0)
    printf("arguments: fine, %ld of %ld groups, %ld calls\n", made, number_of_group - first, calls);
  alarm(0);
  MPI_Barrier(MPI_COMM_WORLD);
  for (i = -1; i < ranks && rank == 0; i++) {
    char path[4096];
    snprintf(path, sizeof path, i < 0 ? "%s/trace.json" : "%s/trace.%d.json", argv[1], i);
    unlink(path);
  }
  MPI_Finalize();
  return failures > 0;
}
