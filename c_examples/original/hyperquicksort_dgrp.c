/* HyperQuickSort on a Dynamic Group of Recommended Processes (2018, Algorithm 2), with the arguments and files of the
 * authors' program: see original.h. A rank that answers too late in tests leaves the sort, and returns after five good
 * tests in a row. */
#include "original.h"

int main(int argc, char **argv)
{
  return original(argc, argv, FTSORT_HYPERQUICKSORT, INPUT_FILE, SLOW_RANKS_LEAVE);
}
