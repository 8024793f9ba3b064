/* c_examples/sort_file.c with ranks that kill themselves while they write the output.
 *
 * KILLS names the instants, separated by spaces: RANK@write.N is in the middle of the rank's Nth block that has records,
 * counted from 1; RANK@before and RANK@after are before and after the rank renames the file. */
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_planned(const char *moment)
{
  const char *plan = getenv("KILLS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  char word[64], *found;
  snprintf(word, sizeof word, "%s@%s", rank ? rank : "", moment);
  while (plan && (found = strstr(plan, word)) != NULL) {
    const char end = found[strlen(word)];
    if ((found == plan || found[-1] == ' ') && (end == '\0' || end == ' ')) return 1;
    plan = found + 1;
  }
  return 0;
}

/* Writes a block; a rank that is to fail in it writes one half. */
static ssize_t killed_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
  static int blocks;
  char moment[32];
  ssize_t done;
  snprintf(moment, sizeof moment, "write.%d", ++blocks);
  done = pwrite(fd, data, is_planned(moment) ? bytes / 2 : bytes, at);
  if (is_planned(moment)) raise(SIGKILL);
  return done;
}

static int killed_rename(const char *from, const char *to)
{
  int status;
  if (is_planned("before")) raise(SIGKILL);
  status = rename(from, to);
  if (is_planned("after")) raise(SIGKILL);
  return status;
}

#define pwrite killed_pwrite
#define rename killed_rename
#include "../../c_examples/sort_file.c"
