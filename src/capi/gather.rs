//! The whole result of a sort on one rank, in order, piece by piece.

use std::ffi::{c_int, c_void};

use super::group::ftsort;
use super::guard::on_group;
use super::result::ftsort_result;
use super::settings::agree_on_equal;
use super::status::ftsort_status;
use super::tree::{Options, ftsort_tree_options};
use ftsort_core::tree::run::collect::Collect;
use ftsort_kernels::error::{Error, Result, Status};

/// Takes the next `count` records of a sorted result. Called on the rank that gets them, by the thread that
/// called ftsort; `records` are aligned to 8 at least, and valid during the callback. Returns 0, or
/// anything else to refuse, which ends the call with `FTSORT_ERR_CALLBACK`. Must not throw, longjmp, or
/// call ftsort with this group.
pub type ftsort_consume_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, records: *const c_void, count: usize) -> c_int>;

/// The bytes that go at once.
const WINDOW: usize = 4 << 20;

/// Hands the whole result of a sort to one rank, in order, in pieces of about 4 MiB that come along a
/// tree around faulty links (as in `ftsort_tree_merge`). Needs memory for some pieces only, on any
/// rank. [C]
///
/// Each record is handed out once, and not before all survivors have agreed that its piece came. Nothing
/// else is kept of a result: if a rank dies whose blocks were not handed out to their end, or the rank
/// that gets them, the call fails with `FTSORT_ERR_DATA_LOST` on all survivors, `ftsort_lost_ranks` says
/// who that was, and what was handed out before is right as far as it goes. The results stay as they are.
/// In fault schedules every piece is round 2.
///
/// \param[in,out] group a live group.
/// \param[in] options borrowed for the call; NULL: all defaults. Its sink is the rank that gets the
/// records (`ftsort_tree_holder`); its operation is not looked at, but is the same on all ranks.
/// \param[in] result this rank's result of a sort of this group, the same sort on all ranks; not changed.
/// \param[in] consume see `ftsort_consume_fn`; not NULL on any rank, since any might get the records.
/// \param[in] user passed to `consume` as it is; never read.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (on all ranks where the options are not the same, where
/// `options.links` cuts somebody off, or where the results are not of one sort),
/// `FTSORT_ERR_PEER_ARGUMENT`; `FTSORT_ERR_STATE`, also where links that `options.detect_ms` found cut
/// somebody off; `FTSORT_ERR_DATA_LOST`, `FTSORT_ERR_CALLBACK`, `FTSORT_ERR_MEMORY`,
/// `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_gather_sorted(
    group: *mut ftsort,
    options: *const ftsort_tree_options,
    result: *const ftsort_result,
    consume: ftsort_consume_fn,
    user: *mut c_void,
) -> ftsort_status {
    on_group(group, |group| {
        let refuse = |text: &str| Error::new(Status::Argument, text);
        let ranks = group.members.ranks();
        let prepare = || {
            let consume = consume.ok_or_else(|| refuse("consume is NULL"))?;
            // SAFETY: this function's contract.
            let (result, options) = unsafe { (result.as_ref(), Options::read(options, ranks)?) };
            let result = result.ok_or_else(|| refuse("result is NULL"))?;
            if result.ranks() != ranks {
                return Err(refuse("result is of another group"));
            }
            Ok((consume, result, options))
        };
        let prepared = prepare();
        let chosen = group.with_trees(|_, engine, lost| {
            let (consume, result, mut options) = engine.all_or_none(prepared)?;
            agree_on_equal(engine, options.fingerprint(0), "options")?;
            options.detect(engine)?;
            let holding = result.holding();
            let collect = Collect {
                engine,
                request: &options.request,
                local: &holding,
                window: WINDOW,
                lost,
            };
            collect.run(&mut |records| {
                let count = records.len() / holding.record_bytes;
                // SAFETY: the user's function with the user's pointer; the records live during the call.
                let refused = unsafe { consume(user, records.as_ptr().cast(), count) };
                accepted(refused)
            })
        })?;
        group.tree = Some(chosen);
        Ok(())
    })
}

fn accepted(code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::new(
            Status::Callback,
            format!("the consume callback returned {code}"),
        )),
    }
}
