//! Trees: what all ranks contribute, merged at one of them; and what one of them has, told to all.

use std::ffi::{c_int, c_void};
use std::hash::{Hash, Hasher};

use super::config::ftsort_buffer;
use super::group::ftsort;
use super::guard::on_group;
use super::record::{Wanted, ftsort_record, read_layout};
use super::settings::{agree_on_equal, read_sized};
use super::status::ftsort_status;
use crate::buffer::{Buffer, Slice};
use crate::engine::{Checkpoints, Engine, Stats};
use crate::error::{Error, Result, Status};
use crate::kernel::{Kernel, kernel_for};
use crate::members::{Rank, RankSet};
use crate::record::KeyKind;
use crate::tree::fold::{Concatenate, Elementwise, Operation, Sorted};
use crate::tree::plan::Remedy;
use crate::tree::run::Errand;
use crate::tree::run::carry::Merge;
use crate::tree::run::choose::{Chosen, Wish};
use crate::tree::run::probe::suspects;

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

/// What a tree is to be like. Start from `FTSORT_TREE_INIT`; zero always means the default. Later
/// versions append fields. The same on all ranks, but for `user`. Borrowed for the call, with all that it
/// points to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_tree {
    /// `sizeof(ftsort_tree)`.
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

/// What a tree has brought to this rank. Owned by the caller; may outlive its group. May be read by several
/// threads at once.
pub struct ftsort_tree_result {
    data: Slice,
}

/// The options, checked.
pub(super) struct Options {
    pub wish: Wish,
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
    pub(super) unsafe fn read(options: *const ftsort_tree, ranks: usize) -> Result<Options> {
        // SAFETY: the caller's contract; the struct holds numbers, pointers and an optional function.
        let given = unsafe { read_sized(options, "options")? };
        let mut read = Options {
            wish: Wish::any(),
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
            read.wish.sink = Some(rank_of("options.sink", given.sink, ranks)?);
        }
        if given.reroute != 0 {
            read.wish.remedy = Remedy::Reroute;
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
            read.wish.links.push((one, other));
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
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        let wish = &self.wish;
        wish.sink.map(|rank| rank.0).hash(&mut hasher);
        (wish.remedy == Remedy::Reroute).hash(&mut hasher);
        let links = wish.links.iter();
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
    unsafe fn fold(&self, threads: usize) -> Result<Fold> {
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
                let kernel = kernel_for(&layout, threads)?;
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
            let slow = suspects(engine, u64::from(self.detect_ms) * 1000)?;
            self.wish.detected = !slow.is_empty();
            self.wish.links.extend(slow);
        }
        Ok(())
    }
}

fn wrong(name: &str, value: i32, expected: &str) -> Error {
    let text = format!("options.{name} is {value}, not {expected}");
    Error::new(Status::Argument, text)
}

fn rank_of(name: &str, value: i32, ranks: usize) -> Result<Rank> {
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
enum Fold {
    Concatenate,
    /// Keeps the order of nodes or not, and by what the layout is known.
    Sorted(Box<dyn Kernel>, bool, u64),
    Numbers(Elementwise),
    Call(Caller),
}

impl Fold {
    fn layout(&self) -> u64 {
        match self {
            Fold::Sorted(_, _, layout) => *layout,
            _ => 0,
        }
    }

    /// Is this what can be merged?
    fn check(&self, state: &[u8]) -> Result<()> {
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

impl Merge for Fold {
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

impl Caller {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        let mut out = ftsort_buffer {
            bytes: Buffer::default(),
        };
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
            0 => Ok(out.bytes),
            code => Err(Error::new(
                Status::Callback,
                format!("the merge callback returned {code}"),
            )),
        }
    }
}

/// Bytes of the caller's, copied.
///
/// # Safety
/// `data` is NULL, or valid for so many bytes.
unsafe fn copied(name: &str, data: *const c_void, bytes: usize) -> Result<Slice> {
    if data.is_null() && bytes > 0 {
        let text = format!("{name} is NULL, but bytes is {bytes}");
        return Err(Error::new(Status::Argument, text));
    }
    if bytes > isize::MAX as usize {
        let text = format!("bytes is {bytes}, more than memory can hold");
        return Err(Error::new(Status::Argument, text));
    }
    Ok(match bytes {
        0 => Buffer::default().into(),
        // SAFETY: not NULL, and valid by this function's contract.
        _ => Buffer::copy_of(unsafe { std::slice::from_raw_parts(data.cast(), bytes) })?.into(),
    })
}

impl ftsort {
    /// Does something collective with a tree: where its contributions are kept, and whose are lost.
    pub(super) fn with_trees<T>(
        &mut self,
        work: impl FnOnce(&mut Checkpoints, &mut Engine<'_>, &mut RankSet) -> Result<T>,
    ) -> Result<T> {
        self.lost = RankSet::new(self.members.ranks());
        let schedule = self.settings.plan.resolve(self.members.ranks(), ROUNDS);
        let mut listener = self.settings.listener;
        // The group's are those of the last sort.
        let mut stats = Stats::default();
        let mut engine = ftsort::engine(
            &mut self.transport,
            &mut self.members,
            &mut listener,
            &mut stats,
            &schedule,
        );
        engine.rounds = ROUNDS;
        work(&mut self.contributions, &mut engine, &mut self.lost)
    }

    fn merge(&mut self, mut prepared: Result<(Options, Fold, Slice)>) -> Result<Option<Slice>> {
        let absent = self.members.faulty().clone();
        let (chosen, result) = self.with_trees(|kept, engine, lost| {
            if let Ok((_, fold, mine)) = &prepared
                && let Err(error) = fold.check(mine)
            {
                prepared = Err(error);
            }
            let (mut options, fold, mine) = engine.all_or_none(prepared)?;
            agree_on_equal(engine, options.fingerprint(fold.layout()), "options")?;
            options.detect(engine)?;
            let mut errand = Errand {
                engine,
                kept,
                wish: &options.wish,
                absent: &absent,
                lost,
            };
            errand.merge(mine, &fold)
        })?;
        self.tree = Some(chosen);
        Ok(result)
    }

    fn broadcast(
        &mut self,
        prepared: Result<(Options, Rank, Slice)>,
        bytes: usize,
    ) -> Result<Slice> {
        let absent = self.members.faulty().clone();
        let (chosen, told) = self.with_trees(|kept, engine, lost| {
            let (mut options, root, mine) = engine.all_or_none(prepared)?;
            agree_on_equal(
                engine,
                options.fingerprint(u64::from(root.0)),
                "options, or root,",
            )?;
            agree_on_equal(engine, bytes as u64, "bytes")?;
            options.detect(engine)?;
            let mut errand = Errand {
                engine,
                kept,
                wish: &options.wish,
                absent: &absent,
                lost,
            };
            errand.broadcast(root, mine)
        })?;
        self.tree = Some(chosen);
        Ok(told)
    }
}

/// Of a fault schedule: from 0, which is not used here, to that in which contributions are carried.
const ROUNDS: u32 = crate::tree::run::CARRYING + 1;

/// Brings what all ranks contribute to one rank, merged on its way along a tree around faulty links
/// (Leu and Kuo 1996, Sections 3.1 and 3.2, FIND_TREE and FTTC). [C]
///
/// Survives faults at any moment: every contribution is first kept as `ftsort_config.store` says (as
/// states are; FTSORT_STORE_RELOAD keeps nothing), and after a fault the survivors choose a tree anew and
/// begin again, with the contributions of the dead. A rank that dies before its contribution is kept
/// takes it along: `FTSORT_ERR_DATA_LOST`, `ftsort_lost_ranks` says who it was, and a second call goes
/// without it. A rank that was known to be dead before the call contributes nothing. All is kept and
/// agreed on as for any other call, over any link: `options.links` is about the tree. In fault schedules
/// round 1 keeps contributions, and round 2 carries them.
///
/// \param[in,out] group a live group.
/// \param[in] options borrowed for the call; NULL: all defaults, which concatenate.
/// \param[in] state this rank's contribution; copied; any alignment. NULL if `bytes` is 0.
/// \param[in] bytes its size. 0: nothing is contributed, and nothing merged with it.
/// \param[out] out on the rank that executes the tree's sink (`ftsort_tree_holder`) the result, to be freed
/// with `ftsort_tree_result_free`; NULL on all others, and after a failure.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (on all ranks where the options are not the same, where
/// `options.links` cuts somebody off from the sink, whom the text names; with arrays of other lengths on
/// the rank that met them, and `FTSORT_ERR_PEER_ARGUMENT` on the others), `FTSORT_ERR_PEER_ARGUMENT`;
/// `FTSORT_ERR_STATE`, also where links that `options.detect_ms` found cut somebody off;
/// `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`, `FTSORT_ERR_CALLBACK`, `FTSORT_ERR_DATA_LOST`,
/// `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// The pointers are NULL or valid, `state` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_merge(
    group: *mut ftsort,
    options: *const ftsort_tree,
    state: *const c_void,
    bytes: usize,
    out: *mut *mut ftsort_tree_result,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let mut out = unsafe { out.as_mut() };
        if let Some(out) = &mut out {
            **out = std::ptr::null_mut();
        }
        let prepare = || {
            if out.is_none() {
                return Err(Error::new(Status::Argument, "out is NULL"));
            }
            // SAFETY: this function's contract.
            unsafe {
                let options = Options::read(options, group.members.ranks())?;
                let fold = options.fold(group.settings.threads)?;
                Ok((options, fold, copied("state", state, bytes)?))
            }
        };
        let prepared = prepare();
        let data = group.merge(prepared)?;
        if let (Some(out), Some(data)) = (out, data) {
            *out = Box::into_raw(Box::new(ftsort_tree_result { data }));
        }
        Ok(())
    })
}

/// Tells all ranks what `root` has, down a tree around faulty links. [C]
///
/// Survives faults at any moment, as `ftsort_tree_merge` does; `root` may die as soon as its bytes are
/// kept. In fault schedules round 1 keeps them, and round 2 carries them.
///
/// \param[in,out] group a live group.
/// \param[in] options borrowed for the call; NULL: all defaults. The sink and the operation are not
/// looked at, but are the same on all ranks.
/// \param[in] root a rank that is alive; the same on all ranks.
/// \param[in,out] buffer on `root` what is told; on the others it is written to, and after a failure it
/// is as it was. NULL if `bytes` is 0.
/// \param[in] bytes its size, the same on all ranks.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (on all ranks where `root` was known to be dead, where the
/// options or `bytes` are not the same, or where `options.links` cuts somebody off, whom the text names),
/// `FTSORT_ERR_PEER_ARGUMENT`; `FTSORT_ERR_STATE`, also where links that `options.detect_ms` found cut
/// somebody off; `FTSORT_ERR_DATA_LOST` where `root` died before its bytes were kept;
/// `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`, `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`,
/// `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// The pointers are NULL or valid, `buffer` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_broadcast(
    group: *mut ftsort,
    options: *const ftsort_tree,
    root: i32,
    buffer: *mut c_void,
    bytes: usize,
) -> ftsort_status {
    on_group(group, |group| {
        let ranks = group.members.ranks();
        let prepare = || {
            // SAFETY: this function's contract.
            unsafe {
                let options = Options::read(options, ranks)?;
                let root = rank_of("root", root, ranks)?;
                Ok((options, root, copied("buffer", buffer, bytes)?))
            }
        };
        let told = group.broadcast(prepare(), bytes)?;
        if told.len() != bytes {
            let text = format!("{} bytes came, not {bytes}", told.len());
            return Err(Error::new(Status::Internal, text));
        }
        if bytes > 0 {
            // SAFETY: not NULL, as was checked, and valid by this function's contract.
            unsafe { std::ptr::copy_nonoverlapping(told.as_ptr(), buffer.cast(), bytes) };
        }
        Ok(())
    })
}

/// What a tree has brought to this rank. [L]
///
/// \param[in] result a result; NULL has none.
/// \param[out] bytes its size; may be NULL.
/// \return the bytes, aligned to 8 at least, valid as long as the result; not NULL, also if there are
/// none, but NULL for NULL.
///
/// # Safety
/// `result` is NULL or live; `bytes` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_result_data(
    result: *const ftsort_tree_result,
    bytes: *mut usize,
) -> *const c_void {
    // SAFETY: this function's contract.
    let (result, bytes) = unsafe { (result.as_ref(), bytes.as_mut()) };
    if let Some(bytes) = bytes {
        *bytes = result.map_or(0, |result| result.data.len());
    }
    result.map_or(std::ptr::null(), |result| result.data.as_ptr().cast())
}

/// Frees a result. [L]
///
/// \param[in] result a result; NULL is a no-op. It must not be used again.
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_result_free(result: *mut ftsort_tree_result) {
    if !result.is_null() {
        // SAFETY: it came from Box::into_raw in ftsort_tree_merge, and the caller gives it back once.
        drop(unsafe { Box::from_raw(result) });
    }
}

/// The tree of the group's last call that took one and succeeded.
///
/// # Safety
/// `group` is NULL or live.
unsafe fn last_tree<'g>(group: *const ftsort) -> Option<&'g Chosen> {
    // SAFETY: this function's contract.
    unsafe { group.as_ref() }?.tree.as_ref()
}

/// The node that the tree of the last `ftsort_tree_merge`, `ftsort_tree_broadcast` or
/// `ftsort_gather_sorted` that succeeded led to, or came from; the same on all survivors. [L]
///
/// \param[in] group a live group.
/// \return the node; -1 if there was none yet, and for NULL.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_sink(group: *const ftsort) -> i32 {
    // SAFETY: this function's contract.
    unsafe { last_tree(group) }.map_or(-1, |chosen| chosen.tree.sink().0 as i32)
}

/// The rank that executed that node: who has the result. [L]
///
/// \param[in] group a live group.
/// \return the rank; -1 if there was none yet, and for NULL.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_holder(group: *const ftsort) -> i32 {
    // SAFETY: this function's contract.
    unsafe { last_tree(group) }.map_or(-1, |chosen| chosen.holder.0 as i32)
}

/// The dimensions of that tree, counted from 0, in the order in which data cross them on their way to
/// the sink (1996 paper, Section 2.2). [L]
///
/// \param[in] group a live group.
/// \param[out] dimensions filled with up to `capacity` of them; may be NULL if `capacity` is 0.
/// \param[in] capacity how many fit.
/// \return how many there are; 0 if there was no tree yet, and for NULL.
///
/// # Safety
/// `group` is NULL or live; `dimensions` is valid for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_order(
    group: *const ftsort,
    dimensions: *mut u32,
    capacity: usize,
) -> usize {
    // SAFETY: this function's contract.
    let order = unsafe { last_tree(group) }.map_or(&[][..], |chosen| chosen.tree.order());
    if !dimensions.is_null() {
        for (index, dimension) in order.iter().take(capacity).enumerate() {
            // SAFETY: below the capacity.
            unsafe { *dimensions.add(index) = *dimension };
        }
    }
    order.len()
}

/// How many links of that tree are faulty, and were worked around. [L]
///
/// \param[in] group a live group.
/// \param[out] helps how many messages went to another neighbour, to be passed on with its own; may be
/// NULL.
/// \param[out] detours how many took a way over other nodes; may be NULL.
/// \return how many; 0 if there was no tree yet, and for NULL.
///
/// # Safety
/// `group` is NULL or live; the others are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_faulty_links(
    group: *const ftsort,
    helps: *mut usize,
    detours: *mut usize,
) -> usize {
    // SAFETY: this function's contract.
    let (chosen, helps, detours) = unsafe { (last_tree(group), helps.as_mut(), detours.as_mut()) };
    if let Some(helps) = helps {
        *helps = chosen.map_or(0, |chosen| chosen.helps);
    }
    if let Some(detours) = detours {
        *detours = chosen.map_or(0, |chosen| chosen.detours);
    }
    chosen.map_or(0, |chosen| chosen.faulty_links as usize)
}
