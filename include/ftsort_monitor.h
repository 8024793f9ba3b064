/* ftsort_monitor.h: detects slow ranks and gives them less work, or none (2018 paper, DGRP).
 *
 *   ftsort_monitor_start(group, NULL, NULL);          // sorts of the group avoid slow ranks from now on
 *   ftsort_monitor_stop(group);
 *
 * docs/dgrp.md explains the tests and the algorithms. The conventions are those of ftsort.h.
 */
#ifndef FTSORT_MONITOR_H
#define FTSORT_MONITOR_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The way in which a monitor runs. */
typedef enum ftsort_monitor_mode {
  /** FTSORT_MONITOR_THREAD if all ranks were granted MPI_THREAD_MULTIPLE, else FTSORT_MONITOR_FOREGROUND. */
  FTSORT_MONITOR_AUTO = 0,
  /** A thread on each rank that sends and answers tests on a private communicator at any time. Needs
   * MPI_THREAD_MULTIPLE. */
  FTSORT_MONITOR_THREAD = 1,
  /** At the commits of a sort, at most once per interval, each rank reports how fast it has been: the time of
   * `test`, or without one the share of the time since its last report in which it had a processor. A rank that
   * sleeps or waits for files between sorts, while others wait in calls of ftsort, seems slow without a `test`.
   * Needs neither a thread nor messages of its own. Detects nothing between sorts or within a round, and trusts
   * the reports. Figures are compared with the median of all ranks. A rank returns after `zeta` good tests in a
   * row without the 2018 paper's consensus: the agreement of the commit takes its place (docs/dgrp.md). */
  FTSORT_MONITOR_FOREGROUND = 2,
} ftsort_monitor_mode;

/** The assignment of tests. */
typedef enum ftsort_monitor_assignment {
  FTSORT_TEST_ALL = 0, /**< Every rank tests every other rank (2018 paper). */
  /** Each rank tests the first recommended rank of each of its clusters c(i,s): N log2(N) tests, and all ranks
   * learn of a change within log2(N) intervals. For many ranks. */
  FTSORT_TEST_VCUBE = 1,
} ftsort_monitor_assignment;

/** The work of a slow rank. */
typedef enum ftsort_monitor_sharing {
  FTSORT_SHARING_EXCLUDE = 0, /**< All or nothing (2018 paper): a rank that is not recommended executes no node. */
  /** An extension of the paper: no rank is excluded, and the share of each rank in the result is proportional to
   * its speed, in sixteenths: half a share at half the speed, none below 1/32 of full speed. The speed comes from
   * the recent times of tests (`alpha`), which all ranks report at a commit once per interval; a speed within a
   * quarter of full speed counts as full speed, which is the median of the faster half. Recommendations are still
   * reported, and change nothing. Applies to sample sort, and to HyperQuickSort and QuickMerge with
   * FTSORT_PIVOT_SAMPLED, from the exchange after the commit; not to the pivots of the papers, bitonic sorts,
   * dense results and ftsort_rounds_run. Each rank still sorts its own input. */
  FTSORT_SHARING_WEIGHTS = 1,
} ftsort_monitor_sharing;

/** The test procedure: a piece of work like that of the application. Returns a number that is the same on all
 * ranks; a number that differs from the result of the tester fails the test, but not with
 * FTSORT_MONITOR_FOREGROUND, which only measures its time. Called by the thread of the monitor and by the thread
 * that calls ftsort. Must not call MPI or ftsort, throw, or longjmp. */
typedef uint64_t (*ftsort_test_fn)(void *user);

/** Options of a monitor. Start from FTSORT_MONITOR_OPTIONS_INIT; zero selects the default of every member. The same
 * on all ranks, except `user` and the address of `test`, which all ranks set or none. Borrowed for the call. Later
 * versions append members. */
typedef struct ftsort_monitor_options {
  size_t struct_size;   /**< `sizeof(ftsort_monitor_options)`. */
  int32_t mode;         /**< One of `ftsort_monitor_mode`. */
  int32_t assignment;   /**< One of `ftsort_monitor_assignment`; no effect in the foreground. */
  uint32_t interval_ms; /**< Milliseconds between tests. 0: 1000. */
  /** The number of consecutive passed tests after which a rank is recommended again. 0: 5 (zeta of the paper). */
  uint32_t zeta;
  double alpha;         /**< The weight of earlier values in the means of Algorithm 1, from 0 to below 1. 0: 0.9. */
  double beta;          /**< The number of deviations between the mean and the timeout. 0: 4. */
  double factor;        /**< A reply is late after `factor` times the timeout plus `plus_ms`. 0: 2.5. */
  double plus_ms;       /**< Milliseconds, see `factor`. In the foreground thousandths of the median. */
  /** The threshold of the first tests of a rank in milliseconds. 0: 8000. In the foreground thousandths of the
   * median. */
  double first_ms;
  /** Above 0, up to 300: a reply is late by phi instead, the negative decimal logarithm of the probability that a
   * reply takes even longer. */
  double phi;
  /** Not 0: a tester that finds most of its peers late at once, or was itself woken late, considers itself slow and
   * reports nothing. */
  int32_t self_doubt;
  /** Not 0: late replies do not enter the means, so that testers do not adapt to a slow rank. */
  int32_t unforgiving;
  /** See `ftsort_test_fn`. NULL: the test of the paper, prime numbers up to 1000 (see also
   * FTSORT_MONITOR_FOREGROUND). */
  ftsort_test_fn test;
  void *user;           /**< Passed to `test` and never read. */
  int32_t sharing;      /**< One of `ftsort_monitor_sharing`. */
  /** Not 0: a rank is excluded only if that is expected to save time, given its recent speed: its part of the
   * remaining rounds is compared with two parts of its executor and one more round for moving its blocks. So a
   * rank that is at most twice as slow as its executor, and has at most as many records, is never excluded.
   * Readmission is unchanged. No effect with FTSORT_SHARING_WEIGHTS. */
  int32_t gain;
} ftsort_monitor_options;

#define FTSORT_MONITOR_OPTIONS_INIT \
  { sizeof(ftsort_monitor_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0 }

/** The monitor of a group. Belongs to the group; any thread may read it. */
typedef struct ftsort_monitor ftsort_monitor;

/**
 * Starts to monitor the ranks of a group: the Dynamic Group of Recommended Processes (2018 paper). [C]
 *
 * At every commit of ftsort_run and ftsort_rounds_run the survivors agree on the recommended ranks. A rank that is
 * not recommended executes no node from then on; its blocks move to another rank, and its nodes return once it is
 * recommended again (FTSORT_EVENT_EXCLUDED, FTSORT_EVENT_REJOINED). If no rank is recommended, all ranks work. An
 * excluded rank still takes part in every collective call, so a rank that is stopped altogether keeps the others
 * waiting.
 *
 * \param group    a group without a monitor
 * \param options  borrowed for the call; NULL selects all defaults
 * \param monitor  receives the monitor, which belongs to the group and is valid until ftsort_monitor_stop,
 *                 ftsort_leave or ftsort_free; NULL after an error; may be NULL
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT naming the member, and on all ranks if `options` differs between ranks;
 *         FTSORT_ERR_STATE also if the group has a monitor; or another status of "Collective calls"
 */
ftsort_status ftsort_monitor_start(ftsort *group, const ftsort_monitor_options *options,
                                   const ftsort_monitor **monitor);

/**
 * Stops the monitor of a group: from now on all survivors execute their nodes. [C]
 *
 * The private communicator of a monitor with a thread remains until MPI_Finalize, because messages may still be on
 * their way.
 *
 * \param group  a group; without a monitor the call has no effect
 * \return FTSORT_OK, or a status of "Collective calls"
 */
ftsort_status ftsort_monitor_stop(ftsort *group);

/** The knowledge of the monitor of this rank about another rank. Later versions append members. */
typedef struct ftsort_monitor_view {
  size_t struct_size;  /**< `sizeof(ftsort_monitor_view)`, set by the caller. */
  int32_t recommended; /**< 1: the rank is in the Dynamic Group of Recommended Processes; 0: it is not. */
  uint32_t counter;    /**< The number of changes so far: even for a recommended rank, odd for another. */
  /** The number of consecutive tests by this rank that the rank has passed. Starts again at 0 when the rank leaves
   * the group. */
  uint32_t good_in_row;
  /** Seconds until its last reply to this rank; negative without a reply. In the foreground this and the following
   * times are multiples of the median. */
  double last_reply;
  double mean;         /**< The mean of Algorithm 1, in seconds. */
  double variance;     /**< The variance of Algorithm 1. */
  double timeout;      /**< The timeout of Algorithm 1, in seconds. */
  double threshold;    /**< The time after which the next reply is late, in seconds. */
  double phi;          /**< The suspicion of the last test, from 0. */
  /** The share of the rank in the work, relative to a rank at full speed, from 0 to 1, as agreed at a commit; 1
   * without FTSORT_SHARING_WEIGHTS. */
  double weight;
} ftsort_monitor_view;

#define FTSORT_MONITOR_VIEW_INIT { sizeof(ftsort_monitor_view), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Returns the knowledge of the monitor of this rank about `rank`. [L]
 *
 * Any thread may call it at any time, also while another thread is in ftsort_run.
 *
 * \param monitor  a monitor of ftsort_monitor_start
 * \param rank     a rank of the group
 * \param view     set `struct_size` before (FTSORT_MONITOR_VIEW_INIT); receives that many bytes
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL, a rank that does not exist, or a `struct_size` that is too small
 */
ftsort_status ftsort_monitor_get_view(const ftsort_monitor *monitor, int32_t rank, ftsort_monitor_view *view);

/**
 * Returns the cost of a monitor on this rank so far; any thread may call it at any time. [L]
 *
 * \param monitor   a monitor of ftsort_monitor_start
 * \param sent      receives the number of messages sent, 0 in the foreground; may be NULL
 * \param answered  receives the number of tests answered, 0 in the foreground; may be NULL
 * \return 1 if the monitor has a thread, 0 if it runs in the foreground; -1 for NULL
 */
int ftsort_monitor_cost(const ftsort_monitor *monitor, uint64_t *sent, uint64_t *answered);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_MONITOR_H */
