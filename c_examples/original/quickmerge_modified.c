/* Fault-tolerant modified QuickMerge (2024, Section 4.2) with the arguments and files of the authors' program:
 * see original.h. */
#include "original.h"

int main(int argc, char **argv) { return original(argc, argv, FTSORT_QUICKMERGE_MODIFIED, INPUT_FILE, SLOW_RANKS_WORK); }
