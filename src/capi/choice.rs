//! The choice of the sorting algorithm: in the configuration, and for later sorts.

use super::config::{ftsort_algorithm, ftsort_check};
use super::handle::{Handle, on_group};
use super::settings::wrong;
use super::status::ftsort_status;
use ftsort_core::sort::{Method, PivotRule, Shape, Splitters};
use ftsort_kernels::error::{Error, Result};

/// A sort as C programs name it.
#[derive(Clone, Copy)]
pub(super) struct SortChoice {
    /// The struct of `algorithm` and `pivot` in error texts, with a dot; empty for arguments.
    pub prefix: &'static str,
    /// One of `ftsort_algorithm`, if it is valid.
    pub algorithm: i32,
    /// One of `ftsort_pivot`, if it is valid.
    pub pivot: i32,
    /// Bits of `ftsort_check`.
    pub checks: u32,
}

impl SortChoice {
    fn plain(self) -> Result<Option<Method>> {
        use ftsort_algorithm::*;
        let wrong = |name: &str, value: i32, expected: &str| {
            let prefix = self.prefix;
            Error::argument(format!("{prefix}{name} is {value}, expected {expected}"))
        };
        let rule = match self.pivot {
            0 => PivotRule::Sampled,
            1 => PivotRule::Paper,
            other => return Err(wrong("pivot", other, "an ftsort_pivot")),
        };
        let splitters = |by_the_paper| match rule {
            PivotRule::Sampled => Splitters::Sampled,
            PivotRule::Paper => by_the_paper,
        };
        let methods = [
            (FTSORT_AUTO, None),
            (FTSORT_HYPERQUICKSORT, Some(Method::HyperQuickSort(rule))),
            (
                FTSORT_QUICKMERGE,
                Some(Method::QuickMerge(splitters(Splitters::Root))),
            ),
            (
                FTSORT_QUICKMERGE_MODIFIED,
                Some(Method::QuickMerge(splitters(Splitters::Averaged))),
            ),
            (FTSORT_BITONIC, Some(Method::Bitonic(Shape::Any))),
            (FTSORT_BITONIC_MERGE, Some(Method::Bitonic(Shape::Bitonic))),
            (FTSORT_SAMPLESORT, Some(Method::SampleSort(1))),
            (FTSORT_SAMPLESORT_2, Some(Method::SampleSort(2))),
            (FTSORT_SAMPLESORT_3, Some(Method::SampleSort(3))),
        ];
        let found = methods
            .into_iter()
            .find(|(name, _)| *name as i32 == self.algorithm);
        found
            .map(|(_, method)| method)
            .ok_or_else(|| wrong("algorithm", self.algorithm, "an ftsort_algorithm"))
    }

    /// Returns the sort; None: the library chooses.
    pub fn method(self) -> Result<Option<Method>> {
        use ftsort_check::*;
        let (method, checks) = (self.plain()?, self.checks);
        let predicates = [
            FTSORT_CHECK_PROGRESS,
            FTSORT_CHECK_FEASIBILITY,
            FTSORT_CHECK_CONSISTENCY,
        ];
        let predicates = predicates
            .into_iter()
            .fold(0, |bits, one| bits | one as u32);
        let others = FTSORT_CHECK_DIGEST as u32 | FTSORT_CHECK_PURITY as u32;
        let refused = |expected: &str| Err(wrong("checks", checks, expected));
        let plain = Some(Method::Bitonic(Shape::Any));
        match checks & predicates {
            _ if checks & !(predicates | others) != 0 => refused("bits of ftsort_check"),
            0 => Ok(method),
            some if some != predicates => refused(
                "FTSORT_CHECK_PROGRESS, FTSORT_CHECK_FEASIBILITY and FTSORT_CHECK_CONSISTENCY together",
            ),
            _ if method != plain => refused(&format!(
                "no predicates of 1989, unless {}algorithm is FTSORT_BITONIC",
                self.prefix
            )),
            _ => Ok(Some(Method::SftBitonic)),
        }
    }
}

/// Selects the algorithm of the sorts that follow. [C]
///
/// In place of `config.algorithm` and `config.pivot`, until the next call of this function; for ftsort_run,
/// ftsort_run_protected and ftsort_sort (if `group` is that of its communicator). So a protected input can be sorted by
/// one algorithm after the other. Results of earlier sorts are recovered by the algorithm that made them.
///
/// \param algorithm  one of `ftsort_algorithm`, the same on all ranks; FTSORT_BITONIC if `config.checks` has the checks
///                   of 1989
/// \param pivot      one of `ftsort_pivot`, the same on all ranks
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if the arguments differ between ranks; or another status of
///         "Collective calls". After an error the algorithm is the same as before
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_set_algorithm(
    group: *mut Handle,
    algorithm: i32,
    pivot: i32,
) -> ftsort_status {
    on_group(group, |group| {
        let choice = SortChoice {
            prefix: "",
            algorithm,
            pivot,
            ..group.sort
        };
        group.group.set_method(choice.method())?;
        group.sort = choice;
        Ok(())
    })
}
