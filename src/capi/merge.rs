//! Trees: what all ranks contribute, merged at one of them; and what one of them has, told to all.

use std::ffi::c_void;

use super::group::{Keeping, ftsort};
use super::guard::on_group;
use super::settings::agree_on_equal;
use super::status::ftsort_status;
use super::tree::{Fold, Options, ftsort_tree_options, rank_of};
use ftsort_core::engine::{Checkpoints, Engine};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::tree::run::TreeOp;
use ftsort_core::tree::run::choose::ChosenTree;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// What a tree has brought to this rank. Owned by the caller; may outlive its group. May be read by several
/// threads at once.
pub struct ftsort_tree_result {
    data: Slice,
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
        self.beside_sorts(Keeping::Trees, &schedule, |kept, engine, lost| {
            engine.set_rounds(ROUNDS);
            work(kept, engine, lost)
        })
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
            let mut tree_op = TreeOp {
                engine,
                checkpoints: kept,
                request: &options.request,
                absent: &absent,
                lost,
            };
            tree_op.merge(mine, &fold)
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
            let mut tree_op = TreeOp {
                engine,
                checkpoints: kept,
                request: &options.request,
                absent: &absent,
                lost,
            };
            tree_op.broadcast(root, mine)
        })?;
        self.tree = Some(chosen);
        Ok(told)
    }
}

/// Of a fault schedule: from 0, which is not used here, to that in which contributions are carried.
const ROUNDS: u32 = ftsort_core::tree::run::TREE_ROUND + 1;

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
    options: *const ftsort_tree_options,
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
                let fold = options.fold(&group.settings.crew)?;
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
    options: *const ftsort_tree_options,
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
unsafe fn last_tree<'g>(group: *const ftsort) -> Option<&'g ChosenTree> {
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
    unsafe { last_tree(group) }.map_or(-1, |chosen| chosen.sink_rank.0 as i32)
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
        *helps = chosen.map_or(0, |chosen| chosen.delegated);
    }
    if let Some(detours) = detours {
        *detours = chosen.map_or(0, |chosen| chosen.detours);
    }
    chosen.map_or(0, |chosen| chosen.faulty_links as usize)
}
