/* Faulty links in an argument of a program: pairs of ranks, as in 0-1,2-3. */
#ifndef LINKS_H
#define LINKS_H
#include <stdint.h>
#include <stdio.h>

#define MAX_LINKS 64

/* Returns the number of links; `links` has room for two ranks of each of MAX_LINKS. */
static size_t read_links(const char *text, int32_t *links)
{
  size_t count = 0;
  int one, other, length;
  while (count < MAX_LINKS && sscanf(text, "%d-%d%n", &one, &other, &length) == 2) {
    links[2 * count] = one;
    links[2 * count + 1] = other;
    count++;
    text += length;
    if (*text++ != ',') break;
  }
  return count;
}

#endif
