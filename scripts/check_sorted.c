/* Checks that OUTPUT has the numbers of INPUT in order, bit for bit. Does not use ftsort: sorts the input
 * with a plain radix sort and compares.
 *
 *   check_sorted i32|u32|i64|u64|f32|f64 INPUT OUTPUT
 *
 * Floating-point numbers are in the total order of IEEE 754. Prints "right" and exits with 0, or prints the first
 * difference and exits with 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const types[] = {"i32", "u32", "i64", "u64", "f32", "f64"};

static int wrong(const char *reason, const char *file)
{
  printf("%s: %s\n", file, reason);
  return 1;
}

/* Returns the content of a file and its size in bytes; NULL if it cannot be read. */
static unsigned char *read_file(const char *name, size_t *bytes)
{
  FILE *file = fopen(name, "rb");
  unsigned char *data = NULL;
  size_t room = (size_t)1 << 24, got = 1;
  *bytes = 0;
  if (file == NULL) return NULL;
  while (got > 0) {
    unsigned char *more;
    room *= 2;
    more = (unsigned char *)realloc(data, room);
    if (more == NULL) break;
    data = more;
    got = fread(data + *bytes, 1, room - *bytes, file);
    *bytes += got;
  }
  if (got > 0 || ferror(file)) {
    free(data);
    data = NULL;
  }
  fclose(file);
  return data;
}

/* Returns the number at index i as an unsigned number with the same place in the order. */
static uint64_t key_at(const unsigned char *data, size_t i, int type)
{
  uint64_t bits, sign;
  if (type == 0 || type == 1 || type == 4) {
    uint32_t small;
    memcpy(&small, data + i * 4, 4);
    bits = small;
    sign = (uint64_t)1 << 31;
  } else {
    memcpy(&bits, data + i * 8, 8);
    sign = (uint64_t)1 << 63;
  }
  if (type == 1 || type == 3) return bits;
  if (type < 4) return bits ^ sign;
  return bits & sign ? ~bits & (sign | (sign - 1)) : bits | sign;
}

/* Sorts the keys byte by byte, the lowest first; returns the one of both arrays that has the result. */
static uint64_t *radix_sort(uint64_t *from, uint64_t *to, size_t count, size_t bytes)
{
  size_t byte, i;
  for (byte = 0; byte < bytes; byte++) {
    size_t place[256] = {0}, next = 0, digit;
    uint64_t *swap = from;
    for (i = 0; i < count; i++) place[from[i] >> 8 * byte & 255]++;
    for (digit = 0; digit < 256; digit++) {
      size_t here = place[digit];
      place[digit] = next;
      next += here;
    }
    for (i = 0; i < count; i++) to[place[from[i] >> 8 * byte & 255]++] = from[i];
    from = to;
    to = swap;
  }
  return from;
}

int main(int argc, char **argv)
{
  unsigned char *data;
  uint64_t *keys, *spare, *sorted, last = 0;
  size_t in_bytes, out_bytes, size, count, i;
  int type = 0;

  while (type < 6 && argc == 4 && strcmp(argv[1], types[type]) != 0) type++;
  if (argc != 4 || type == 6) {
    fprintf(stderr, "usage: check_sorted i32|u32|i64|u64|f32|f64 INPUT OUTPUT\n");
    return 2;
  }
  size = type == 0 || type == 1 || type == 4 ? 4 : 8;
  data = read_file(argv[2], &in_bytes);
  if (data == NULL) return wrong("cannot be read", argv[2]);
  if (in_bytes % size != 0) return wrong("not a whole number of records", argv[2]);
  count = in_bytes / size;
  keys = (uint64_t *)malloc(count * sizeof *keys + 1);
  spare = (uint64_t *)malloc(count * sizeof *keys + 1);
  if (keys == NULL || spare == NULL) return wrong("too large for this memory", argv[2]);
  for (i = 0; i < count; i++) keys[i] = key_at(data, i, type);
  free(data);
  sorted = radix_sort(keys, spare, count, size);

  data = read_file(argv[3], &out_bytes);
  if (data == NULL) return wrong("cannot be read", argv[3]);
  if (out_bytes != in_bytes) {
    printf("%s: %zu bytes, but the input has %zu\n", argv[3], out_bytes, in_bytes);
    return 1;
  }
  for (i = 0; i < count; i++) {
    uint64_t key = key_at(data, i, type);
    if (key == sorted[i]) {
      last = key;
      continue;
    }
    printf("%s: record %zu of %zu %s\n", argv[3], i, count,
           key < last ? "is smaller than the record before it" : "differs from the expected one");
    return 1;
  }
  printf("right: %zu records\n", count);
  free(data);
  free(keys);
  free(spare);
  return 0;
}
