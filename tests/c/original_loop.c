/* A loop over ftsort_original.h in which each round counts: a round that is committed is not run again, and a round that
 * is interrupted is. Two ranks fail before rounds, and a message is reported missing in one. */
#define _XOPEN_SOURCE 700
#include "../../c_examples/original/ftsort_original.h"

enum { ROUNDS = 5 };

int main(int argc, char **argv)
{
  int self, node, round, tries = 0, size, *list, F, lost = 1;
  uint32_t fine = 1;
  setenv("FTSORT_FAULTS", "1@1 0@3", 1);
  self = original_start(&argc, &argv, NULL);
  do {
    F = FaultDetection();
    for (node = 0; node < original_nodes(); node++)
      if (cover(node) == self) checkpoint(node, &node, 1);
  } while (FaultDetection() != F);
  for (round = 0; round < ROUNDS; tries++) {
    FaultInject(round);
    F = FaultDetection();
    for (node = 0; node < original_nodes(); node++) {
      if (cover(node) != self) continue;
      list = readCheckpoint(node, &size);
      list[0] += 100;
      checkpoint(node, list, 1);
      free(list);
    }
    if (round == 2 && lost && self == 2) original_missing(), lost = 0;
    if (FaultDetection() == F) round++;
  }
  for (node = 0; node < original_nodes(); node++) {
    if (cover(node) != self) continue;
    list = readCheckpoint(node, &size);
    if (size != 1 || list[0] != node + 100 * ROUNDS) {
      fprintf(stderr, "node %d on rank %d: %d after %d tries\n", node, self, list[0], tries);
      fine = 0;
    }
    free(list);
  }
  if (tries != ROUNDS + 1) fine = 0, fprintf(stderr, "%d tries\n", tries);
  original_need(ftsort_agree(original_group, &fine, NULL), "ftsort_agree");
  if (fine && cover(0) == self) printf("original_loop: fine\n");
  fflush(stdout);
  original_end(fine ? 0 : 1);
  return 1;
}
