/* Checks that OUTPUT has the records of INPUT, ordered by their first bytes. Does not use ftsort: compares neighbours, and the
 * number and the sums of two hashes of all records.
 *
 *   check_records RECORD_BYTES KEY_BYTES INPUT OUTPUT
 *
 * Prints "right" and exits with 0, or prints the first difference and exits with 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sums {
  uint64_t records, first, second;
};

/* The FNV-1a hash of 64 bits, and the same with another start, mixed. */
static uint64_t hash(const unsigned char *data, size_t bytes, uint64_t start)
{
  uint64_t value = start;
  size_t i;
  for (i = 0; i < bytes; i++) value = (value ^ data[i]) * 1099511628211u;
  return (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9u;
}

/* Adds up a file. Returns the reason if it cannot be read, or is not in order. */
static const char *add_up(const char *name, size_t record_bytes, size_t key_bytes, int ordered, struct sums *sums)
{
  unsigned char *record = (unsigned char *)calloc(2, record_bytes), *before = record + record_bytes;
  FILE *file = fopen(name, "rb");
  const char *wrong = file && record ? NULL : "cannot be read";
  size_t got;
  while (!wrong && (got = fread(record, 1, record_bytes, file)) > 0) {
    if (got != record_bytes) wrong = "has a part of a record";
    else if (ordered && sums->records > 0 && memcmp(before, record, key_bytes) > 0) wrong = "is not in order";
    sums->records++;
    sums->first += hash(record, record_bytes, 14695981039346656037u);
    sums->second ^= hash(record, record_bytes, 0x9e3779b97f4a7c15u);
    memcpy(before, record, record_bytes);
  }
  if (file) fclose(file);
  free(record);
  return wrong;
}

int main(int argc, char **argv)
{
  struct sums input = {0, 0, 0}, output = {0, 0, 0};
  const char *wrong;
  size_t record_bytes, key_bytes;
  if (argc != 5) {
    fprintf(stderr, "usage: check_records RECORD_BYTES KEY_BYTES INPUT OUTPUT\n");
    return 2;
  }
  record_bytes = strtoul(argv[1], NULL, 10);
  key_bytes = strtoul(argv[2], NULL, 10);
  wrong = add_up(argv[3], record_bytes, key_bytes, 0, &input);
  if (!wrong) wrong = add_up(argv[4], record_bytes, key_bytes, 1, &output);
  if (!wrong && memcmp(&input, &output, sizeof input) != 0) wrong = "does not have the records of the input";
  if (wrong) {
    printf("%s: %s\n", argv[4], wrong);
    return 1;
  }
  printf("right\n");
  return 0;
}
