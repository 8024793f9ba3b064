//! How a group works: the configuration, and the callbacks in it, as C sees them.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

use super::buffer::ftsort_buffer;

/// The sorting algorithm.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_algorithm {
    /// The fastest for this number of ranks and this size: `FTSORT_SAMPLESORT`; on 256 ranks and more,
    /// with so little data that messages would be smaller than 2 KiB, `FTSORT_HYPERQUICKSORT`.
    /// `ftsort_stats.algorithm` tells.
    FTSORT_AUTO = 0,
    /// HyperQuickSort (Wagar 1987; fault-tolerant: Camargo and Duarte 2024, Algorithm 1).
    /// log2(N) rounds, in each of which a pivot is agreed on in each subcube and a node sends about
    /// half of its block to its neighbour.
    FTSORT_HYPERQUICKSORT = 1,
    /// QuickMerge (Quinn 1989; 2024, Algorithm 2). As HyperQuickSort, but all pivots are agreed on in
    /// the first round.
    FTSORT_QUICKMERGE = 2,
    /// Modified QuickMerge (2024, Section 4.2): with `FTSORT_PIVOT_PAPER` its pivots are the averages of
    /// those of all ranks; otherwise the same as `FTSORT_QUICKMERGE`.
    FTSORT_QUICKMERGE_MODIFIED = 3,
    /// Bitonic sort of any input (2024, Algorithm 4; 2019). log2(N) (log2(N) + 1) / 2 rounds, in each of
    /// which a node sends its whole block: traffic does not depend on the keys. Blocks of the longest
    /// input's size fill up from node 0. Its blocks cannot be made again from inputs, so that stores
    /// keep every round's.
    FTSORT_BITONIC = 4,
    /// Bitonic sort of input that is a bitonic sequence already, all ranks' records one after the other
    /// (up and then down, from anywhere on; 2024, Algorithm 3): log2(N) rounds and one that checks.
    /// `FTSORT_ERR_ARGUMENT` on all ranks where it is not, or counts differ, or there are not 2^d ranks.
    FTSORT_BITONIC_MERGE = 5,
    /// Sample sort: one exchange, in which every rank sends each other its part.
    FTSORT_SAMPLESORT = 6,
}

/// Where the blocks of each round are kept, so that a crashed rank's work can be taken over.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_store {
    /// Each rank's input is kept in the memory of `replicas` other ranks too, on other hosts where
    /// there are any; lost blocks are made again from pieces of inputs. Survives up to `replicas`
    /// faults at once, and any number one after another, down to the last rank: the survivors make
    /// new copies after each. Needs no disk.
    FTSORT_STORE_MEMORY = 0,
    /// As files in `store_directory`, which all ranks must see. Survives any faults, any number,
    /// as long as one rank lives. A file is written under a temporary name, checksummed and then
    /// renamed; a torn or corrupt file counts as absent. Files are closed but not forced to the
    /// medium, so what a whole host had not yet written out when it failed can be missing.
    FTSORT_STORE_DIRECTORY = 1,
    /// Nowhere. Faults are detected, and a fault that loses data ends the sort with
    /// `FTSORT_ERR_DATA_LOST` on all survivors.
    FTSORT_STORE_NONE = 2,
    /// Nowhere, but `reload` gives a dead rank's input again: from its file, its database, its
    /// generator. Survives any faults, any number, as long as one rank lives. Costs nothing until
    /// a fault, and then loading and sorting that input again.
    FTSORT_STORE_RELOAD = 3,
}

/// How pivots are chosen, in HyperQuickSort and the QuickMerges.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_pivot {
    /// From a sample of all blocks in the subcube, in the total order (key, rank, position), and
    /// weighted by the surviving ranks on each side: balanced for every distribution of keys.
    FTSORT_PIVOT_SAMPLED = 0,
    /// As in the papers: HyperQuickSort takes the median of the root's own list, QuickMerge evenly
    /// spaced records of the root's own list, modified QuickMerge the averages of all ranks' lists (for
    /// keys that are no numbers their middles). Can be far off balance.
    FTSORT_PIVOT_PAPER = 1,
}

/// How the survivors come to know the same set of faulty ranks.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_repair {
    /// Agree and acknowledge on one communicator that is made once and never repaired.
    FTSORT_REPAIR_AGREE = 0,
    /// The papers' FaultDetection: barrier, agree, revoke, acknowledge, shrink, keep identities.
    /// Makes a new communicator at every fault, which today's MPI libraries do not always survive
    /// when another rank dies meanwhile. For comparison.
    FTSORT_REPAIR_SHRINK = 1,
}

/// What an event tells of.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_event_kind {
    /// A round was committed: `round` of `rounds`.
    FTSORT_EVENT_ROUND = 1,
    /// `rank` was found dead.
    FTSORT_EVENT_FAILURE = 2,
    /// Node `rank` is from now on executed by rank `peer`.
    FTSORT_EVENT_EXECUTOR = 3,
    /// This rank got the block of node `rank` back; `peer` is the rank that held a copy of all of
    /// it, or -1: from the directory, or made again from pieces of inputs.
    FTSORT_EVENT_RESTORED = 4,
    /// `round` starts again, because ranks died in it.
    FTSORT_EVENT_REPLAY = 5,
    /// Data were found changed in `round`, which starts again: rank `rank` is accused, or nobody (-1),
    /// by rank `peer`, and `finding` says of what. One that is accused twice in a sort executes no node
    /// any more for the rest of it.
    FTSORT_EVENT_CORRUPT = 6,
    /// A monitor does not recommend `rank`, which executes no node from now on.
    FTSORT_EVENT_EXCLUDED = 7,
    /// `rank` is recommended again, and executes nodes from now on.
    FTSORT_EVENT_REJOINED = 8,
}

/// What was found wrong with data: `ftsort_event.finding`. The first four are found by
/// `FTSORT_CHECK_DIGEST`, the others by the checks of bitonic sort, which accuse nobody. Later versions
/// may add some.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ftsort_finding {
    /// The event is not `FTSORT_EVENT_CORRUPT`.
    FTSORT_FINDING_NONE = 0,
    /// A block came that is not what its sender says that it sent.
    FTSORT_FINDING_MESSAGE = 1,
    /// A block is not what was made of its records, or what was kept of it.
    FTSORT_FINDING_MEMORY = 2,
    /// A block of the result is not in order, or does not begin where the one before ends.
    FTSORT_FINDING_ORDER = 3,
    /// All results together are not all inputs together.
    FTSORT_FINDING_WHOLE = 4,
    /// `FTSORT_CHECK_PROGRESS`: a sequence does not go up, or down, as it must at the end of a stage; or
    /// the records that a node has, or sends, are in no order.
    FTSORT_FINDING_PROGRESS = 5,
    /// `FTSORT_CHECK_FEASIBILITY`: a sequence is no permutation of the one that it was made from.
    FTSORT_FINDING_FEASIBILITY = 6,
    /// `FTSORT_CHECK_CONSISTENCY`: of the same node something else was heard before, or a node's records
    /// are not those that are told of it.
    FTSORT_FINDING_CONSISTENCY = 7,
    /// With the same: a message does not tell of a node of which it must.
    FTSORT_FINDING_ABSENCE = 8,
}

/// What is checked, so that no wrong result is given out whatever memory, network or files do to the
/// data: bits to be combined.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ftsort_check {
    /// Every block is known by a digest of its records as a multiset, from the caller's own array to the
    /// result: 128 bits that a block keeps when it is divided, sent and united. What comes is compared
    /// with what its sender says, what is made with what it is made of, and all results with all inputs;
    /// results must be in order, too. A change is missed with probability n / 2^59 at most, for n records,
    /// by whatever does not know the digest's key (the proof is in `docs/reliable.md`). Not seen: what
    /// changes the caller's array before the call, or the result after it.
    ///
    /// What was changed is got back: blocks of the last committed version from copies that are still
    /// right, where the store has any, or a `reload`; otherwise `FTSORT_ERR_CORRUPT` on all ranks.
    ///
    /// In `ftsort_rounds_run` states are known by their bytes: what comes, is stored or got back must
    /// be what was sent or stored. What the callbacks make of it is theirs.
    FTSORT_CHECK_DIGEST = 1,
    /// Progress: at the end of a stage of bitonic sort every node sees that each half of the bitonic
    /// sequence goes one way (McMillin and Ni 1989, Section 3, Figure 4a).
    ///
    /// This, `FTSORT_CHECK_FEASIBILITY` and `FTSORT_CHECK_CONSISTENCY` are given together, with
    /// `FTSORT_BITONIC` only: the paper's algorithm S_FT (Figure 3), log2(N) rounds more than plain
    /// bitonic sort. Messages, blocks and copies carry what was heard of all nodes: in memory and on the
    /// way up to two times the records of all N nodes, so it is for few records. What it finds, and who is
    /// accused, `docs/reliable.md` tells: not a lie about a node's own input, nor what is changed after
    /// the stages, as the result, which `FTSORT_CHECK_DIGEST` finds; both can be combined.
    ///
    /// After an accusation the round starts again from copies of the last version, or from a `reload`;
    /// where there are none, or where the copies are wrong too, `FTSORT_ERR_CORRUPT` on all ranks.
    FTSORT_CHECK_PROGRESS = 2,
    /// Feasibility: the sequence is a permutation of the one that it was made from (Figure 4b).
    FTSORT_CHECK_FEASIBILITY = 4,
    /// Consistency: what a node is told of another is what it has heard before (Figure 4c). As printed it
    /// does not hold what the paper's Theorem 3 says. So neighbours within a sorted half also tell each
    /// other the whole sequence of the stage before (`Rule::Repeated`): then up to d - 1 faulty nodes in
    /// each subcube of dimension d do not make a wrong result pass.
    FTSORT_CHECK_CONSISTENCY = 8,
    /// `ftsort_rounds_run` only: every callback is called twice, the second time with its bytes at other
    /// addresses, and must give the same; otherwise `FTSORT_ERR_CALLBACK`, whose text names the callback,
    /// the node and the round. For tests. Not seen: what depends on the rank or the process.
    FTSORT_CHECK_PURITY = 16,
}

/// What `on_event` is told. Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_event {
    /// `sizeof(ftsort_event)` of the library; later versions append fields.
    pub struct_size: usize,
    /// One of `ftsort_event_kind`. Ignore kinds that you do not know.
    pub kind: i32,
    /// See the kind; -1 where it says nothing.
    pub rank: i32,
    /// See the kind; -1 where it says nothing.
    pub peer: i32,
    /// The round: 0 is loading; of a sort the last one (`rounds - 1`) makes the result.
    pub round: u32,
    /// How many rounds this sort has.
    pub rounds: u32,
    /// How many repairs this group has been through.
    pub epoch: u32,
    /// The surviving rank with the smallest number. All survivors are told the same, but for
    /// `FTSORT_EVENT_RESTORED`: where one of them is to speak for all, let it be this one.
    pub lowest_survivor: i32,
    /// One of `ftsort_finding`: of `FTSORT_EVENT_CORRUPT`, what was found.
    pub finding: i32,
}

/// Told of what happens, after it has been agreed on. Runs on the thread that called ftsort, on
/// every rank, during any collective call. Must not throw, longjmp, or call a function of ftsort with
/// this group, not even one that only reads.
pub type ftsort_event_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const ftsort_event)>;

/// Receives one line for people, without a newline. `level`: 0 error, 1 warning, 2 information.
/// `line` is valid during the callback only. The same rules as for `ftsort_event_fn`.
pub type ftsort_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: c_int, line: *const c_char)>;

/// Gives the input of `rank` again, byte for byte as that rank passed it to `ftsort_run` or
/// `ftsort_rounds_run`, into `out`
/// (see `ftsort_buffer_resize`). Called on the rank that covers `rank`, when that input is needed and
/// nobody has it: with `FTSORT_STORE_RELOAD`, and with the other stores where theirs is lost. What it
/// gives is checked by size and hash against what the rank had, if that lived to tell. Returns 0, or
/// anything else to refuse; a refusal, or other bytes, end the sort with `FTSORT_ERR_CALLBACK`. The
/// same rules as for `ftsort_event_fn`; where a rank has several threads, they sort what it gave before
/// (and may call `compare`) while it makes the next.
pub type ftsort_reload_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, rank: i32, out: *mut ftsort_buffer) -> c_int>;

/// How a group works. Start from `FTSORT_CONFIG_INIT`; zero always means the default. Later
/// versions append fields, and take a shorter struct as one whose missing fields are zero.
///
/// All ranks pass the same `algorithm`, `store`, `replicas`, `pivot`, `repair`, `dense`, `checks` and
/// `min_survivors`, and either all or none a `reload` and a `timeout_ms`; the rest may differ.
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
    /// Not 0: each survivor gets one block, all of the same size (but for one record), in the order of
    /// ranks, also after faults. Costs two small rounds and moves what is out of place.
    pub dense: i32,
    /// `FTSORT_STORE_MEMORY` only: copies of each input beside the original. 0: one.
    pub replicas: u32,
    /// Threads for local sorting and merging. 0: the processors that this process may use, divided
    /// by the living ranks on this host, at least one; as ranks die, survivors use what they leave. They start
    /// when there is work for them, and end with the group; what cannot be started is done without.
    pub threads: u32,
    /// Not 0: an MPI without ULFM is accepted; faults are then not survived.
    pub accept_no_ulfm: i32,
    /// Milliseconds without any progress, on a wait for other ranks, after which a call gives up with
    /// `FTSORT_ERR_MPI`: longer than any rank's local sort takes. 0: never. For ranks that are stopped
    /// or cut off without MPI noticing (it trusts the kernel unless its heartbeat detector is on),
    /// and for defects of MPI's agreement. The group is poisoned afterwards: leave with
    /// `ftsort_leave`. Not with `FTSORT_REPAIR_SHRINK`, whose barriers cannot be given up.
    pub timeout_ms: u32,
    /// How many ranks must be left for the group to go on; 0 and 1: one. With fewer, calls fail with
    /// `FTSORT_ERR_EXCLUDED`. For networks that can fall apart, where each part takes the other for
    /// dead: with more than half of the ranks at most one part goes on.
    pub min_survivors: u32,
    /// Bytes that ftsort's blocks and messages may take in this process, all groups together. What
    /// would pass it fails with `FTSORT_ERR_MEMORY` on all ranks, before it is allocated. What ranks
    /// tell each other to agree (some records of each rank in every round) counts, but is not limited.
    /// 0: this rank's part of what the system has available, divided evenly by the living ranks on this
    /// host, and 8 MiB in any case.
    pub memory_limit: usize,
    /// `FTSORT_STORE_DIRECTORY` only: an existing directory that all ranks can write and see.
    /// Copied. Files named `ftsort-*` in it are the library's, and are removed at the end.
    pub store_directory: *const c_char,
    /// Faults to inject, for tests and experiments: see "Fault injection". Copied. NULL: the
    /// environment variable `FTSORT_FAULTS`; an empty string: none.
    pub faults: *const c_char,
    /// See `ftsort_reload_fn`; NULL: inputs cannot be got again.
    pub reload: ftsort_reload_fn,
    /// See `ftsort_event_fn`; NULL: nobody is told.
    pub on_event: ftsort_event_fn,
    /// See `ftsort_log_fn`; NULL: nobody is told.
    pub on_log: ftsort_log_fn,
    /// Passed to the callbacks as it is; never read.
    pub user: *mut c_void,
    /// Bits of `ftsort_check`; 0: data are trusted, but for files, which have checksums. The same on all
    /// ranks.
    pub checks: u32,
    /// Where the time goes is written to files whose names begin with this: `PREFIX.RANK.json` by each
    /// rank, while it works, and `PREFIX.json` with all of them by the lowest surviving rank in
    /// `ftsort_leave` or `ftsort_free`; see "Trace". Copied. NULL: the environment variable
    /// `FTSORT_TRACE`; an empty string: none. May differ between ranks.
    pub trace: *const c_char,
}
