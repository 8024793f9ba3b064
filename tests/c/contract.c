/* Promises of the C interface that need MPI: one call that sorts, groups that belong to communicators, callbacks
 * that call back, MPI that is not running, checks that stay on, and figures and lost ranks of the last call.
 *
 *   contract sort        (under mpirun, 2 ranks or more)
 *   contract callbacks
 *   contract figures
 *   contract failure     (FTSORT_FAULTS kills rank 1 in a sort)
 *   contract world       ends by MPI_Finalize; with FTSORT_TRACE=PREFIX the merged trace proves that MPI_Finalize
 *                        released the group of MPI_COMM_WORLD
 *
 * Prints "contract: fine" on the lowest survivor if everything is as documented. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "expect.h"
#include "ftsort_all.h"

static const ftsort_record i32 = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);

/* ---- One call ---- */

typedef struct star {
  char name[4];
  double mass;
  int32_t number;
} star;

static MPI_Datatype star_type(void)
{
  MPI_Datatype parts, whole;
  int lengths[2] = {1, 1};
  MPI_Aint places[2];
  MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT};
  places[0] = (MPI_Aint)offsetof(star, mass);
  places[1] = (MPI_Aint)offsetof(star, number);
  MPI_Type_create_struct(2, lengths, places, types, &parts);
  MPI_Type_create_resized(parts, 0, (MPI_Aint)sizeof(star), &whole);
  MPI_Type_free(&parts);
  return whole;
}

static void sorts_numbers(MPI_Comm comm)
{
  double numbers[3];
  ftsort_result *sorted = NULL;
  ftsort_block block;
  size_t i, k;
  double last = -1;
  for (i = 0; i < 3; i++) numbers[i] = (double)((7 * i + 5 * (size_t)rank) % 11);
  EXPECT(ftsort_sort(comm, numbers, 3, MPI_DOUBLE, &sorted) == FTSORT_OK);
  EXPECT(ftsort_result_total(sorted) == (uint64_t)(3 * ranks));
  for (i = 0; ftsort_result_block(sorted, i, &block) == FTSORT_OK; i++)
    for (k = 0; k < block.count; k++) {
      EXPECT(((const double *)block.data)[k] >= last);
      last = ((const double *)block.data)[k];
    }
  ftsort_result_free(sorted);
}

static void sorts_structs(MPI_Comm comm)
{
  MPI_Datatype type = star_type();
  ftsort_record record;
  ftsort_result *sorted = NULL;
  uint64_t violations = 9;
  ftsort *group;
  star stars[2];
  memset(stars, 0, sizeof stars);
  stars[0].mass = 3.5 - rank;
  stars[1].mass = 10.5 + rank;
  EXPECT(ftsort_record_of_type(type, &record) == FTSORT_OK);
  EXPECT(record.record_bytes == sizeof(star) && record.key == FTSORT_KEY_F64);
  EXPECT(record.key_offset == offsetof(star, mass));
  EXPECT(ftsort_sort(comm, stars, 2, type, &sorted) == FTSORT_OK);
  EXPECT(ftsort_group_of(comm, &group) == FTSORT_OK);
  EXPECT(ftsort_result_verify(group, sorted, stars, 2, &violations) == FTSORT_OK && violations == 0);
  ftsort_result_free(sorted);
  MPI_Type_free(&type);
}

static void refuses_types(MPI_Comm comm)
{
  ftsort_result *sorted = (ftsort_result *)&failures;
  ftsort_record record;
  MPI_Datatype vector;
  int32_t numbers[2] = {2, 1};
  MPI_Type_vector(2, 1, 3, MPI_INT, &vector);
  EXPECT(ftsort_record_of_type(vector, &record) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_record_of_type(MPI_LONG_DOUBLE, &record) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_record_of_type(MPI_INT, NULL) == FTSORT_ERR_ARGUMENT);
  MPI_Type_free(&vector);
  /* On one rank only: the others must not wait for it. */
  EXPECT(ftsort_sort(comm, numbers, 2, rank == 1 ? MPI_LONG_DOUBLE : MPI_INT, &sorted) ==
         (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  EXPECT(sorted == NULL);
  EXPECT(rank != 1 || strstr(ftsort_last_error(NULL), "MPI_LONG_DOUBLE") != NULL);
  EXPECT(ftsort_sort(comm, numbers, 2, MPI_INT, rank == 1 ? NULL : &sorted) ==
         (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
}

static void one_call(void)
{
  MPI_Comm first, second;
  ftsort *group = NULL, *again = NULL, *copy = NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &first);
  sorts_numbers(first);
  sorts_structs(first);
  refuses_types(first);
  EXPECT(ftsort_group_of(first, &group) == FTSORT_OK && group != NULL);
  ftsort_free(group); /* no effect: the group belongs to `first` */
  EXPECT(ftsort_group_of(first, &again) == FTSORT_OK && again == group);
  EXPECT(ftsort_rank(group) == rank && ftsort_ranks(group) == ranks);
  EXPECT(ftsort_group_of(first, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_group_of(MPI_COMM_NULL, &again) == FTSORT_ERR_ARGUMENT && again == NULL);
  MPI_Comm_dup(first, &second); /* does not copy the group */
  EXPECT(ftsort_group_of(second, &copy) == FTSORT_OK && copy != group);
  MPI_Comm_free(&first);
  sorts_numbers(second);
  MPI_Comm_free(&second);
  sorts_numbers(MPI_COMM_WORLD);
}

static void refuses_inter_communicators(void)
{
  MPI_Comm half, inter;
  ftsort *group = (ftsort *)&failures;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 17, &inter);
  EXPECT(ftsort_init(inter, NULL, &group) == FTSORT_ERR_ARGUMENT && group == NULL);
  EXPECT(strstr(ftsort_last_error(NULL), "inter-communicator") != NULL);
  EXPECT(ftsort_group_of(inter, &group) == FTSORT_ERR_ARGUMENT && group == NULL);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

/* ---- Outputs after an error ---- */

/* Functions set their outputs to NULL or 0 before they look at the group. `local`: whether functions that do not need
 * MPI have this status, too. */
static void outputs_are_null(ftsort *group, ftsort_status status, int local)
{
  const ftsort_array array = {&i32, NULL, 0};
  ftsort_result *result, *results[2];
  ftsort_input *input;
  const ftsort_monitor *monitor;
  const void *state;
  size_t size, count;
  uint32_t flags = 5;
  int32_t number = 1;
  int committed;
#define EXPECT_NULL(place, call)         \
  do {                                   \
    (place) = (void *)&failures;         \
    EXPECT((call) == status);            \
    EXPECT((place) == NULL);             \
  } while (0)
  EXPECT_NULL(result, ftsort_run(group, &i32, &number, 1, &result));
  EXPECT_NULL(input, ftsort_protect(group, &i32, &number, 1, &input));
  EXPECT_NULL(result, ftsort_run_protected(group, NULL, NULL, &result));
  EXPECT_NULL(result, ftsort_sort_by_key(group, &i32, &number, &number, 4, 1, &result));
  EXPECT_NULL(result, ftsort_argsort(group, &i32, &number, 1, &result));
  EXPECT_NULL(result, ftsort_positions(group, &i32, &number, 1, &result));
  EXPECT_NULL(result, ftsort_top(group, &i32, &number, 1, 1, &result));
  EXPECT_NULL(result, ftsort_unique(group, &i32, &number, 1, &result));
  EXPECT_NULL(result, ftsort_group_by(group, &i32, NULL, 0, &number, 1, &result));
  EXPECT_NULL(result, ftsort_rounds_run(group, NULL, &number, 4, &result));
  EXPECT_NULL(result, ftsort_tree_merge(group, NULL, &number, 4, &result));
  EXPECT_NULL(monitor, ftsort_monitor_start(group, NULL, &monitor));
  if (local) {
    EXPECT_NULL(result, ftsort_result_of_array(group, &i32, &number, 1, &result));
    EXPECT_NULL(state, ftsort_store_get(group, 0, &state, NULL));
  }
  size = count = 7;
  committed = 7;
  if (local) EXPECT(ftsort_store_get(group, 0, &state, &size) == status && size == 0);
  EXPECT(ftsort_store_commit(group, 1, &committed) == status && committed == 0);
  EXPECT(ftsort_fault_check(group, &count) == status && count == 0);
  count = 7;
  EXPECT(ftsort_agree(group, &flags, &count) == status && count == 0 && flags == 5);
  results[1] = (void *)&failures;
  EXPECT_NULL(results[0], ftsort_run_many(group, &array, 2, results));
  EXPECT(results[1] == NULL);
#undef EXPECT_NULL
}

/* ---- Callbacks that call back ---- */

static ftsort *busy;
static int calls_back;

static void on_event(void *user, const ftsort_event *event)
{
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
  uint64_t first = 7, count = 7;
  uint32_t flags = 0;
  (void)user, (void)event;
  if (busy == NULL) return;
  calls_back++;
  outputs_are_null(busy, FTSORT_ERR_STATE, 1);
  EXPECT(strstr(ftsort_last_error(busy), "busy") != NULL);
  EXPECT(ftsort_fault_check(busy, NULL) == FTSORT_ERR_STATE);
  EXPECT(ftsort_agree(busy, &flags, NULL) == FTSORT_ERR_STATE);
  EXPECT(ftsort_get_stats(busy, &stats) == FTSORT_ERR_STATE);
  EXPECT(ftsort_tree_get_info(busy, &info) == FTSORT_ERR_STATE);
  EXPECT(ftsort_tree_share(busy, NULL, 9, &first, &count) == FTSORT_ERR_STATE && first == 0 && count == 0);
  EXPECT(ftsort_leave(busy, 3) == FTSORT_ERR_STATE);
  ftsort_free(busy);
  EXPECT(ftsort_is_failed(busy, rank) == 1 && ftsort_executor(busy, rank) == -1);
  EXPECT(ftsort_partner(busy, rank, 0) == -1 && ftsort_lost_ranks(busy, NULL, 0) == 0);
  EXPECT(ftsort_comm_rank(busy, rank) == MPI_PROC_NULL);
  EXPECT(ftsort_rank(busy) == rank && ftsort_ranks(busy) == ranks);
}

static void callbacks(void)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_result *result = NULL;
  ftsort *group = NULL;
  int32_t numbers[2] = {2, 1};
  config.on_event = on_event;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  busy = group;
  EXPECT(ftsort_run(group, &i32, numbers, 2, &result) == FTSORT_OK);
  EXPECT(calls_back > 0 && ftsort_result_total(result) == (uint64_t)(2 * ranks));
  EXPECT(ftsort_is_failed(group, rank) == 0 && ftsort_last_error(group)[0] == '\0');
  ftsort_result_free(result);
  busy = NULL;
  ftsort_free(group);
}

/* ---- Figures of the last sort ---- */

static int same_figures(ftsort *group, const ftsort_stats *before)
{
  ftsort_stats now = FTSORT_STATS_INIT;
  EXPECT(ftsort_get_stats(group, &now) == FTSORT_OK);
  /* The members before `algorithm` have no gaps between them. */
  return memcmp(&now, before, offsetof(ftsort_stats, algorithm)) == 0 && now.algorithm == before->algorithm &&
         now.corruptions == before->corruptions && now.injected == before->injected;
}

/* The checks of 1989 stay on when another algorithm is selected, and only FTSORT_BITONIC has them. */
static void selection_with_checks(void)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  config.algorithm = FTSORT_BITONIC;
  config.checks = FTSORT_CHECK_PROGRESS | FTSORT_CHECK_FEASIBILITY | FTSORT_CHECK_CONSISTENCY;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  EXPECT(ftsort_set_algorithm(group, FTSORT_QUICKMERGE, FTSORT_PIVOT_SAMPLED) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "algorithm is FTSORT_BITONIC") != NULL);
  EXPECT(ftsort_set_algorithm(group, FTSORT_BITONIC, FTSORT_PIVOT_SAMPLED) == FTSORT_OK);
  ftsort_free(group);
}

static void figures(void)
{
  ftsort_stats stats = FTSORT_STATS_INIT;
  ftsort_result *result = NULL, *merged = NULL;
  ftsort *group = NULL;
  int32_t numbers[2] = {2, 1};
  uint32_t flags = 1;
  uint64_t violations;
  int committed;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  EXPECT(ftsort_run(group, &i32, numbers, 2, &result) == FTSORT_OK);
  EXPECT(ftsort_get_stats(group, &stats) == FTSORT_OK && stats.rounds >= 3);
  EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK && same_figures(group, &stats));
  EXPECT(ftsort_agree(group, &flags, NULL) == FTSORT_OK && same_figures(group, &stats));
  EXPECT(ftsort_result_verify(group, result, NULL, 0, &violations) == FTSORT_OK && same_figures(group, &stats));
  EXPECT(ftsort_store_put(group, rank, "x", 1) == FTSORT_OK);
  EXPECT(ftsort_store_commit(group, 1, &committed) == FTSORT_OK && same_figures(group, &stats));
  EXPECT(ftsort_tree_merge(group, NULL, "x", 1, &merged) == FTSORT_OK && same_figures(group, &stats));
  EXPECT(ftsort_monitor_start(group, NULL, NULL) == FTSORT_OK && same_figures(group, &stats));
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK && same_figures(group, &stats));
  ftsort_result_free(merged);
  ftsort_result_free(result);

  EXPECT(ftsort_store_put(group, rank, numbers, SIZE_MAX / 2 + 1) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "more than the address space holds") != NULL);
  ftsort_free(group);
}

/* Ranks other than the root must not read the buffer, which they cannot in the first call. */
static void broadcast_does_not_read(void)
{
  size_t page = 4096;
  char *buffer = (char *)mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ftsort *group = NULL;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  if (rank == 0) memset(buffer, 7, page);
  else mprotect(buffer, page, PROT_NONE);
  /* The sizes differ, so the call is refused before the buffer is written. */
  EXPECT(ftsort_tree_broadcast(group, NULL, 0, buffer, rank == 0 ? 8 : 16) == FTSORT_ERR_ARGUMENT);
  if (rank != 0) mprotect(buffer, page, PROT_READ | PROT_WRITE);
  EXPECT(ftsort_tree_broadcast(group, NULL, 0, buffer, page) == FTSORT_OK && buffer[page - 1] == 7);
  EXPECT(ftsort_tree_broadcast(group, NULL, 0, rank == 1 ? NULL : buffer, 8) ==
         (rank == 1 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  munmap(buffer, page);
  ftsort_free(group);
}

/* ---- Failures ---- */

static ftsort *failure(void)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_result *result = NULL;
  ftsort *group = NULL;
  int32_t numbers[2] = {2, 1}, lost = -1;
  config.store = FTSORT_STORE_NONE;
  EXPECT(ftsort_init(MPI_COMM_WORLD, &config, &group) == FTSORT_OK);
  EXPECT(ftsort_run(group, &i32, numbers, 2, &result) == FTSORT_ERR_DATA_LOST && result == NULL);
  EXPECT(ftsort_lost_ranks(group, &lost, 1) == 1 && lost == 1);
  EXPECT(ftsort_fault_check(group, NULL) == FTSORT_OK);
  EXPECT(ftsort_lost_ranks(group, NULL, 0) == 0); /* that call has lost nothing */
  return group;
}

/* ---- MPI is not running ---- */

static void without_mpi(ftsort *group, const char *word)
{
  ftsort *made = (ftsort *)&failures;
  ftsort_record record;
  ftsort_result *result = NULL;
  MPI_Comm comm;
  int32_t number = 1;
  EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &made) == FTSORT_ERR_STATE && made == NULL);
  EXPECT(strstr(ftsort_last_error(NULL), word) != NULL);
  EXPECT(ftsort_group_of(MPI_COMM_WORLD, &made) == FTSORT_ERR_STATE && made == NULL);
  EXPECT(ftsort_sort(MPI_COMM_WORLD, &number, 1, MPI_INT, &result) == FTSORT_ERR_STATE && result == NULL);
  EXPECT(ftsort_record_of_type(MPI_INT, &record) == FTSORT_ERR_STATE);
  EXPECT(ftsort_build_info() != NULL);
  outputs_are_null(NULL, FTSORT_ERR_ARGUMENT, 1);
  if (group == NULL) return;
  outputs_are_null(group, FTSORT_ERR_STATE, 0);
  EXPECT(strstr(ftsort_last_error(group), word) != NULL);
  EXPECT(ftsort_fault_check(group, NULL) == FTSORT_ERR_STATE);
  EXPECT(ftsort_comm(group, &comm) == FTSORT_ERR_STATE);
  EXPECT(ftsort_result_of_array(group, NULL, NULL, 0, &result) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), word) == NULL);
  EXPECT(ftsort_leave(group, 5) == FTSORT_ERR_STATE);
  EXPECT(strstr(ftsort_last_error(group), word) != NULL);
  ftsort_free(group);
}

static void on_pipe(int number) { (void)number; }

/* ftsort_prepare ignores SIGPIPE and sets variables, but leaves a handler of the program and a variable that is set. */
static void prepares(void)
{
  static const char name[] = "OMPI_MCA_async_mpi_finalize";
  signal(SIGPIPE, SIG_DFL);
  unsetenv(name);
  EXPECT(ftsort_prepare() == FTSORT_OK && signal(SIGPIPE, on_pipe) == SIG_IGN);
  EXPECT(getenv(name) != NULL && strcmp(getenv(name), "1") == 0);
  setenv(name, "0", 1);
  EXPECT(ftsort_prepare() == FTSORT_OK && signal(SIGPIPE, SIG_DFL) == on_pipe);
  EXPECT(strcmp(getenv(name), "0") == 0);
  unsetenv(name);
}

int main(int argc, char **argv)
{
  const char *part = argc > 1 ? argv[1] : "";
  ftsort *group = NULL;
  without_mpi(NULL, "not initialised");
  prepares();
  ftsort_allow_faults();
  start_mpi(&argc, &argv);
  if (strcmp(part, "failure") == 0) {
    group = failure();
    if (rank == 0) printf("contract: %s\n", failures == 0 ? "fine" : "NOT as documented");
    fflush(stdout);
    ftsort_leave(group, failures != 0);
  }
  if (strcmp(part, "sort") == 0) {
    one_call();
    refuses_inter_communicators();
    EXPECT(ftsort_group_of(MPI_COMM_WORLD, &group) == FTSORT_OK);
    failures = report("contract");
    fflush(stdout);
    ftsort_leave(group, failures != 0); /* also releases the group of the communicator */
  }
  if (strcmp(part, "callbacks") == 0) callbacks();
  if (strcmp(part, "figures") == 0) {
    selection_with_checks();
    figures();
    broadcast_does_not_read();
  }
  if (strcmp(part, "world") == 0) sorts_numbers(MPI_COMM_WORLD);
  else EXPECT(ftsort_init(MPI_COMM_WORLD, NULL, &group) == FTSORT_OK);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  without_mpi(group, "finalised");
  if (rank == 0) printf("contract: %s\n", failures == 0 ? "fine" : "NOT as documented");
  return failures != 0;
}
