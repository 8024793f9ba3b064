/* Fault-tolerant HyperQuickSort (2024, Algorithm 1) with the arguments and files of the authors' program:
 * see original.h. */
#include "original.h"

int main(int argc, char **argv) { return original(argc, argv, FTSORT_HYPERQUICKSORT, INPUT_FILE, SLOW_RANKS_WORK); }
