/* Fault-tolerant Bitonic Sort (2019; 2024, Algorithm 4) with the arguments and files of the authors' program:
 * see original.h. */
#include "original.h"

int main(int argc, char **argv) { return original(argc, argv, FTSORT_BITONIC, INPUT_COUNT, SLOW_RANKS_WORK); }
