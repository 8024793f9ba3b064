//! Results with columns: values that are sorted by their keys, the order of records as their positions, and the
//! positions of records in that order.
//!
//! A sort moves records that are made of the columns, and each block of its result becomes columns again. A recovery
//! does the same with the blocks that it rebuilds. Must never: keep a column that does not follow from the blocks of the
//! sort, which alone are redundant.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::input::{FUNCTION, InputOrigin, Prepared};
use super::job::JobSetup;
use super::{Argument, Group, JobKind, SortInput, Sorted};
use crate::block::{Block, Run};
use crate::engine::{CollectiveError, CollectiveResult, Finished, sum};
use crate::members::{Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::query::groups::Groups;
use crate::query::scatter::{PAIR_BYTES, Scatter, write_pair};
use crate::query::zip::{Values, Zip};
use crate::sort::global_offset;
use crate::transport::Transport;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status, refuse};
use ftsort_kernels::kernel::kernel_for;
use ftsort_kernels::record::{Comparator, Fields, KeyKind, Layout, MOST_RECORD_BYTES};

/// The columns of a result.
#[derive(Debug)]
pub(super) struct Columns {
    rule: Rule,
    /// The size of an element of each column in bytes.
    widths: Vec<usize>,
    /// The columns of each listed block beside the first.
    further: BTreeMap<Node, Vec<Slice>>,
    /// The same of blocks that were listed earlier: pointers to columns stay valid.
    _moved: Vec<Vec<Slice>>,
}

/// How columns follow from the blocks of the sort.
#[derive(Debug)]
enum Rule {
    /// Keys and values, in this order of keys.
    KeysAndValues(Arc<Zip>, Layout),
    /// The positions of the records in the input.
    Order(Arc<Zip>),
    /// The positions of the records in the result, for the input of each node.
    Positions(Arc<Zip>),
    /// The first record of each group, and the aggregates of the group.
    Groups(Groups),
}

impl Columns {
    fn new(rule: Rule, widths: Vec<usize>) -> Columns {
        Columns {
            rule,
            widths,
            further: BTreeMap::new(),
            _moved: Vec::new(),
        }
    }

    /// The columns of groups of records of this size.
    pub fn of_groups(groups: Groups, record_bytes: usize) -> Columns {
        let widths = groups.widths(record_bytes);
        Columns::new(Rule::Groups(groups), widths)
    }

    /// The size of an element of the first column in bytes.
    pub fn first_width(&self) -> usize {
        self.widths[0]
    }

    /// Makes the columns of blocks of the sort. `before`: the blocks that are listed already, which stay.
    pub fn of_blocks(
        &mut self,
        blocks: Vec<(Node, u64, Slice)>,
        before: &[(Node, u64, Slice)],
        layout: &Layout,
    ) -> Result<Vec<(Node, u64, Slice)>> {
        let mut listed = Vec::with_capacity(blocks.len());
        for (node, offset, records) in blocks {
            let known = before.iter().find(|(known, ..)| *known == node);
            if let (Some(known), true) = (known, self.further.contains_key(&node)) {
                listed.push(known.clone());
                continue;
            }
            let (offset, mut columns) = self.rule.columns(node, offset, &records, layout)?;
            let first = columns.remove(0);
            self._moved.extend(self.further.insert(node, columns));
            listed.push((node, offset, first));
        }
        Ok(listed)
    }
}

impl Rule {
    /// The offset and the columns of a node with these records; at least one column.
    fn columns(
        &self,
        node: Node,
        offset: u64,
        records: &[u8],
        layout: &Layout,
    ) -> Result<(u64, Vec<Slice>)> {
        match self {
            Rule::KeysAndValues(zip, _) => {
                let columns = vec![zip.keys(records)?.into(), zip.values(records)?.into()];
                Ok((offset, columns))
            }
            Rule::Order(zip) => Ok((offset, vec![zip.values(records)?.into()])),
            Rule::Groups(groups) => {
                let kernel = kernel_for(layout, 1);
                let columns = groups.columns(node, records, &*kernel)?;
                Ok((groups.offset(node), columns))
            }
            Rule::Positions(_) => Err(Error::internal("positions are made by an exchange")),
        }
    }
}

impl Sorted {
    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
            .as_ref()
            .map_or(1, |columns| columns.widths.len())
    }

    /// The bytes of a column of a block, and the size of an element.
    pub fn column(&self, index: usize, column: usize) -> Option<(&[u8], usize)> {
        let (node, _, first) = self.blocks.get(index)?;
        if column == 0 {
            return Some((first, self.record_bytes()));
        }
        let columns = self.columns.as_ref()?;
        let further = columns.further.get(node)?.get(column - 1)?;
        Some((further, columns.widths[column]))
    }

    pub(super) fn has_columns(&self) -> bool {
        self.columns.is_some()
    }

    /// The layout of the elements of its blocks, if they are records in order.
    pub fn listed_layout(&self) -> Option<&Layout> {
        match self.columns.as_ref().map(|columns| &columns.rule) {
            None => Some(&self.layout),
            Some(Rule::KeysAndValues(_, layout)) => Some(layout),
            Some(_) => None,
        }
    }

    /// Whether its blocks are made by an exchange of positions.
    pub(super) fn is_scattered(&self) -> bool {
        let columns = self.columns.as_ref();
        columns.is_some_and(|columns| matches!(columns.rule, Rule::Positions(_)))
    }

    /// Replaces the records of all blocks by columns.
    pub(super) fn turn_into(&mut self, columns: Columns) -> Result<()> {
        let blocks = std::mem::take(&mut self.blocks);
        let columns = self.columns.insert(Box::new(columns));
        self.blocks = columns.of_blocks(blocks, &[], &self.layout)?;
        Ok(())
    }
}

/// Keys, and a value beside each of them.
#[derive(Clone, Debug)]
pub struct KeysAndValues<'a> {
    /// The keys: records, sorted as by [`Group::sort`].
    pub keys: SortInput<'a>,
    /// The values: as many as there are keys, of `value_bytes` bytes each.
    pub values: &'a [u8],
    /// The size of a value in bytes; the same on all ranks.
    pub value_bytes: usize,
}

impl KeysAndValues<'_> {
    fn check(&self) -> Result<()> {
        self.keys.check("keys")?;
        let key_bytes = self.keys.layout.record_bytes();
        let most = MOST_RECORD_BYTES - key_bytes;
        if self.value_bytes > most {
            return refuse(format!(
                "value_bytes is {}, but beside a key of {key_bytes} bytes a value has at most {most} bytes",
                self.value_bytes
            ));
        }
        let count = self.keys.records.len() / key_bytes;
        if self.values.len() == count * self.value_bytes {
            return Ok(());
        }
        refuse(format!(
            "values has {} bytes, but {count} keys with a value of {} bytes each were passed",
            self.values.len(),
            self.value_bytes
        ))
    }
}

/// Keys that are sorted with the positions of their records.
struct PositionedKeys<'a> {
    given: &'a [u8],
    zip: Arc<Zip>,
    /// The layout of the records that are sorted.
    layout: Result<Layout>,
}

/// Distinguishes the calls of different functions with equal records.
const ARGSORT: (&str, u64) = (FUNCTION, 0x6172_6773);
const POSITIONS: (&str, u64) = (FUNCTION, 0x706f_7369);
const BY_KEY: u64 = 0x6279_6b65;

impl<T: Transport> Group<T> {
    /// Sorts keys, and moves the value beside each key along. The result has two columns. Collective.
    ///
    /// A reload provides the keys of its rank, followed by the values.
    ///
    /// # Errors
    /// As [`Group::sort`].
    pub fn sort_by_key<'a>(&mut self, input: impl Argument<KeysAndValues<'a>>) -> Result<Sorted> {
        self.job(JobKind::Sort, |group, absent| {
            let input = input.into_result();
            let input = input.and_then(|input| input.check().map(|()| input));
            group.in_steps(&absent, |group, absent| {
                group.sort_columns(absent, input.clone())
            })
        })
    }

    fn sort_columns(
        &mut self,
        absent: RankSet,
        input: Result<KeysAndValues<'_>>,
    ) -> CollectiveResult<Sorted> {
        let (input, (values, value_bytes)) = match input {
            Ok(input) => (Ok(input.keys), (input.values, input.value_bytes)),
            Err(error) => (Err(error), (&[][..], 0)),
        };
        let further = BY_KEY.wrapping_add((value_bytes as u64) << 32);
        let further = ("the function or value_bytes", further);
        let keys = self.agree_on_keys(input, further)?;
        let given_bytes = keys.layout.record_bytes();
        let zip = Zip::new(given_bytes, 0..given_bytes, Values::Given(value_bytes));
        let layout = zipped_layout(&keys.layout, &zip, 0);
        let zip = Arc::new(zip);
        let mut sorted = self
            .sort_zipped(absent, &zip, layout, keys.given, values)?
            .0;
        let widths = vec![given_bytes, value_bytes];
        let columns = Columns::new(Rule::KeysAndValues(zip, keys.layout), widths);
        let listed = sorted.turn_into(columns);
        let agreed = self.agree_on_columns(&mut sorted, listed);
        self.end_steps(sorted, agreed)
    }

    /// Sorts the positions of records by the records: the result has the positions (64 bits each) of all records in the
    /// input of all ranks, rank by rank, in sorted order. Equal keys keep their order. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; `Status::DataLost` also if a rank fails before the others know how many records it has.
    pub fn argsort<'a>(&mut self, input: impl Argument<SortInput<'a>>) -> Result<Sorted> {
        self.job(JobKind::Sort, |group, absent| {
            let keys = group.agree_on_positions(&absent, input.into_result(), ARGSORT)?;
            group.in_steps(&absent, |group, absent| {
                let mut sorted = group.sort_positions(absent, &keys)?.0;
                let rule = Rule::Order(Arc::clone(&keys.zip));
                let listed = sorted.turn_into(Columns::new(rule, vec![size_of::<u64>()]));
                let agreed = group.agree_on_columns(&mut sorted, listed);
                group.end_steps(sorted, agreed)
            })
        })
    }

    /// Computes the position of each record in the sorted order: the block of a node has the positions (64 bits each) of
    /// the records in the input of its rank, in their order. Collective.
    ///
    /// # Errors
    /// As [`Group::argsort`].
    pub fn positions<'a>(&mut self, input: impl Argument<SortInput<'a>>) -> Result<Sorted> {
        self.job(JobKind::Sort, |group, absent| {
            let keys = group.agree_on_positions(&absent, input.into_result(), POSITIONS)?;
            group.in_steps(&absent, |group, absent| {
                let (mut sorted, blocks) = group.sort_positions(absent, &keys)?;
                sorted.blocks.clear();
                let rule = Rule::Positions(Arc::clone(&keys.zip));
                let columns = Columns::new(rule, vec![size_of::<u64>()]);
                sorted.columns = Some(Box::new(columns));
                let scattered = group.scatter(&mut sorted, Some(blocks), None);
                group.end_steps(sorted, scattered)
            })
        })
    }

    /// Agrees that the keys of all ranks are right and alike. Collective.
    fn agree_on_keys<'a>(
        &mut self,
        input: Result<SortInput<'a>>,
        further: (&'static str, u64),
    ) -> CollectiveResult<Prepared<'a>> {
        let prepared = input.and_then(|input| Prepared::new(input, &self.threads));
        let prepared = prepared.map(|prepared| Prepared {
            further,
            ..prepared
        });
        self.agree_on_input(prepared)
    }

    /// Agrees on keys that are to be sorted with the positions of their records, and on their numbers on all ranks.
    /// Collective.
    fn agree_on_positions<'a>(
        &mut self,
        absent: &RankSet,
        input: Result<SortInput<'a>>,
        further: (&'static str, u64),
    ) -> CollectiveResult<PositionedKeys<'a>> {
        // Equal keys have the order of their positions.
        let input = input.map(|input| SortInput {
            stable: true,
            ..input
        });
        let keys = self.agree_on_keys(input, further)?;
        let size = keys.layout.record_bytes();
        let count = (keys.given.len() / size) as u64;
        let counts = self.counts_of_inputs(absent, &[count])?;
        let counts = counts.iter().map(|counts| counts.first().copied());
        let range = keys.layout.key_range().unwrap_or(0..size);
        let shift = -(range.start as isize);
        let zip = Zip::with_positions(size, range, counts.map(Option::unwrap_or_default));
        Ok(PositionedKeys {
            layout: zipped_layout(&keys.layout, &zip, shift),
            zip: Arc::new(zip),
            given: keys.given,
        })
    }

    /// Sorts keys with the positions of their records. Also returns the blocks of the sort. Collective.
    fn sort_positions(
        &mut self,
        absent: RankSet,
        keys: &PositionedKeys<'_>,
    ) -> CollectiveResult<(Sorted, BTreeMap<Node, Block>)> {
        self.sort_zipped(absent, &keys.zip, keys.layout.clone(), keys.given, &[])
    }

    /// Sorts records that are made of columns. Also returns the blocks of the sort. Collective.
    fn sort_zipped(
        &mut self,
        absent: RankSet,
        zip: &Arc<Zip>,
        layout: Result<Layout>,
        keys: &[u8],
        values: &[u8],
    ) -> CollectiveResult<(Sorted, BTreeMap<Node, Block>)> {
        let me = self.members.me();
        let zipped = zip.zip(me, keys, values).map(Slice::from);
        let prepared = zipped.as_ref().map_err(Error::clone).and_then(|records| {
            let origin = InputOrigin::Zipped(Arc::clone(zip));
            let prepared = Prepared::of_made(layout?, records, origin, &self.threads)?;
            Ok(Prepared {
                continues: true,
                ..prepared
            })
        });
        let sorted = self.sort_prepared(absent, prepared, None, None)?;
        let block = |(node, offset, records): &(Node, u64, Slice)| {
            let run = Run {
                origin: Rank(node.0),
                start: *offset,
                data: records.clone(),
            };
            (*node, Block::of_sorted(vec![run]))
        };
        let blocks = sorted.blocks.iter().map(block).collect();
        Ok((sorted, blocks))
    }

    /// Brings the positions of records in the result to the nodes that have the records in their inputs. After a
    /// failure the blocks of the sort are recovered, and all is done again. `blocks`: those of the sort; None: those
    /// that a recovery has put in their places. `placement`: to keep, so that positions stay on their ranks. Collective.
    pub(super) fn scatter(
        &mut self,
        sorted: &mut Sorted,
        mut blocks: Option<BTreeMap<Node, Block>>,
        placement: Option<Membership>,
    ) -> CollectiveResult<()> {
        let rule = sorted.columns.as_ref().map(|columns| &columns.rule);
        let Some(Rule::Positions(zip)) = rule else {
            return Err(CollectiveError::internal("the result has no positions"));
        };
        let zip = Arc::clone(zip);
        let mut recovered = None;
        loop {
            let retained = sorted.safety.retained.as_ref();
            if recovered.is_some() && retained.is_some() {
                blocks = None;
            }
            // Without redundancy, only ranks without blocks can have failed.
            let whole = blocks
                .as_ref()
                .or(retained.map(|retained| retained.blocks()));
            let pairs =
                whole.map_or_else(|| Ok(Buffer::default()), |blocks| pairs_of(&zip, blocks));
            let total = sorted.total;
            let known = self.known_failures();
            let (pairs, is_whole) = self.on_engine(|engine| {
                let pairs = engine.all_or_none(pairs)?;
                let records = sum(engine, (pairs.len() / PAIR_BYTES) as u64)?;
                Ok((pairs, records == total))
            })?;
            if is_whole && self.known_failures() == known {
                match self.exchange_pairs(&zip, total, &placement, pairs.into()) {
                    Ok(finished) => {
                        sorted.list_scattered(finished.blocks);
                        // Ranks may have been excluded or readmitted since the sort.
                        sorted.safety.membership = finished.membership;
                        return Ok(());
                    }
                    Err(error) if error.status == Status::DataLost => {}
                    Err(error) => return Err(error),
                }
            }
            let failures = self.known_failures();
            if recovered.replace(failures) == Some(failures) {
                let text = "the blocks of the sort do not have all records";
                return Err(CollectiveError::internal(text));
            }
            if mutant(Mutant::PositionsNotRecovered) {
                continue;
            }
            let (dimension, size) = (self.members.cube().dimension(), zip.record_bytes());
            let threads = self.threads.clone();
            sorted.with_algorithm(&threads, dimension, |safety, algorithm| {
                self.restore(safety, algorithm, size)
            })?;
        }
    }

    /// Exchanges pairs without redundancy. The blocks are the positions of each node. Collective.
    fn exchange_pairs(
        &mut self,
        zip: &Zip,
        total: u64,
        placement: &Option<Membership>,
        pairs: Slice,
    ) -> CollectiveResult<Finished> {
        let scatter = Scatter {
            starts: zip.starts(),
            total,
            nodes: self.members.cube().len(),
        };
        let absent = self.begin_next_job();
        let setup = JobSetup {
            input: pairs,
            record_bytes: PAIR_BYTES,
            origin: InputOrigin::Derived,
            unprotected: true,
            placement: placement.clone(),
            ..JobSetup::default()
        };
        self.run_job(absent, setup, &scatter)
    }
}

impl Sorted {
    /// Lists the positions of nodes. Blocks that are listed already stay.
    fn list_scattered(&mut self, positions: BTreeMap<Node, Block>) {
        let listed = positions.iter().filter_map(|(node, block)| {
            let known = self.blocks.iter().find(|(known, ..)| known == node);
            let (offset, data) = global_offset(block)?;
            let made = (self.counts(*node, data)).then(|| (*node, offset, data.clone()));
            known.cloned().or(made)
        });
        self.list_blocks(listed.collect());
    }
}

/// The layout of zipped records, with keys moved by `shift` bytes. A comparator compares the whole records of the
/// caller, which are the first column.
fn zipped_layout(layout: &Layout, zip: &Zip, shift: isize) -> Result<Layout> {
    let Some(comparator) = layout.comparator().cloned() else {
        return layout.moved(zip.record_bytes(), shift);
    };
    let given = layout.record_bytes();
    let compare =
        move |one: &[u8], other: &[u8]| comparator.compare(&one[..given], &other[..given]);
    Layout::new(Fields {
        record_bytes: zip.record_bytes(),
        key: KeyKind::Compare as i32,
        descending: layout.is_descending(),
        compare: Some(Comparator::new(compare)),
        ..Fields::default()
    })
}

/// The pairs of the records of sorted blocks: the position in the input, and that in the result.
fn pairs_of(zip: &Zip, blocks: &BTreeMap<Node, Block>) -> Result<Buffer> {
    let size = zip.record_bytes();
    let runs = || blocks.values().flat_map(|block| &block.runs);
    let records: usize = runs().map(|run| run.data.len() / size).sum();
    let mut pairs = Buffer::unset(records * PAIR_BYTES)?;
    let sorted = runs().flat_map(|run| (run.start..).zip(run.data.chunks_exact(size)));
    for (place, (position, record)) in pairs.chunks_exact_mut(PAIR_BYTES).zip(sorted) {
        write_pair(place, zip.position(record), position);
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::memory::MemoryBudget;

    /// A caller may have pointers to the columns of a block that has moved to another rank, and comes back later.
    #[test]
    fn columns_that_are_made_again_stay_allocated() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        let layout = SortInput::of_keys::<u32>(&[]).layout;
        let zip = Arc::new(Zip::new(4, 0..4, Values::Given(8)));
        let rule = Rule::KeysAndValues(zip, layout.clone());
        let mut columns = Columns::new(rule, vec![4, 8]);
        let records = Slice::copy_of(&[7; 120]).unwrap();
        let of_records = budget.used();
        let mut make = || {
            let blocks = vec![(Node(0), 0, records.clone())];
            columns.of_blocks(blocks, &[], &layout).unwrap()
        };
        let _first = make();
        let of_columns = budget.used() - of_records;
        let _second = make();
        assert_eq!(budget.used(), of_records + 2 * of_columns);
    }

    #[test]
    fn values_that_do_not_fit_into_a_record_are_refused() {
        let columns = |value_bytes| KeysAndValues {
            keys: SortInput::of_keys::<u32>(&[]),
            values: &[],
            value_bytes,
        };
        let most = MOST_RECORD_BYTES - 4;
        assert_eq!(columns(most).check(), Ok(()));
        for value_bytes in [most + 1, usize::MAX - 3, usize::MAX] {
            let error = columns(value_bytes).check().unwrap_err();
            assert_eq!(error.status, Status::Argument);
            let text = format!("value_bytes is {value_bytes}, but");
            assert!(error.text.starts_with(&text), "{}", error.text);
        }
    }
}
