/* The parts of sort_file.c that do not use ftsort: its command line, and the transfer of files. */
#ifndef SORT_FILE_H
#define SORT_FILE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int32_t usage(const char *problem, const char *word)
{
  fprintf(stderr,
          "sort_file: %s %s\n"
          "usage: sort_file [--type i32|u32|i64|u64|f32|f64]\n"
          "  [--algorithm auto|samplesort|hyperquicksort|quickmerge|quickmerge_modified|bitonic]\n"
          "  [--store memory|directory|none|reload] [--directory DIR] [--replicas N]\n"
          "  [--memory MB] [--scratch DIR] [--resume] [--quiet|--events] INPUT OUTPUT\n",
          problem, word);
  exit(2);
}

static int32_t pick(const char *word, const char *const *names, const char *option)
{
  int32_t i;
  for (i = 0; names[i]; i++) if (strcmp(word, names[i]) == 0) return i;
  return usage(option, word);
}

/* Reads or writes all bytes. Returns 0 if that works. */
static int transfer(int fd, char *data, size_t bytes, uint64_t at, int writing)
{
  while (bytes > 0) {
    ssize_t done = writing ? pwrite(fd, data, bytes, (off_t)at) : pread(fd, data, bytes, (off_t)at);
    if (done <= 0) return 1;
    data += done;
    at += (uint64_t)done;
    bytes -= (size_t)done;
  }
  return 0;
}

#endif
