//! What a tree is to be like, as C says it: where it leads, around which links, and what merging means.

use std::ffi::{c_int, c_void};
use std::hash::{Hash, Hasher};

use twox_hash::XxHash3_64;

use super::buffer::ftsort_buffer;
use super::record::{Wanted, ftsort_record, read_layout};
use super::settings::read_sized;
use ftsort_core::engine::Engine;
use ftsort_core::members::Rank;
use ftsort_core::tree::fold::{Concatenate, Elementwise, Operation, Sorted};
use ftsort_core::tree::plan::Remedy;
use ftsort_core::tree::run::choose::TreeRequest;
use ftsort_core::tree::run::probe::slow_pairs;
use ftsort_core::tree::run::traverse::MergeOperator;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{Kernel, ThreadPool, kernel_for};
use ftsort_kernels::record::KeyKind;

/// What `ftsort_tree_merge` makes of two contributions.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_tree_op {
    /// One after the other, in the order of nodes.
    FTSORT_TREE_CONCATENATE = 0,
    /// Two sorted lists of records of `record` become one. A list that is not sorted is refused.
    FTSORT_TREE_SORTED = 1,
    /// Arrays of numbers of the kind `key`, of the same length on all ranks: added place by place.
    /// Integers go round where they overflow.
    FTSORT_TREE_SUM = 2,
    /// As before; the smaller number of each place.
    FTSORT_TREE_MIN = 3,
    /// As before; the greater number of each place.
    FTSORT_TREE_MAX = 4,
    /// As before; 1 where neither is 0, else 0.
    FTSORT_TREE_AND = 5,
    /// As before; 1 where one of them is not 0, else 0.
    FTSORT_TREE_OR = 6,
    /// What `merge` says.
    FTSORT_TREE_CALL = 7,
}

/// Merges two contributions, or what was merged of several, into `out` (see `ftsort_buffer_resize`).
/// Pure: the same bytes for the same bytes, on every rank. Called on any rank, by the thread that called
/// ftsort, and again for the same contributions after faults; never with a contribution of no bytes.
/// `low` and `high` are aligned to 8 at least. With `ordered` all of `low` is of smaller nodes than
/// `high`; else it must not matter which is which, nor what is merged first. Returns 0, or anything else
/// to refuse, which ends the call with `FTSORT_ERR_CALLBACK`. Must not throw, longjmp, or call ftsort or
/// MPI, but for `ftsort_buffer_resize`.
pub type ftsort_tree_merge_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        low: *const c_void,
        low_bytes: usize,
        high: *const c_void,
        high_bytes: usize,
        out: *mut ftsort_buffer,
    ) -> c_int,
>;

/// What a tree is to be like. Start from `FTSORT_TREE_OPTIONS_INIT`; zero always means the default. Later
/// versions append fields. The same on all ranks, but for `user`. Borrowed for the call, with all that it
/// points to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_tree_options {
    /// `sizeof(ftsort_tree_options)`.
    pub struct_size: usize,
    /// Not 0: the tree leads to the node of rank `sink`. 0: FIND_TREE chooses (1996 paper, Section 3.1):
    /// a node with as few faulty links as any; without faulty links the lowest survivor's.
    pub has_sink: i32,
    /// A rank, dead or alive; its cover takes its part if it is dead.
    pub sink: i32,
    /// One of `ftsort_tree_op`. `ftsort_tree_merge` only.
    pub operation: i32,
    /// One of `ftsort_key`, a number. For the operations on arrays of numbers only.
    pub key: i32,
    /// Not 0: only contributions of neighbouring nodes are merged, in their order; what has a gap
    /// between stays apart on its way, and more memory is used at the sink. For a `merge` for which order
    /// matters, and for sorted lists in which records of equal keys must stay in the order of ranks.
    /// Concatenating is always so.
    pub ordered: i32,
    /// Not 0: a node that cannot send to its parent always takes a way around; 0: it gives what it has to
    /// a neighbour that can pass it on, if there is one (1996 paper, Section 3.2; but to one, not in parts
    /// to all).
    pub reroute: i32,
    /// Not 0: before the call each link is tested with timed letters, and those whose tests took longer
    /// than what is usual, and than so many milliseconds, three times in a row, are taken for faulty in
    /// this call (1996 paper, Figure 7). Sees links that are slow; a link that carries nothing at all
    /// it cannot tell from a slow rank, and waits.
    pub detect_ms: u32,
    /// How many pairs of ranks `links` has.
    pub link_count: usize,
    /// The faulty links: pairs of ranks, two numbers each, that are not to send to each other on the tree's
    /// way. The nodes of the dead go with their covers. May be NULL if `link_count` is 0.
    pub links: *const i32,
    /// What is in sorted lists; `FTSORT_TREE_SORTED` only.
    pub record: *const ftsort_record,
    /// See `ftsort_tree_merge_fn`; `FTSORT_TREE_CALL` only.
    pub merge: ftsort_tree_merge_fn,
    /// Passed to `merge` as it is; never read.
    pub user: *mut c_void,
}

/// The options, checked.
pub(super) struct Options {
    pub request: TreeRequest,
    detect_ms: u32,
    operation: i32,
    key: i32,
    ordered: bool,
    record: *const ftsort_record,
    merge: ftsort_tree_merge_fn,
    user: *mut c_void,
}

impl Options {
    /// # Safety
    /// `options` is NULL or valid, and so is what it points to.
    pub(super) unsafe fn read(
        options: *const ftsort_tree_options,
        ranks: usize,
    ) -> Result<Options> {
        // SAFETY: the caller's contract; the struct holds numbers, pointers and an optional function.
        let given = unsafe { read_sized(options, "options")? };
        let mut read = Options {
            request: TreeRequest::any(),
            detect_ms: 0,
            operation: 0,
            key: 0,
            ordered: false,
            record: std::ptr::null(),
            merge: None,
            user: std::ptr::null_mut(),
        };
        let Some(given) = given else { return Ok(read) };
        if given.has_sink != 0 {
            read.request.sink = Some(rank_of("options.sink", given.sink, ranks)?);
        }
        if given.reroute != 0 {
            read.request.remedy = Remedy::Reroute;
        }
        if given.links.is_null() && given.link_count > 0 {
            let text = format!(
                "options.links is NULL, but options.link_count is {}",
                given.link_count
            );
            return Err(Error::new(Status::Argument, text));
        }
        for index in 0..given.link_count {
            // SAFETY: not NULL, and two numbers for each link by the caller's contract.
            let ends = unsafe { [0, 1].map(|end| *given.links.add(2 * index + end)) };
            let one = rank_of("a rank in options.links", ends[0], ranks)?;
            let other = rank_of("a rank in options.links", ends[1], ranks)?;
            if one == other {
                let text = format!("options.links has a link from {one} to itself");
                return Err(Error::new(Status::Argument, text));
            }
            read.request.links.push((one, other));
        }
        read.detect_ms = given.detect_ms;
        read.operation = given.operation;
        read.key = given.key;
        read.ordered = given.ordered != 0;
        read.record = given.record;
        read.merge = given.merge;
        read.user = given.user;
        Ok(read)
    }

    /// The same on all ranks, with what else must be.
    pub(super) fn fingerprint(&self, layout: u64) -> u64 {
        let mut hasher = XxHash3_64::new();
        let request = &self.request;
        request.sink.map(|rank| rank.0).hash(&mut hasher);
        (request.remedy == Remedy::Reroute).hash(&mut hasher);
        let links = request.links.iter();
        let links: Vec<(u32, u32)> = links.map(|(one, other)| (one.0, other.0)).collect();
        links.hash(&mut hasher);
        (self.detect_ms, self.operation, self.key, self.ordered).hash(&mut hasher);
        layout.hash(&mut hasher);
        hasher.finish()
    }

    /// What is done with two contributions.
    ///
    /// # Safety
    /// The record is NULL or valid, the callback does what it promises.
    pub(super) unsafe fn fold(&self, crew: &ThreadPool) -> Result<Fold> {
        let ordered = self.ordered;
        let numbers = |operation| {
            let kind = KeyKind::from_code(self.key);
            let kind = kind.filter(|kind| kind.natural_bytes().is_some());
            let kind = kind.ok_or_else(|| wrong("key", self.key, "a kind of number"))?;
            Ok(Fold::Numbers(Elementwise {
                kind,
                operation,
                ordered,
            }))
        };
        match self.operation {
            0 => Ok(Fold::Concatenate),
            1 => {
                // SAFETY: this function's contract.
                let Wanted { layout, stable } = unsafe { read_layout(self.record)? };
                let kernel = kernel_for(&layout, crew.clone());
                let fingerprint = layout.fingerprint();
                Ok(Fold::Sorted(kernel, ordered || stable, fingerprint))
            }
            2 => numbers(Operation::Sum),
            3 => numbers(Operation::Least),
            4 => numbers(Operation::Greatest),
            5 => numbers(Operation::And),
            6 => numbers(Operation::Or),
            7 => match self.merge {
                Some(function) => Ok(Fold::Call(Caller {
                    function,
                    user: self.user,
                    ordered,
                })),
                None => Err(Error::new(
                    Status::Argument,
                    "options.operation is FTSORT_TREE_CALL, but options.merge is NULL",
                )),
            },
            other => Err(wrong("operation", other, "one of ftsort_tree_op")),
        }
    }

    /// Adds the links that are too slow, if that is asked for. Collective.
    pub(super) fn detect(&mut self, engine: &mut Engine<'_>) -> Result<()> {
        if self.detect_ms > 0 {
            let slow = slow_pairs(engine, u64::from(self.detect_ms) * 1000)?;
            self.request.detected = !slow.is_empty();
            self.request.links.extend(slow);
        }
        Ok(())
    }
}

fn wrong(name: &str, value: i32, expected: &str) -> Error {
    let text = format!("options.{name} is {value}, not {expected}");
    Error::new(Status::Argument, text)
}

/// A rank of the group.
pub(super) fn rank_of(name: &str, value: i32, ranks: usize) -> Result<Rank> {
    let rank = u32::try_from(value)
        .ok()
        .filter(|rank| (*rank as usize) < ranks);
    rank.map(Rank).ok_or_else(|| {
        let text = format!(
            "{name} is {value}, but the group has ranks 0 to {}",
            ranks - 1
        );
        Error::new(Status::Argument, text)
    })
}

/// What is done with two contributions.
pub(super) enum Fold {
    Concatenate,
    /// Keeps the order of nodes or not, and by what the layout is known.
    Sorted(Box<dyn Kernel>, bool, u64),
    Numbers(Elementwise),
    Call(Caller),
}

impl Fold {
    /// By what the layout is known.
    pub(super) fn layout(&self) -> u64 {
        match self {
            Fold::Sorted(_, _, layout) => *layout,
            _ => 0,
        }
    }

    /// Is this what can be merged?
    pub(super) fn check(&self, state: &[u8]) -> Result<()> {
        match self {
            Fold::Sorted(kernel, ordered, _) => sorted(&**kernel, *ordered).check(state),
            Fold::Numbers(numbers) => numbers.check(state),
            Fold::Concatenate | Fold::Call(_) => Ok(()),
        }
    }
}

fn sorted(kernel: &dyn Kernel, ordered: bool) -> Sorted<'_> {
    Sorted { kernel, ordered }
}

impl MergeOperator for Fold {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        match self {
            Fold::Concatenate => Concatenate.merge(low, high),
            Fold::Sorted(kernel, ordered, _) => sorted(&**kernel, *ordered).merge(low, high),
            Fold::Numbers(numbers) => numbers.merge(low, high),
            Fold::Call(caller) => caller.merge(low, high),
        }
    }

    fn is_ordered(&self) -> bool {
        match self {
            Fold::Concatenate => true,
            Fold::Sorted(_, ordered, _) => *ordered,
            Fold::Numbers(numbers) => numbers.ordered,
            Fold::Call(caller) => caller.ordered,
        }
    }
}

/// The user's merge function.
pub(super) struct Caller {
    function: unsafe extern "C" fn(
        *mut c_void,
        *const c_void,
        usize,
        *const c_void,
        usize,
        *mut ftsort_buffer,
    ) -> c_int,
    user: *mut c_void,
    ordered: bool,
}

impl Caller {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        let mut out = ftsort_buffer::empty();
        // SAFETY: the user's function with the user's pointer, on this thread; all bytes live during the
        // call.
        let refused = unsafe {
            (self.function)(
                self.user,
                low.as_ptr().cast(),
                low.len(),
                high.as_ptr().cast(),
                high.len(),
                &mut out,
            )
        };
        match refused {
            0 => Ok(out.into_bytes()),
            code => Err(Error::new(
                Status::Callback,
                format!("the merge callback returned {code}"),
            )),
        }
    }
}
