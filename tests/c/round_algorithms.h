/* The algorithms of rounds.c: one that gathers a text of every node at every node, and a HyperQuickSort. */
#ifndef ROUND_ALGORITHMS_H
#define ROUND_ALGORITHMS_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "ftsort_rounds.h"

static const ftsort_rounds none = FTSORT_ROUNDS_INIT;
static int wrong_tasks; /* how many times a callback got a task that is not as documented */

/* ---- Gathers the text of every node at every node, in the order of nodes. States grow from round to round. ---- */

static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  char text[32];
  (void)user;
  return ftsort_buffer_append(state, text, (size_t)snprintf(text, sizeof text, "<%d>", (int)node));
}

static int join(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  int fine = task->struct_size == sizeof *task && task->round >= 1 && task->round <= task->rounds &&
             task->partner == (task->node ^ 1 << task->dimension) && task->is_upper == (task->node > task->partner) &&
             (size_t)task->state % 64 == 0 && (size_t)inbox % 64 == 0 && (size_t)task->shared % 64 == 0;
  (void)user;
  wrong_tasks += !fine;
  return task->is_upper ? ftsort_buffer_append(next, inbox, bytes) ||
                              ftsort_buffer_append(next, task->state, task->state_bytes)
                        : ftsort_buffer_append(next, task->state, task->state_bytes) ||
                              ftsort_buffer_append(next, inbox, bytes);
}

/* Every second node has an empty state. */
static size_t text_of(int node, int homes, char *text)
{
  if (node >= homes) return (size_t)sprintf(text, "<%d>", node);
  return node % 2 ? 0 : (size_t)sprintf(text, "[node %d]", node);
}

static size_t all_texts(int homes, int nodes, char *text)
{
  size_t length = 0;
  int node;
  for (node = 0; node < nodes; node++) length += text_of(node, homes, text + length);
  return length;
}

static ftsort_rounds gathering(void)
{
  ftsort_rounds rounds = none;
  rounds.ascending = 1;
  rounds.begin = begin;
  rounds.absorb = join;
  return rounds;
}

static int has_all_texts(const ftsort_block *state, int homes, int nodes)
{
  char expected[2048];
  size_t length = all_texts(homes, nodes, expected);
  return state->count == length && memcmp(state->data, expected, length) == 0;
}

/* ---- HyperQuickSort as in the 2024 paper. ---- */

static int by_value(const void *a, const void *b)
{
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

/* Proposes the median of the root's list. If the list is empty, nothing is proposed, and all numbers are small. */
static int propose_median(void *user, const ftsort_task *task, ftsort_buffer *proposal)
{
  const int32_t *list = (const int32_t *)task->state;
  size_t count = task->state_bytes / 4;
  (void)user;
  return count ? ftsort_buffer_append(proposal, list + count / 2, 4) : 0;
}

/* The number of numbers in the sorted list that are not above the pivot. */
static size_t count_small(const ftsort_task *task)
{
  const int32_t *list = (const int32_t *)task->state, *pivot = (const int32_t *)task->shared;
  size_t count = task->state_bytes / 4, n = 0;
  while (n < count && (task->shared_bytes == 0 || list[n] <= *pivot)) n++;
  return n;
}

static int emit_half(void *user, const ftsort_task *task, ftsort_buffer *outbox)
{
  size_t below = 4 * count_small(task);
  (void)user;
  return task->is_upper ? ftsort_buffer_pass(outbox, 0, below)
                        : ftsort_buffer_pass(outbox, below, task->state_bytes - below);
}

static int merge_half(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  const int32_t *kept = (const int32_t *)task->state, *received = (const int32_t *)inbox;
  size_t below = count_small(task), count = task->is_upper ? task->state_bytes / 4 - below : below, n = bytes / 4, i, k;
  int32_t *list = (int32_t *)ftsort_buffer_resize(next, 4 * (count + n));
  (void)user;
  if (list == NULL) return 1;
  if (task->is_upper) kept += below;
  for (i = k = 0; i < count || k < n;) {
    *list++ = k == n || (i < count && kept[i] <= received[k]) ? kept[i] : received[k];
    if (k == n || (i < count && kept[i] <= received[k])) i++;
    else k++;
  }
  return 0;
}

static size_t list_of(int node, int32_t *list)
{
  uint32_t bits = 2463534242u + 7919u * (uint32_t)node;
  size_t i, count = node == 2 ? 0 : 500 + 37 * (size_t)node;
  for (i = 0; i < count; i++) {
    bits ^= bits << 13;
    bits ^= bits >> 17;
    bits ^= bits << 5;
    list[i] = (int32_t)(bits % 2000) - 1000; /* some numbers are equal */
  }
  qsort(list, count, sizeof *list, by_value);
  return count;
}

static ftsort_rounds quick_sort(void)
{
  ftsort_rounds rounds = none;
  rounds.propose = propose_median;
  rounds.emit = emit_half;
  rounds.absorb = merge_half;
  return rounds;
}

static int reload_text(void *user, int32_t node, ftsort_buffer *out)
{
  char text[64];
  (void)user;
  return ftsort_buffer_append(out, text, text_of(node, ranks, text));
}

static int reload_list(void *user, int32_t node, ftsort_buffer *out)
{
  int32_t list[2000];
  (void)user;
  return ftsort_buffer_append(out, list, 4 * list_of(node, list));
}

/* Whether a state is in order, and has only numbers of the inputs. Whether it is complete, and the order from node to
 * node, is checked by the reader of the output. */
static int is_sorted(const ftsort_block *state, const int32_t *all, size_t total)
{
  const int32_t *list = (const int32_t *)state->data;
  size_t k;
  for (k = 0; k < state->count / 4; k++)
    if ((k > 0 && list[k - 1] > list[k]) || !bsearch(&list[k], all, total, sizeof *all, by_value)) return 0;
  return 1;
}

#endif
