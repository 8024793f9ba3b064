/* Computes Y = A x on a grid of nodes, the first example of Leu and Kuo's paper (1996, Section 2.1). Node (i, j) has
 * the block A_ij and the piece x_j, and computes A_ij x_j. A tree adds the products along the rows, and then collects
 * the rows along the first column.
 *
 *   matrix_vector SIZE [LINKS [shares]]     LINKS: pairs of ranks, as in 0-1,2-3, or - for none
 *
 *   ftsort-mpirun -np 4 ./matrix_vector 512 0-2
 *   ftsort-mpirun -np 4 ./matrix_vector 512 1-3,2-3 shares                (no link leads to rank 3)
 *   FTSORT_FAULTS="1@1.send" ftsort-mpirun -np 4 ./matrix_vector 512      (kills rank 1 in round 1)
 *
 * The grid is embedded in the hypercube by Gray code, so that neighbours in the grid are neighbours in the hypercube:
 * the column is in the upper half of a node's bits, the row in the lower half. A tree without faulty links crosses the
 * upper dimensions first, which adds up the rows. With faulty links the order may be different. Therefore a
 * contribution names its rows: the merge adds the rows that both sides have, and keeps the others.
 *
 * With `shares` the grid has one column and a row for each row of the matrix. The rows are divided among the ranks that
 * the faulty links do not separate from the sink (UDD, Sections 3.2 and 3.3), and again after a failure that loses some of them.
 * A rank that is cut off has none, where the blocks of the grid would be refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_store.h"
#include "ftsort_tree.h"
#include "leave.h"
#include "links.h"

static ftsort *group;
static int self, rows, columns; /* of the grid */
static unsigned row_bits;
static int by_shares; /* the rows are divided among the ranks, and not the grid among the nodes */
static long size, height, width; /* of the matrix, and of a block */

/* The matrix and the vector: small integers, so that sums do not depend on the order of additions. */
static int64_t a(long i, long j) { return (i * 31 + j * 17) % 101 - 50; }
static int64_t x(long j) { return j % 13 - 6; }

/* The index with this Gray code. */
static int from_gray(int code)
{
  int place = 0;
  for (; code; code >>= 1) place ^= code;
  return place;
}

/* A contribution is a list of strips in ascending order of rows: the row of the grid, and `height` sums. */
static size_t strip_words(void) { return 1 + (size_t)height; }

/* Step 2 of the paper: y_ij = A_ij x_j. */
static void multiply(int i, int j, int64_t *strip)
{
  long r, c;
  strip[0] = i;
  for (r = 0; r < height; r++) {
    strip[1 + r] = 0;
    for (c = 0; c < width; c++) strip[1 + r] += a(i * height + r, j * width + c) * x(j * width + c);
  }
}

/* Steps 3 and 4. Sizes are multiples of the size of a strip. */
static int merge(void *user, const void *low, size_t low_bytes, const void *high, size_t high_bytes,
                 ftsort_buffer *out)
{
  const size_t words = strip_words(), strip = words * sizeof(int64_t);
  const int64_t *one = (const int64_t *)low, *other = (const int64_t *)high;
  size_t n = low_bytes / strip, m = high_bytes / strip, i = 0, k = 0, count = 0, w;
  int64_t *sums;
  (void)user;
  while (i < n || k < m) { /* counts the different rows */
    int take_one = k == m || (i < n && one[i * words] <= other[k * words]);
    int take_other = i == n || (k < m && other[k * words] <= one[i * words]);
    i += (size_t)take_one;
    k += (size_t)take_other;
    count++;
  }
  sums = (int64_t *)ftsort_buffer_resize(out, count * strip);
  if (sums == NULL) return 1;
  for (i = k = 0; i < n || k < m; sums += words) {
    int take_one = k == m || (i < n && one[i * words] <= other[k * words]);
    int take_other = i == n || (k < m && other[k * words] <= one[i * words]);
    sums[0] = take_one ? one[i * words] : other[k * words];
    for (w = 1; take_one && w < words; w++) sums[w] += one[i * words + w];
    for (w = 1; take_other && w < words; w++) sums[w] += other[k * words + w];
    i += (size_t)take_one;
    k += (size_t)take_other;
  }
  return 0;
}

/* Returns the strips of the rows that this rank has as its share. */
static int64_t *share_of_strips(const ftsort_tree_options *options, size_t *count)
{
  uint64_t first, number, i;
  int64_t *strips;
  /* The options are the same on all ranks, and so is an error. */
  check(group, ftsort_tree_share(group, options, (uint64_t)rows, &first, &number));
  strips = (int64_t *)malloc((number + 1) * strip_words() * sizeof *strips);
  if (strips == NULL) fail_alone("matrix_vector: no memory for the strips");
  for (i = 0; i < number; i++) multiply((int)(first + i), 0, strips + i * strip_words());
  *count = (size_t)number;
  return strips;
}

/* Returns the strips of the nodes that this rank executes. Nodes of the same row are added up, because a contribution
 * has each row once. */
static int64_t *my_strips(size_t *count)
{
  int64_t *sums = (int64_t *)calloc((size_t)rows * strip_words(), sizeof *sums);
  int64_t *strip = (int64_t *)malloc(strip_words() * sizeof *strip);
  char *has = (char *)calloc((size_t)rows, 1);
  int node, i;
  long r;
  if (sums == NULL || strip == NULL || has == NULL) fail_alone("matrix_vector: no memory for the strips");
  for (node = 0; node < rows * columns; node++) {
    if (ftsort_executor(group, node) != self) continue;
    multiply(from_gray(node & ((1 << row_bits) - 1)), from_gray(node >> row_bits), strip);
    i = (int)strip[0];
    has[i] = 1;
    sums[(size_t)i * strip_words()] = i;
    for (r = 1; r <= height; r++) sums[(size_t)i * strip_words() + (size_t)r] += strip[r];
  }
  *count = 0;
  for (i = 0; i < rows; i++) {
    if (!has[i]) continue;
    memmove(sums + *count * strip_words(), sums + (size_t)i * strip_words(), strip_words() * sizeof *sums);
    (*count)++;
  }
  free(strip);
  free(has);
  return sums;
}

static int is_right(const int64_t *strips, size_t bytes)
{
  long i, j, wrong = bytes != (size_t)rows * strip_words() * sizeof *strips;
  for (i = 0; i < size && !wrong; i++) {
    int64_t y = 0;
    for (j = 0; j < size; j++) y += a(i, j) * x(j);
    wrong = strips[(size_t)(i / height) * strip_words() + 1 + (size_t)(i % height)] != y;
  }
  return !wrong;
}

int main(int argc, char **argv)
{
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort_result *result = NULL;
  ftsort_status status;
  int32_t links[2 * MAX_LINKS];
  int right = 1, failed;
  unsigned bits;

  group = make_group(&argc, &argv, NULL);
  self = ftsort_rank(group);
  bits = (unsigned)ftsort_dimension(group);
  row_bits = bits / 2;
  rows = 1 << row_bits;
  columns = 1 << (bits - row_bits);
  by_shares = argc > 3 && strcmp(argv[3], "shares") == 0;
  /* All blocks have the same size: the matrix is enlarged to a multiple of the grid. */
  size = argc > 1 ? atol(argv[1]) : 512;
  size = (size + columns - 1) / columns * columns; /* also a multiple of `rows`, which is not greater */
  if (by_shares) {
    rows = (int)size;
    columns = 1;
  }
  height = size / rows;
  width = size / columns;
  options.operation = FTSORT_TREE_CALL;
  options.merge = merge;
  options.link_count = argc > 2 ? read_links(argv[2], links) : 0;
  options.links = links;

  do { /* repeated if a rank failed before its contribution was stored: other ranks compute it */
    size_t count;
    int64_t *strips = by_shares ? share_of_strips(&options, &count) : my_strips(&count);
    failed = failed_ranks(group);
    status = ftsort_tree_merge(group, &options, strips, count * strip_words() * sizeof *strips, &result);
    free(strips);
    /* Also if the executor of a rank that failed in the call is cut off, and has a contribution therefore. */
  } while (status == FTSORT_ERR_DATA_LOST ||
           (by_shares && status == FTSORT_ERR_ARGUMENT && failed_ranks(group) > failed));
  check(group, status);

  if (result != NULL) {
    ftsort_block block;
    ftsort_result_block(result, 0, &block);
    right = is_right((const int64_t *)block.data, block.count);
    printf("rank %d: Y of %ld numbers, %s of %d x %d, at node %d, %s\n", self, size,
           by_shares ? "shares" : "grid", rows, columns, (int)block.node, right ? "right" : "WRONG");
    ftsort_result_free(result);
  }
  ftsort_leave(group, right ? 0 : 1);
  return 1;
}
