/* ftsort_all.h: all headers of ftsort. */
#ifndef FTSORT_ALL_H
#define FTSORT_ALL_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"
#include "ftsort_external.h"
#include "ftsort_monitor.h"
#include "ftsort_query.h"
#include "ftsort_rounds.h"
#include "ftsort_store.h"
#include "ftsort_tree.h"
#include "ftsort_verify.h"

#endif /* FTSORT_ALL_H */
