/* Sorts structs by two keys, a number in descending order and a text, while a rank kills itself with SIGKILL.
 *
 *   stars TEXT ALGORITHM      (under mpirun, 2 to 8 ranks)
 *
 * TEXT: the size of a unit of the text in bytes, 1, 2 or 4. Rank 1 kills itself when round 1 has been committed.
 * The survivors compare the result with a stable sort of all inputs. The lowest one prints "stars: fine". */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "ftsort.h"

/* More than an input that is sorted without rounds. */
enum { COUNT = 12000, MOST_RANKS = 8, UNITS = 12 };

struct star {
  float magnitude;
  uint32_t place; /* ascends with rank and position */
  union { char text[UNITS]; uint16_t text16[UNITS]; uint32_t text32[UNITS]; } name;
};

static int unit, kills;

static void kill_myself(void *user, const ftsort_event *event)
{
  (void)user;
  if (kills && rank == 1 && event->kind == FTSORT_EVENT_ROUND && event->round == 1) kill(getpid(), SIGKILL);
}

static void set_unit(struct star *star, int i, uint32_t value)
{
  if (unit == 1) star->name.text[i] = (char)value;
  else if (unit == 2) star->name.text16[i] = (uint16_t)value;
  else star->name.text32[i] = value;
}

static uint32_t unit_of(const struct star *star, int i)
{
  if (unit == 1) return (unsigned char)star->name.text[i];
  return unit == 2 ? star->name.text16[i] : star->name.text32[i];
}

/* Few magnitudes, and names of different lengths with any bytes behind their ends. */
static void fill(struct star *stars, int owner)
{
  static const float magnitudes[] = {-1.5f, -0.0f, 0.0f, 1.25f, 6.0f};
  uint32_t state = 2463534242u + 7919u * (uint32_t)owner, i;
  int k;
  memset(stars, 0, COUNT * sizeof *stars);
  for (i = 0; i < COUNT; i++) {
    int length;
    state = state * 1664525u + 1013904223u;
    length = (int)(state >> 24) % (UNITS + 1);
    stars[i].magnitude = magnitudes[(state >> 16) % 5];
    stars[i].place = (uint32_t)owner * COUNT + i;
    for (k = 0; k < UNITS; k++) {
      uint32_t some = state >> (k + 2);
      set_unit(&stars[i], k, k == length ? 0 : k < length ? 0xf0 + some % 2 : some);
    }
  }
}

static int order_of_names(const struct star *one, const struct star *other)
{
  int i;
  for (i = 0; i < UNITS; i++) {
    uint32_t a = unit_of(one, i), b = unit_of(other, i);
    if (a != b) return a < b ? -1 : 1;
    if (a == 0) break;
  }
  return 0;
}

/* Of floating-point zeros the positive one is the greater. */
static int64_t rank_of(float number)
{
  int32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits < 0 ? -(int64_t)(bits & INT32_MAX) - 1 : bits;
}

static int order_of_stars(const void *a, const void *b)
{
  const struct star *one = (const struct star *)a, *other = (const struct star *)b;
  int64_t x = rank_of(one->magnitude), y = rank_of(other->magnitude);
  int names = order_of_names(one, other);
  if (x != y) return x > y ? -1 : 1;
  if (names) return names;
  return one->place < other->place ? -1 : one->place > other->place;
}

/* Compares the blocks of this rank with all stars in order, and returns the number of their records. */
static uint64_t compare_blocks(const ftsort_result *result, const struct star *all)
{
  uint64_t found = 0;
  ftsort_block block;
  size_t i;
  for (i = 0; i < ftsort_result_count(result); i++) {
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    EXPECT(block.offset + block.count <= (uint64_t)ranks * COUNT);
    if (block.offset + block.count > (uint64_t)ranks * COUNT) break;
    EXPECT(memcmp(block.data, all + block.offset, block.count * sizeof *all) == 0);
    found += block.count;
  }
  return found;
}

static void sort_stars(ftsort *group, const struct star *mine, const struct star *all)
{
  static const int32_t kinds[] = {0, FTSORT_KEY_TEXT, FTSORT_KEY_TEXT16, 0, FTSORT_KEY_TEXT32};
  ftsort_key_part keys[] = {FTSORT_KEY_PART(struct star, magnitude, FTSORT_KEY_F32),
                            FTSORT_KEY_PART(struct star, name, FTSORT_KEY_TEXT)};
  ftsort_record record = FTSORT_RECORD_LIST(struct star, keys);
  ftsort_result *result = NULL;
  uint64_t found = 0, total = 0;
  MPI_Comm comm;
  keys[0].descending = 1;
  keys[1].key = kinds[unit];
  keys[1].bytes = (size_t)(UNITS * unit);
  record.stable = 1;
  EXPECT(ftsort_run(group, &record, mine, COUNT, &result) == FTSORT_OK);
  memset(keys, 0xff, sizeof keys); /* the keys are borrowed for the call only */
  if (result) found = compare_blocks(result, all);
  EXPECT(ftsort_comm(group, &comm) == FTSORT_OK);
  MPI_Allreduce(&found, &total, 1, MPI_UINT64_T, MPI_SUM, comm);
  EXPECT(total == (uint64_t)ranks * COUNT && ftsort_result_total(result) == total);
  ftsort_result_free(result);
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL;
  struct star *all;
  int owner;
  if (argc != 3) return 2;
  unit = atoi(argv[1]);
  start_mpi(&argc, &argv);
  all = (struct star *)malloc((size_t)(ranks + 1) * COUNT * sizeof *all);
  if (all == NULL || ranks < 2 || ranks > MOST_RANKS) return 2;
  config.algorithm = atoi(argv[2]);
  config.on_event = kill_myself;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (owner = 0; owner < ranks; owner++) fill(all + owner * COUNT, owner);
  memcpy(all + ranks * COUNT, all + rank * COUNT, COUNT * sizeof *all); /* the input of this rank */
  qsort(all, (size_t)ranks * COUNT, sizeof *all, order_of_stars);
  kills = 1;
  sort_stars(group, all + ranks * COUNT, all);
  EXPECT(ftsort_is_failed(group, 1));
  if (failures) fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
  else if (rank == 0) printf("stars: fine\n");
  free(all);
  ftsort_leave(group, failures != 0);
  return 1;
}
