//! How a group works: the configuration, and the callbacks in it, as C sees them.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

use super::buffer::ftsort_buffer;

/// The sorting algorithm.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_algorithm {
    /// FTSORT_SAMPLESORT; on 128 ranks and more the sort with the least predicted cost (see ftsort_stats).
    FTSORT_AUTO = 0,
    /// HyperQuickSort (Wagar 1987; 2024 paper, Algorithm 1): log2(N) rounds; in each a subcube agrees on a pivot,
    /// and a node sends about half of its block to its partner.
    FTSORT_HYPERQUICKSORT = 1,
    /// QuickMerge (Quinn 1989; 2024 paper, Algorithm 2): HyperQuickSort with all pivots from the first round.
    FTSORT_QUICKMERGE = 2,
    /// Modified QuickMerge (2024 paper, Section 4.2): with FTSORT_PIVOT_PAPER, pivots are averages over all ranks.
    FTSORT_QUICKMERGE_MODIFIED = 3,
    /// Bitonic sort (2024 paper, Algorithm 4; 2019 paper): log2(N) (log2(N) + 1) / 2 rounds; in each a node sends
    /// its whole block, so traffic does not depend on the keys. Blocks of the size of the longest input fill up
    /// from node 0. Stores keep the blocks of every round, because they cannot be recomputed from inputs.
    FTSORT_BITONIC = 4,
    /// Bitonic merge of an input that is a bitonic sequence over all ranks (2024 paper, Algorithm 3): log2(N)
    /// rounds and one that checks. FTSORT_ERR_ARGUMENT if the input is not bitonic, if counts differ, if the number of
    /// ranks is not a power of two, or with `spares` (FTSORT_ERR_PEER_ARGUMENT on excluded ranks).
    FTSORT_BITONIC_MERGE = 5,
    /// Sample sort: one exchange, in which every rank sends every other rank its part.
    FTSORT_SAMPLESORT = 6,
    /// Sample sort in two levels: about 2 sqrt(N) messages of a rank.
    FTSORT_SAMPLESORT_2 = 7,
    /// Sample sort in three levels.
    FTSORT_SAMPLESORT_3 = 8,
}

/// The redundancy that lets the survivors recover the data of a failed rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_store {
    /// `replicas` copies of each input in the memory of other ranks, on other hosts if there are any. Lost blocks
    /// are recomputed from inputs. Tolerates `replicas` failures at once, and any number one after another,
    /// because the survivors replace lost copies.
    FTSORT_STORE_MEMORY = 0,
    /// Files with checksums in `store_directory`, which all ranks must see. Tolerates any failures while one rank
    /// survives. Without `store_sync`, data that a host had not written when it failed can be missing.
    FTSORT_STORE_DIRECTORY = 1,
    /// No redundancy. A failure that loses data ends the sort with FTSORT_ERR_DATA_LOST on all survivors.
    FTSORT_STORE_NONE = 2,
    /// No redundancy, but `reload` returns the input of a failed rank again, from its file or generator. Tolerates
    /// any failures while one rank survives, and costs nothing until a rank fails.
    FTSORT_STORE_RELOAD = 3,
    /// `parity` shares of an erasure code over the inputs of `parity_group` ranks, of different hosts if possible:
    /// less memory than copies. Tolerates `parity` failures of a group at once, and any number one after another.
    FTSORT_STORE_PARITY = 4,
}

/// The choice of pivots in HyperQuickSort and QuickMerge.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_pivot {
    /// From samples of all blocks of a subcube: balanced for every distribution of keys.
    FTSORT_PIVOT_SAMPLED = 0,
    /// As in the papers: from the list of the root, or averages over all ranks. Shares can be far from equal.
    FTSORT_PIVOT_PAPER = 1,
}

/// The way in which the survivors agree on the set of failed ranks.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_repair {
    /// Agree and acknowledge, on one communicator that is never repaired.
    FTSORT_REPAIR_AGREE = 0,
    /// FaultDetection of the papers, for comparison. MPI may not survive a failure while it makes a communicator.
    FTSORT_REPAIR_SHRINK = 1,
}

/// The kind of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_event_kind {
    /// `round` of `rounds` was committed. Small sorts commit all at once.
    FTSORT_EVENT_ROUND = 1,
    /// `rank` has failed.
    FTSORT_EVENT_FAILURE = 2,
    /// Node `rank` is executed by rank `peer` for the rest of the call.
    FTSORT_EVENT_EXECUTOR = 3,
    /// This rank restored the block of node `rank`, from a copy of rank `peer`, or from the directory or inputs
    /// (-1). Blocks that are restored before round 0 is committed are not reported.
    FTSORT_EVENT_RESTORED = 4,
    /// `round` is replayed after failures.
    FTSORT_EVENT_REPLAY = 5,
    /// Rank `peer` detected data corruption in `round`, which is replayed, and accuses `rank`, or no rank (-1). A rank
    /// that is accused twice executes no node for the rest of the sort.
    FTSORT_EVENT_CORRUPT = 6,
    /// A monitor excludes `rank` from work until it rejoins or the call ends.
    FTSORT_EVENT_EXCLUDED = 7,
    /// `rank` is recommended again, and executes nodes for the rest of the call.
    FTSORT_EVENT_REJOINED = 8,
    /// ftsort_result_recover has recovered a result and renewed its redundancy.
    FTSORT_EVENT_RENEWED = 9,
}

/// The check that detected data corruption: `ftsort_event.finding`. FTSORT_CHECK_DIGEST finds 1 to 4; the checks
/// of bitonic sort find 5 to 8 and accuse no rank. Later versions may add values.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ftsort_finding {
    /// The event is not FTSORT_EVENT_CORRUPT.
    FTSORT_FINDING_NONE = 0,
    /// A block arrived that differs from the block that its sender announced.
    FTSORT_FINDING_MESSAGE = 1,
    /// A block differs from the records that it was made of, or from its stored digest.
    FTSORT_FINDING_MEMORY = 2,
    /// A block of the result is not in order, or does not begin where the block before it ends.
    FTSORT_FINDING_ORDER = 3,
    /// The results of all ranks together differ from the inputs together.
    FTSORT_FINDING_WHOLE = 4,
    /// FTSORT_CHECK_PROGRESS: a sequence is not monotonic at the end of a stage.
    FTSORT_FINDING_PROGRESS = 5,
    /// FTSORT_CHECK_FEASIBILITY: a sequence is not a permutation of the sequence that it was made of.
    FTSORT_FINDING_FEASIBILITY = 6,
    /// FTSORT_CHECK_CONSISTENCY: two reports about the same node differ.
    FTSORT_FINDING_CONSISTENCY = 7,
    /// FTSORT_CHECK_CONSISTENCY: a message lacks the report about a node.
    FTSORT_FINDING_ABSENCE = 8,
}

/// Checks against data corruption in memory, network and files: bits of `ftsort_config.checks`. A corruption that
/// cannot be repaired is FTSORT_ERR_CORRUPT on all ranks, or FTSORT_ERR_DATA_LOST if no copy is left. docs/reliable.md
/// has the proofs and the limits.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ftsort_check {
    /// Follows every block by a digest of its records from the input of the caller to the result. Misses a change
    /// with a probability of at most n / 2^59 for n records. Corrupt blocks are restored from intact copies or by
    /// `reload`. In ftsort_rounds_run it covers states between the callbacks. Messages of trees and of ftsort_top are
    /// not covered.
    FTSORT_CHECK_DIGEST = 1,
    /// Progress: at the end of a stage each half of the bitonic sequence is monotonic (McMillin and Ni 1989,
    /// Section 3, Figure 4a). FTSORT_BITONIC only, and together with the next two: algorithm S_FT of that paper,
    /// with log2(N) more rounds, and messages and copies of up to twice the records of all N nodes.
    FTSORT_CHECK_PROGRESS = 2,
    /// Feasibility: a sequence is a permutation of the sequence that it was made of (Figure 4b).
    FTSORT_CHECK_FEASIBILITY = 4,
    /// Consistency: reports about a node agree with earlier reports (Figure 4c, corrected in docs/reliable.md).
    FTSORT_CHECK_CONSISTENCY = 8,
    /// ftsort_rounds_run only: calls every callback twice, the second time with its bytes at other addresses;
    /// different bytes are FTSORT_ERR_CALLBACK. For tests. Does not see a dependence on the rank or the process.
    FTSORT_CHECK_PURITY = 16,
}

/// An event. Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_event {
    /// `sizeof(ftsort_event)` of the library; later versions append members.
    pub struct_size: usize,
    /// One of `ftsort_event_kind`; ignore unknown kinds.
    pub kind: i32,
    /// See the kind; else -1.
    pub rank: i32,
    /// See the kind; else -1.
    pub peer: i32,
    /// The round: 0 loads, and `rounds - 1` of a sort makes the result.
    pub round: u32,
    /// The number of rounds.
    pub rounds: u32,
    /// The number of repairs and changes of executors so far.
    pub epoch: u32,
    /// The lowest surviving rank. All survivors receive the same events, except FTSORT_EVENT_RESTORED.
    pub lowest_survivor: i32,
    /// FTSORT_EVENT_CORRUPT: one of `ftsort_finding` (ftsort_verify.h).
    pub finding: i32,
}

/// Receives an event after the survivors have agreed on it. Called on every rank by the thread that called
/// ftsort. Must not throw or longjmp. A call of ftsort with this group returns FTSORT_ERR_STATE.
pub type ftsort_event_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const ftsort_event)>;

/// Receives one line of text without a newline, valid during the callback. `level`: 1 warning, 2
/// information. The rules of `ftsort_event_fn` apply.
pub type ftsort_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: c_int, line: *const c_char)>;

/// Returns the input of `rank` again, byte for byte, in `data` (see ftsort_buffer_resize). Called on the executor
/// of node `rank` when no rank has that input: with FTSORT_STORE_RELOAD, and with other stores if their copies are
/// lost (of files before the first commit). The bytes are compared with the size and the hash of the original, if
/// these are known. Returns 0, or any other number to refuse; a refusal or other bytes end the call with
/// FTSORT_ERR_CALLBACK. The rules of `ftsort_event_fn` apply; other threads of ftsort may sort meanwhile.
pub type ftsort_reload_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, rank: i32, data: *mut ftsort_buffer) -> c_int>;

/// The configuration of a group. Start from FTSORT_CONFIG_INIT; zero selects the default of every member. Later
/// versions append members, and treat missing members of a shorter struct as zero.
///
/// `algorithm`, `store`, `replicas`, `parity`, `parity_group`, `pivot`, `repair`, `dense`, `checks`, `min_survivors`,
/// `spares`, `release_after_run` and `keep_comm` must be the same on all ranks; `reload` and FTSORT_NO_TIMEOUT must be set on all ranks or on
/// none; the others may differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_config {
    /// `sizeof(ftsort_config)`.
    pub struct_size: usize,
    /// One of `ftsort_algorithm`.
    pub algorithm: i32,
    /// One of `ftsort_store`.
    pub store: i32,
    /// One of `ftsort_pivot`.
    pub pivot: i32,
    /// One of `ftsort_repair`.
    pub repair: i32,
    /// Not 0: every survivor but idle spares and excluded ranks receives one block, in the order of ranks, and the
    /// sizes differ by at most one record, also after failures. Costs two small rounds that move records.
    pub dense: i32,
    /// FTSORT_STORE_MEMORY only: copies of each input beside the original. 0: 1.
    pub replicas: u32,
    /// Threads for local sorting and merging. 0: the processors that this process may use, divided by the survivors
    /// on this host, at least 1. At most 1024. Threads that cannot be started are not used.
    pub threads: u32,
    /// Not 0: accept an MPI without ULFM, on which failures are not tolerated.
    pub accept_no_ulfm: i32,
    /// Milliseconds without a sign of life of a rank after which calls that wait return FTSORT_ERR_MPI; call ftsort_leave
    /// then. A rank that computes shows signs of life, a stopped one does not: docs/failure-model.md. 0: 60000.
    /// FTSORT_NO_TIMEOUT: no limit, as always with FTSORT_REPAIR_SHRINK, which refuses other values above 0.
    pub timeout_ms: u32,
    /// The number of survivors below which calls return FTSORT_ERR_EXCLUDED. 0: 1. In a network that can split, more
    /// than half of the ranks ensures that at most one part continues.
    pub min_survivors: u32,
    /// The number of bytes that blocks and messages of this group may take in this process. A call that would exceed
    /// it returns FTSORT_ERR_MEMORY on all ranks before it allocates. Buffers of up to 1 MiB may exceed it by 16 MiB. 0:
    /// the memory that is available on this host, divided by its survivors, and at least 8 MiB.
    pub memory_limit: usize,
    /// FTSORT_STORE_DIRECTORY only: a directory that all ranks can write and read. It needs the sticky bit if all users
    /// can write to it. Copied. The library uses and removes files with names `ftsort-*` in it.
    pub store_directory: *const c_char,
    /// Failures and corruptions to inject, for tests: see docs/fault-injection.md. Copied. Empty: none. NULL: none,
    /// or the environment variable FTSORT_FAULTS if the program has called ftsort_allow_faults.
    pub faults: *const c_char,
    /// See `ftsort_reload_fn`; NULL: inputs cannot be read again.
    pub reload: ftsort_reload_fn,
    /// See `ftsort_event_fn`; may be NULL.
    pub on_event: ftsort_event_fn,
    /// See `ftsort_log_fn`; may be NULL.
    pub on_log: ftsort_log_fn,
    /// Passed to the callbacks and never read.
    pub user: *mut c_void,
    /// Bits of `ftsort_check` (ftsort_verify.h). 0: data are trusted, except files.
    pub checks: u32,
    /// The prefix of trace files, `PREFIX.RANK.json`, which ftsort_leave and ftsort_free merge into `PREFIX.json`: see
    /// docs/trace.md. Copied. NULL: the environment variable FTSORT_TRACE; empty: none.
    pub trace: *const c_char,
    /// Not 0: files of the store survive power failures: docs/failure-model.md.
    pub store_sync: i32,
    /// Not 0: the group can read files of store and trace (mode 0640). 0: mode 0600.
    pub group_access: i32,
    /// The number of spares, which replace failed ranks: docs/failure-model.md.
    pub spares: u32,
    /// Not 0: redundancy is released at the end of each call, which saves its memory, but a rank that fails later
    /// takes its blocks of the result along. 0: it is kept until ftsort_result_free.
    pub release_after_run: i32,
    /// FTSORT_STORE_PARITY only: the shares of a group. 0: 1.
    pub parity: u32,
    /// FTSORT_STORE_PARITY only: its ranks, more than `parity`. 0: 8.
    pub parity_group: u32,
    /// Not 0: `comm` itself is used (ftsort_init); not with FTSORT_REPAIR_SHRINK.
    pub keep_comm: i32,
}
