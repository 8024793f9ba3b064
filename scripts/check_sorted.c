/* Checks a sorted file without ftsort: in order, and the same records as the original.
 *
 *   check_sorted i32|u32|i64|u64|f32|f64 ORIGINAL SORTED
 *
 * Sorts a copy of the original by its own radix sort, and compares bit for bit: there is only one
 * sorted order of plain numbers. Exit status 0 if all is right. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *read_file(const char *path, size_t *bytes)
{
  FILE *file = fopen(path, "rb");
  unsigned char *data;
  long size;
  if (!file || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) {
    printf("cannot read %s\n", path);
    exit(1);
  }
  rewind(file);
  *bytes = (size_t)size;
  data = (unsigned char *)malloc(*bytes + 1);
  if (!data || fread(data, 1, *bytes, file) != *bytes) {
    printf("cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return data;
}

/* An unsigned number in the order of the type; floats in IEEE 754's total order. */
static uint64_t key(const unsigned char *record, size_t bytes, char kind)
{
  uint64_t top = (uint64_t)1 << (8 * bytes - 1), bits = 0;
  memcpy(&bits, record, bytes); /* little-endian */
  if (kind == 'i') return bits ^ top;
  if (kind == 'f') return bits & top ? ~bits & (top | (top - 1)) : bits | top;
  return bits;
}

static unsigned char *radix_sorted(unsigned char *data, size_t count, size_t bytes, char kind)
{
  unsigned char *other = (unsigned char *)malloc(count * bytes + 1), *swap;
  size_t pass, i;
  for (pass = 0; other && pass < bytes; pass++) {
    size_t start[257] = {0};
    for (i = 0; i < count; i++) start[1 + (key(data + i * bytes, bytes, kind) >> (8 * pass) & 255)]++;
    for (i = 0; i < 256; i++) start[i + 1] += start[i];
    for (i = 0; i < count; i++) {
      size_t place = start[key(data + i * bytes, bytes, kind) >> (8 * pass) & 255]++;
      memcpy(other + place * bytes, data + i * bytes, bytes);
    }
    swap = data;
    data = other;
    other = swap;
  }
  free(other);
  return data;
}

int main(int argc, char **argv)
{
  size_t before, after, bytes, i;
  unsigned char *original, *sorted;
  if (argc != 4 || !strchr("iuf", argv[1][0])) return 2;
  bytes = strstr(argv[1], "64") ? 8 : 4;
  original = read_file(argv[2], &before);
  sorted = read_file(argv[3], &after);
  if (before != after) return printf("%zu bytes became %zu\n", before, after), 1;
  if (before % bytes != 0) return printf("not a whole number of records\n"), 1;
  original = radix_sorted(original, before / bytes, bytes, argv[1][0]);
  for (i = 0; i < before; i += bytes)
    if (memcmp(original + i, sorted + i, bytes) != 0) return printf("record %zu is wrong\n", i / bytes), 1;
  printf("right: %zu records\n", before / bytes);
  free(original);
  free(sorted);
  return 0;
}
