//! Options of tree collectives, as C describes them: the sink, the faulty links, and the merge operation.

use std::ffi::{c_int, c_void};

use super::buffer::ftsort_buffer;
use super::record::{ftsort_record, read_layout};
use super::settings::{choice_of, read_or_default, wrong_option};
use super::slices::CArray;
use ftsort_core::group::config::hash_of;
use ftsort_core::group::protected::Order;
use ftsort_core::group::{MergeOperation, TreeOptions};
use ftsort_core::members::Rank;
use ftsort_core::tree::fold::{Elementwise, Operation};
use ftsort_core::tree::plan::Remedy;
use ftsort_core::tree::run::traverse::MergeOperator;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, refuse};
use ftsort_kernels::record::KeyKind;

/// The operation that merges two contributions in ftsort_tree_merge.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_tree_op {
    /// One after the other, in the order of nodes.
    FTSORT_TREE_CONCATENATE = 0,
    /// Merges two sorted lists of records of `record`. A list that is not sorted is an invalid argument.
    FTSORT_TREE_SORTED = 1,
    /// Adds arrays of numbers of the type `key`, of the same length on all ranks, element by element. Integers wrap
    /// around.
    FTSORT_TREE_SUM = 2,
    /// The smaller number of each element of such arrays.
    FTSORT_TREE_MIN = 3,
    /// The greater number of each element.
    FTSORT_TREE_MAX = 4,
    /// For each element 1 if both are not 0, else 0.
    FTSORT_TREE_AND = 5,
    /// For each element 1 if one of them is not 0, else 0.
    FTSORT_TREE_OR = 6,
    /// Calls `merge`.
    FTSORT_TREE_CALL = 7,
}

/// The way around a faulty link to the parent of a node (1996 paper, Section 3.2).
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_tree_remedy {
    /// The node gives its data to one neighbour that can pass them on, if there is one, and else uses a detour.
    FTSORT_TREE_DELEGATE = 0,
    /// Always a detour.
    FTSORT_TREE_REROUTE = 1,
    /// The strategy of the paper: the node divides its data among all neighbours that can pass them on. For sorted
    /// lists and arrays of numbers without `ordered` in ftsort_tree_merge; otherwise as FTSORT_TREE_DELEGATE.
    FTSORT_TREE_PARTITION = 2,
}

/// Merges two contributions, or merged contributions, into `merged` (see ftsort_buffer_resize). Must be pure: the
/// same bytes for the same bytes, on every rank. Called on any rank, by the thread that called ftsort, again for
/// the same contributions after failures, and never with an empty contribution. `low` and `high` are aligned to at
/// least 8 bytes. With `ordered` all of `low` is of smaller nodes than `high`; otherwise the operation must be
/// commutative and associative. Returns 0, or any other number to refuse, which ends the call with
/// FTSORT_ERR_CALLBACK. Must not throw, longjmp, or call ftsort or MPI, except the functions ftsort_buffer_.
pub type ftsort_tree_merge_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        low: *const c_void,
        low_bytes: usize,
        high: *const c_void,
        high_bytes: usize,
        merged: *mut ftsort_buffer,
    ) -> c_int,
>;

/// Options for tree collectives. Start from FTSORT_TREE_OPTIONS_INIT; zero selects the default of every member.
/// The same on all ranks, except `user`. Borrowed for the call, with all that it points to. Later versions append
/// members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_tree_options {
    /// `sizeof(ftsort_tree_options)`.
    pub struct_size: usize,
    /// Not 0: the tree leads to the node of rank `sink`. 0: FIND_TREE chooses a node with the fewest faulty links
    /// (1996 paper, Section 3.1); without faulty links the node of the lowest survivor.
    pub has_sink: i32,
    /// A rank; if it has failed, the executor of its node takes its place. In ftsort_gather_sorted no spare without a
    /// node.
    pub sink: i32,
    /// One of `ftsort_tree_op`; ftsort_tree_merge only.
    pub operation: i32,
    /// One of `ftsort_key`, a number; for the operations on arrays of numbers.
    pub key: i32,
    /// Not 0: only contributions of adjacent nodes are merged, in their order; others stay apart on the way, and the
    /// sink needs more memory. For a `merge` that depends on the order, and for sorted lists in which records with
    /// equal keys must keep the order of ranks. Concatenation is always ordered.
    pub ordered: i32,
    /// One of `ftsort_tree_remedy`.
    pub reroute: i32,
    /// Not 0: each link is tested by three timed messages before the call, and counts as faulty in this call if all of
    /// them are late (1996 paper, Figure 7): longer on the way than usual on the faster links of one of its two ranks,
    /// and longer than this number of milliseconds, the second one than twice and the third one than four times this
    /// number. If neither rank has a faster link, as in a group of two ranks, the limit is a hundred times this number
    /// for all three. Detects slow links; a link that carries nothing cannot be told from a slow rank, and the test
    /// waits.
    pub detect_ms: u32,
    /// The number of pairs at `links`.
    pub link_count: usize,
    /// The faulty links: pairs of ranks, two numbers each, that must not send to each other on the way along the
    /// tree. The nodes of a failed rank move to their executor. NULL if `link_count` is 0.
    pub links: *const i32,
    /// The records of sorted lists; FTSORT_TREE_SORTED only.
    pub record: *const ftsort_record,
    /// See `ftsort_tree_merge_fn`; FTSORT_TREE_CALL only.
    pub merge: ftsort_tree_merge_fn,
    /// Passed to `merge` and never read.
    pub user: *mut c_void,
}

/// The checked options.
pub(super) struct Options {
    pub tree: TreeOptions,
    given: ftsort_tree_options,
}

impl Options {
    /// # Safety
    /// `options` is NULL or valid, and so are its pointers.
    pub(super) unsafe fn read(
        options: *const ftsort_tree_options,
        ranks: usize,
    ) -> Result<Options> {
        // SAFETY: the caller's contract; the struct holds numbers, pointers and an optional function.
        let given = unsafe { read_or_default(options, "options")? };
        let mut tree = TreeOptions {
            detect_ms: given.detect_ms,
            caller_fingerprint: hash_of((given.operation, given.key, given.ordered != 0)),
            ..TreeOptions::default()
        };
        let request = &mut tree.request;
        if given.has_sink != 0 {
            request.sink = Some(rank_of("options.sink", given.sink, ranks)?);
        }
        let remedies = [Remedy::Delegate, Remedy::Reroute, Remedy::Partition];
        let expected = "one of ftsort_tree_remedy";
        request.remedy = choice_of("reroute", given.reroute, &remedies, expected)?;
        let links = given.links.cast::<[i32; 2]>();
        CArray::of(
            ("options.links", links),
            ("options.link_count", given.link_count),
        )
        .check()?;
        for index in 0..given.link_count {
            // SAFETY: `links` is not NULL, and has two numbers for each link by the caller's contract.
            let ends = unsafe { *links.add(index) };
            let one = rank_of("a rank in options.links", ends[0], ranks)?;
            let other = rank_of("a rank in options.links", ends[1], ranks)?;
            if one == other {
                return refuse(format!(
                    "options.links has a link from rank {one} to itself: name two ranks"
                ));
            }
            request.links.push((one, other));
        }
        Ok(Options { tree, given })
    }

    /// Returns the operation that merges two contributions.
    ///
    /// # Safety
    /// The record is NULL or valid, and the callback keeps its contract.
    pub(super) unsafe fn operation(&self) -> Result<MergeOperation<'static>> {
        let given = &self.given;
        let ordered = given.ordered != 0;
        let numbers = |operation| {
            let kind = KeyKind::from_code(given.key);
            let kind = kind.filter(|kind| kind.natural_bytes().is_some());
            let kind = kind.ok_or_else(|| wrong_option("key", given.key, "a kind of number"))?;
            Ok(MergeOperation::Numbers(Elementwise {
                kind,
                operation,
                ordered,
            }))
        };
        match given.operation {
            0 => Ok(MergeOperation::Concatenate),
            1 => {
                // SAFETY: this function's contract.
                let Order { layout, stable } = unsafe { read_layout(given.record)? };
                let ordered = ordered || stable;
                Ok(MergeOperation::Sorted { layout, ordered })
            }
            2 => numbers(Operation::Sum),
            3 => numbers(Operation::Least),
            4 => numbers(Operation::Greatest),
            5 => numbers(Operation::And),
            6 => numbers(Operation::Or),
            7 => match given.merge {
                Some(function) => Ok(MergeOperation::Call(Box::new(Caller {
                    function,
                    user: given.user,
                    ordered,
                }))),
                None => refuse(
                    "options.operation is FTSORT_TREE_CALL, but options.merge is NULL: set the callback",
                ),
            },
            other => Err(wrong_option("operation", other, "one of ftsort_tree_op")),
        }
    }
}

/// Checks that a number is a rank of the group.
pub(super) fn rank_of(name: &str, value: i32, ranks: usize) -> Result<Rank> {
    let rank = u32::try_from(value)
        .ok()
        .filter(|rank| (*rank as usize) < ranks);
    rank.map(Rank).ok_or_else(|| {
        Error::argument(format!(
            "{name} is {value}, but the group has the ranks 0 to {}",
            ranks - 1
        ))
    })
}

/// The user's merge function.
struct Caller {
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

/// Returns contributed bytes at a multiple of 8, copied if necessary: those that came in one message lie one after the other.
fn aligned<'b>(bytes: &'b [u8], copy: &'b mut Buffer) -> Result<&'b [u8]> {
    if bytes.as_ptr().addr().is_multiple_of(8) {
        return Ok(bytes);
    }
    *copy = Buffer::copy_of(bytes)?;
    Ok(copy)
}

impl MergeOperator for Caller {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        let (mut low_copy, mut high_copy) = (Buffer::default(), Buffer::default());
        let (low, high) = (aligned(low, &mut low_copy)?, aligned(high, &mut high_copy)?);
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
            code => Err(out.into_refusal(format!("the merge callback returned {code}"))),
        }
    }

    fn is_ordered(&self) -> bool {
        self.ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_options_are_those_of_the_tree() {
        let links = [0, 1, 2, 3];
        // SAFETY: numbers, pointers and optional functions may all be zero.
        let zero: ftsort_tree_options = unsafe { std::mem::zeroed() };
        let remedies = [Remedy::Delegate, Remedy::Reroute, Remedy::Partition];
        for (number, remedy) in remedies.into_iter().enumerate() {
            let given = ftsort_tree_options {
                struct_size: size_of::<ftsort_tree_options>(),
                has_sink: 1,
                sink: 3,
                reroute: number as i32,
                detect_ms: 7,
                link_count: 2,
                links: links.as_ptr(),
                ..zero
            };
            // SAFETY: the struct has its size, and its links live.
            let Options { tree, .. } = unsafe { Options::read(&given, 4) }.expect("right options");
            assert_eq!(tree.detect_ms, 7);
            assert_eq!(
                (tree.request.sink, tree.request.remedy),
                (Some(Rank(3)), remedy)
            );
            let expected = [(Rank(0), Rank(1)), (Rank(2), Rank(3))];
            assert_eq!(tree.request.links, expected);
        }
    }

    #[test]
    fn lists_of_stable_records_are_merged_in_the_order_of_nodes() {
        // SAFETY: numbers, pointers and optional functions may all be zero.
        let (zero, record): (ftsort_tree_options, ftsort_record) = unsafe { std::mem::zeroed() };
        for (ordered, stable) in [(0, 0), (0, 1), (1, 0)] {
            let record = ftsort_record {
                struct_size: size_of::<ftsort_record>(),
                record_bytes: 4,
                key: 5,
                stable,
                ..record
            };
            let given = ftsort_tree_options {
                struct_size: size_of::<ftsort_tree_options>(),
                operation: ftsort_tree_op::FTSORT_TREE_SORTED as i32,
                ordered,
                record: &record,
                ..zero
            };
            // SAFETY: the structs have their sizes, and live.
            let operation = unsafe { Options::read(&given, 4).and_then(|read| read.operation()) };
            let Ok(MergeOperation::Sorted { ordered: found, .. }) = operation else {
                panic!("another operation");
            };
            assert_eq!(found, ordered + stable > 0);
        }
    }
}
