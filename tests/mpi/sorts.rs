//! Sorts without failures: every kind of key, shape of input, store and algorithm.

use crate::case::Case;
use crate::sorter::sorts;

const KEYS_AND_SHAPES: &str = "
 all   | ranks=1 kind=i32                                  |  | right
 quick | ranks=2 kind=u32                                  |  | right
 all   | ranks=3 kind=i64                                  |  | right
 all   | ranks=4 kind=u64                                  |  | right
 quick | ranks=5 kind=f32                                  |  | right
 all   | ranks=8 kind=f64                                  |  | right
 all   | ranks=4 shape=equal                               |  | right
 quick | ranks=6 shape=few store=directory                 |  | right
 all   | ranks=7 shape=sorted store=none                   |  | right
 all   | ranks=4 shape=reversed                            |  | right
 all   | ranks=6 shape=holes store=directory               |  | right
 quick | ranks=7 shape=one store=none                      |  | right
 all   | ranks=4 shape=empty                               |  | right
 all   | ranks=8 count=3                                   |  | right
 all   | ranks=2 count=3000000                             |  | right
 all   | ranks=4 repair=shrink                             |  | right
";

const ALGORITHMS: &str = "
 all   | ranks=4 algorithm=hyperquicksort:paper store=none         |  | right
 all   | ranks=5 algorithm=hyperquicksort:paper shape=holes        |  | right
 all   | ranks=5 algorithm=auto                                    |  | right
 all   | ranks=8 algorithm=auto:dense shape=few                    |  | right
 quick | ranks=3 algorithm=samplesort shape=holes                  |  | right
 all   | ranks=4 algorithm=quickmerge                              |  | right
 quick | ranks=5 algorithm=quickmerge:paper shape=few              |  | right
 all   | ranks=8 algorithm=quickmerge_modified:paper:dense shape=holes |  | right
 all   | ranks=3 algorithm=bitonic                                 |  | right
 all   | ranks=4 algorithm=bitonic:dense shape=few                 |  | right
 all   | ranks=5 algorithm=hyperquicksort:dense shape=holes        |  | right
 quick | ranks=4 algorithm=bitonic_merge shape=bitonic             |  | right
";

pub fn cases() -> Vec<Case> {
    let mut cases = sorts("sorts without failures", KEYS_AND_SHAPES);
    cases.extend(sorts("sorts without failures", ALGORITHMS));
    cases
}
