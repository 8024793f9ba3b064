//! Groups: the records with equal keys, of which a sort makes consecutive ones, and aggregates of them.
//!
//! A group belongs to the node that has its first record. If it continues on later nodes, these tell the part of it that
//! they have: each node has a [`Summary`], and all ranks know the summaries of all nodes. Sums of floating-point numbers
//! are made in the sorted order, node by node. Must never: compare records except with the kernel.

use std::cmp::Ordering;

use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::record::{KeyKind, PlainKey, Word};
use ftsort_kernels::with_number;

/// The function that an aggregate computes. The numbers are those of `ftsort_aggregation` in the C interface.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aggregation {
    /// The number of records.
    Count = 1,
    /// The sum: of integers modulo 2^64, of floating-point numbers in double precision.
    Sum = 2,
    /// The first number in the order of its kind.
    Least = 3,
    /// The last number in the order of its kind.
    Greatest = 4,
}

impl Aggregation {
    /// The function with this number.
    pub fn from_code(code: i32) -> Option<Aggregation> {
        use Aggregation::{Count, Greatest, Least, Sum};
        [Count, Sum, Least, Greatest]
            .into_iter()
            .find(|function| *function as i32 == code)
    }
}

/// A number that is computed for each group from a member of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aggregate {
    function: Aggregation,
    kind: KeyKind,
    offset: usize,
}

impl Aggregate {
    /// The number of records.
    pub const COUNT: Aggregate = Aggregate {
        function: Aggregation::Count,
        kind: KeyKind::U64,
        offset: 0,
    };

    /// An aggregate of the number of this kind at `offset` in records of `record_bytes` bytes.
    ///
    /// # Errors
    /// `Status::Argument` if the kind is not a number, or the number is not within the record.
    pub fn new(
        function: Aggregation,
        kind: KeyKind,
        offset: usize,
        record_bytes: usize,
    ) -> Result<Aggregate> {
        if function == Aggregation::Count {
            return Ok(Aggregate::COUNT);
        }
        let Some(bytes) = kind.natural_bytes() else {
            return Err(Error::argument(format!(
                "kind is {}, which is not a number: pass FTSORT_KEY_I8 to FTSORT_KEY_F64",
                kind as i32
            )));
        };
        if bytes > record_bytes || offset > record_bytes - bytes {
            return Err(Error::argument(format!(
                "offset is {offset}, but {bytes} bytes there are not within the record of {record_bytes}"
            )));
        }
        Ok(Aggregate {
            function,
            kind,
            offset,
        })
    }

    /// The size of a result in bytes.
    pub fn bytes(&self) -> usize {
        match self.function {
            Aggregation::Count | Aggregation::Sum => size_of::<u64>(),
            Aggregation::Least | Aggregation::Greatest => {
                self.kind.natural_bytes().unwrap_or_default()
            }
        }
    }

    /// The aggregate of at least one record, as a number that [`Aggregate::merge`] understands.
    fn of(&self, records: &[u8], size: usize) -> u64 {
        match self.kind {
            KeyKind::I8 => self.fold::<i8>(records, size, |number| i64::from(number) as u64),
            KeyKind::U8 => self.fold::<u8>(records, size, u64::from),
            KeyKind::I16 => self.fold::<i16>(records, size, |number| i64::from(number) as u64),
            KeyKind::U16 => self.fold::<u16>(records, size, u64::from),
            KeyKind::I32 => self.fold::<i32>(records, size, |number| i64::from(number) as u64),
            KeyKind::U32 => self.fold::<u32>(records, size, u64::from),
            KeyKind::I64 => self.fold::<i64>(records, size, |number| number as u64),
            KeyKind::U64 => self.fold::<u64>(records, size, |number| number),
            KeyKind::F32 => self.fold::<f32>(records, size, |number| f64::from(number).to_bits()),
            KeyKind::F64 => self.fold::<f64>(records, size, f64::to_bits),
            // `new` refuses all other kinds.
            _ => 0,
        }
    }

    fn fold<T: PlainKey>(&self, records: &[u8], size: usize, widened: fn(T) -> u64) -> u64 {
        if self.function == Aggregation::Count {
            return (records.len() / size) as u64;
        }
        let numbers = records.chunks_exact(size).map(|record| {
            bytemuck::pod_read_unaligned::<T>(&record[self.offset..][..size_of::<T>()])
        });
        let all = match self.function {
            Aggregation::Least => numbers.map(|number| number.bits().widened()).min(),
            Aggregation::Greatest => numbers.map(|number| number.bits().widened()).max(),
            _ => numbers
                .map(widened)
                .reduce(|one, other| self.add(one, other)),
        };
        all.unwrap_or_default()
    }

    fn add(&self, one: u64, other: u64) -> u64 {
        match self.kind {
            KeyKind::F32 | KeyKind::F64 => (f64::from_bits(one) + f64::from_bits(other)).to_bits(),
            _ => one.wrapping_add(other),
        }
    }

    /// Combines the aggregates of two parts of a group, in their order.
    fn merge(&self, one: u64, other: u64) -> u64 {
        match self.function {
            Aggregation::Count => one.wrapping_add(other),
            Aggregation::Sum => self.add(one, other),
            Aggregation::Least => one.min(other),
            Aggregation::Greatest => one.max(other),
        }
    }

    /// Writes the result to `place`, which has [`Aggregate::bytes`] bytes.
    fn write(&self, value: u64, place: &mut [u8]) {
        fn number<T: PlainKey>(value: u64, place: &mut [u8]) {
            let number = T::from_bits(T::Bits::truncated(value));
            place.copy_from_slice(bytemuck::bytes_of(&number));
        }
        if matches!(self.function, Aggregation::Count | Aggregation::Sum) {
            place.copy_from_slice(&value.to_ne_bytes());
            return;
        }
        with_number!(self.kind, T => number::<T>(value, place), _ => {});
    }
}

/// The part of a node's block that the other nodes need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The node.
    pub node: Node,
    /// The number of its records.
    pub records: u64,
    /// The number of different keys among them.
    groups: u64,
    /// The first and the last record; empty without records.
    first: Vec<u8>,
    last: Vec<u8>,
    /// The aggregates of the records that have the key of the first one.
    leading: Vec<u64>,
}

/// The greatest size of an encoded summary, in bytes.
pub fn summary_bytes(record_bytes: usize, aggregates: usize) -> usize {
    4 + 8 + 8 + 2 * record_bytes + 8 * aggregates
}

/// The number of records at the start of a run that have the key of its first record. The run is not empty.
fn leading_records(kernel: &dyn Kernel, records: &[u8]) -> usize {
    let size = kernel.record_bytes();
    let (first, rest) = records.split_at(size);
    let same = |record: &[u8]| kernel.compare(first, record) == Ordering::Equal;
    // Most groups are small; the search in the rest of the block is worth its time for others only.
    const SMALL: usize = 8;
    let near = rest.chunks_exact(size).take(SMALL);
    match near.clone().position(|record| !same(record)) {
        Some(position) => 1 + position,
        None if rest.len() <= SMALL * size => 1 + rest.len() / size,
        // A search with a comparator that is no order can end anywhere.
        None => kernel.upper_bound(records, first).max(1 + SMALL),
    }
}

impl Summary {
    /// The summary of a node with these sorted records.
    pub fn of(
        node: Node,
        records: &[u8],
        kernel: &dyn Kernel,
        aggregates: &[Aggregate],
    ) -> Summary {
        let size = kernel.record_bytes();
        let mut summary = Summary {
            node,
            records: (records.len() / size) as u64,
            groups: 0,
            first: Vec::new(),
            last: Vec::new(),
            leading: vec![0; aggregates.len()],
        };
        let mut rest = records;
        while !rest.is_empty() {
            let (group, later) = rest.split_at(leading_records(kernel, rest) * size);
            if summary.groups == 0 {
                summary.first = records[..size].to_vec();
                summary.last = records[records.len() - size..].to_vec();
                let leading = aggregates.iter().map(|aggregate| aggregate.of(group, size));
                summary.leading = leading.collect();
            }
            summary.groups += 1;
            rest = later;
        }
        summary
    }

    /// Appends the summary to a message.
    pub fn encode(&self, out: &mut Writer) {
        out.u32(self.node.0).u64(self.records).u64(self.groups);
        if self.records > 0 {
            out.bytes(&self.first).bytes(&self.last);
        }
        for state in &self.leading {
            out.u64(*state);
        }
    }

    /// Reads a summary; None if the bytes are none.
    pub fn decode(
        fields: &mut Reader<'_>,
        record_bytes: usize,
        aggregates: usize,
    ) -> Option<Summary> {
        let node = Node(fields.u32()?);
        let (records, groups) = (fields.u64()?, fields.u64()?);
        let size = if records > 0 { record_bytes } else { 0 };
        Some(Summary {
            node,
            records,
            groups,
            first: fields.bytes(size)?.to_vec(),
            last: fields.bytes(size)?.to_vec(),
            leading: (0..aggregates)
                .map(|_| fields.u64())
                .collect::<Option<_>>()?,
        })
    }
}

/// The groups of a whole sorted result.
#[derive(Clone, Debug)]
pub struct Groups {
    aggregates: Vec<Aggregate>,
    /// The summaries of all nodes that have records, ascending, and for each whether its first group has begun on an
    /// earlier node.
    nodes: Vec<(Summary, bool)>,
}

impl Groups {
    /// The groups of nodes with these summaries.
    pub fn new(
        aggregates: Vec<Aggregate>,
        mut summaries: Vec<Summary>,
        kernel: &dyn Kernel,
    ) -> Groups {
        summaries.retain(|summary| summary.records > 0);
        summaries.sort_unstable_by_key(|summary| summary.node);
        let mut nodes: Vec<(Summary, bool)> = Vec::with_capacity(summaries.len());
        for summary in summaries {
            let before = nodes.last();
            let continues = before.is_some_and(|(before, _)| {
                kernel.compare(&before.last, &summary.first) == Ordering::Equal
            });
            nodes.push((summary, continues));
        }
        Groups { aggregates, nodes }
    }

    /// The sizes of the elements of all columns: the first record of each group, and the aggregates.
    pub fn widths(&self, record_bytes: usize) -> Vec<usize> {
        let aggregates = self.aggregates.iter().map(Aggregate::bytes);
        [record_bytes].into_iter().chain(aggregates).collect()
    }

    /// The number of groups that begin on a node.
    fn begun(summary: &Summary, continues: bool) -> u64 {
        summary.groups.saturating_sub(u64::from(continues))
    }

    /// The number of all groups.
    pub fn total(&self) -> u64 {
        let nodes = self.nodes.iter();
        nodes
            .map(|(summary, continues)| Groups::begun(summary, *continues))
            .sum()
    }

    /// The number of groups on nodes before this one.
    pub fn offset(&self, node: Node) -> u64 {
        let nodes = self.nodes.iter();
        nodes
            .take_while(|(summary, _)| summary.node < node)
            .map(|(summary, continues)| Groups::begun(summary, *continues))
            .sum()
    }

    /// The columns of a node with these sorted records: the first record of each group that begins here, and the
    /// aggregates of the whole group.
    ///
    /// # Errors
    /// `Status::Memory`; `Status::Internal` if the records are not those of the summary, or `Status::Callback` if a
    /// comparator makes the order.
    pub fn columns(&self, node: Node, records: &[u8], kernel: &dyn Kernel) -> Result<Vec<Slice>> {
        let size = kernel.record_bytes();
        let place = self
            .nodes
            .iter()
            .position(|(summary, _)| summary.node == node);
        let (begun, continues, rest) = match place {
            Some(place) => {
                let (summary, continues) = &self.nodes[place];
                let begun = Groups::begun(summary, *continues) as usize;
                (begun, *continues, &self.nodes[place + 1..])
            }
            None => (0, false, &self.nodes[..0]),
        };
        let widths = self.widths(size);
        let columns = widths.iter().map(|width| Buffer::zeroed(begun * width));
        let mut columns = columns.collect::<Result<Vec<Buffer>>>()?;
        let mut rows = 0;
        let mut left = records;
        let mut skips = continues;
        while !left.is_empty() {
            let (group, later) = left.split_at(leading_records(kernel, left) * size);
            left = later;
            if std::mem::take(&mut skips) {
                continue;
            }
            if rows == begun {
                return Err(other_records(node, kernel));
            }
            let cells = columns
                .iter_mut()
                .zip(&widths)
                .map(|(column, width)| &mut column[rows * width..][..*width]);
            let mut cells = cells.collect::<Vec<_>>().into_iter();
            if let Some(first) = cells.next() {
                first.copy_from_slice(&group[..size]);
            }
            let continued = if left.is_empty() { rest } else { &[] };
            self.aggregate(group, size, continued, cells);
            rows += 1;
        }
        if rows < begun {
            return Err(other_records(node, kernel));
        }
        Ok(columns.into_iter().map(Slice::from).collect())
    }

    /// Writes the aggregates of a group. `later`: the nodes after the one that ends with these records.
    fn aggregate<'c>(
        &self,
        records: &[u8],
        size: usize,
        later: &[(Summary, bool)],
        cells: impl Iterator<Item = &'c mut [u8]>,
    ) {
        for (index, (aggregate, cell)) in self.aggregates.iter().zip(cells).enumerate() {
            let mut value = aggregate.of(records, size);
            for (summary, continues) in later {
                if !continues {
                    break;
                }
                value = aggregate.merge(value, summary.leading[index]);
                // The group ends on this node.
                if summary.groups > 1 {
                    break;
                }
            }
            aggregate.write(value, cell);
        }
    }
}

/// A comparator that gives another order for the same records can be the cause.
fn other_records(node: Node, kernel: &dyn Kernel) -> Error {
    let text = format!("the records of node {node} are not those of its summary");
    kernel.error_of_panic(Error::internal(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::kernel::{kernel_for, kernel_of};
    use ftsort_kernels::record::{Comparator, Fields, Layout};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SIZE: usize = 12;

    fn record(key: u8, number: i32, weight: f32) -> Vec<u8> {
        let key = [key, 0, 0, 0];
        [key, number.to_ne_bytes(), weight.to_ne_bytes()].concat()
    }

    fn aggregates() -> Vec<Aggregate> {
        let of = |function, kind, offset| Aggregate::new(function, kind, offset, SIZE).unwrap();
        vec![
            Aggregate::COUNT,
            of(Aggregation::Sum, KeyKind::I32, 4),
            of(Aggregation::Least, KeyKind::I32, 4),
            of(Aggregation::Greatest, KeyKind::F32, 8),
            of(Aggregation::Sum, KeyKind::F32, 8),
        ]
    }

    /// Less records are equal to greater ones, and none is equal to itself.
    #[test]
    fn a_comparator_that_is_no_order_makes_groups_too() {
        let compare = |one: &[u8], other: &[u8]| match one < other {
            true => Ordering::Equal,
            false => Ordering::Greater,
        };
        let layout = Layout::new(Fields {
            record_bytes: SIZE,
            key: KeyKind::Compare as i32,
            compare: Some(Comparator::new(compare)),
            ..Fields::default()
        });
        let kernel = kernel_for(&layout.unwrap(), 1);
        let records: Vec<u8> = (0..20).flat_map(|key| record(key, 0, 0.0)).collect();
        let summary = Summary::of(Node(0), &records, &*kernel, &[Aggregate::COUNT]);
        assert_eq!((summary.records, summary.groups > 0), (20, true));
    }

    /// Another type of the same size has another order.
    #[test]
    fn the_least_and_the_greatest_of_every_kind_are_those_of_its_type() {
        macro_rules! check {
            ($($kind:ident $number:ty),*) => {$(
                for (function, expected) in [(Aggregation::Least, <$number>::MIN), (Aggregation::Greatest, <$number>::MAX)] {
                    let size = size_of::<$number>();
                    let aggregate = Aggregate::new(function, KeyKind::$kind, 0, size).unwrap();
                    let of = |number: $number| aggregate.of(&number.to_ne_bytes(), size);
                    let mut place = vec![0; size];
                    aggregate.write(aggregate.merge(of(<$number>::MAX), of(<$number>::MIN)), &mut place);
                    assert_eq!(place, expected.to_ne_bytes());
                }
            )*};
        }
        check!(I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F32 f32, F64 f64);
    }

    /// Numbers of each kind are widened with their sign.
    #[test]
    fn sums_have_the_sign_of_their_numbers() {
        let sum = |kind, number: &[u8]| {
            let sum = Aggregate::new(Aggregation::Sum, kind, 0, number.len()).unwrap();
            sum.of(&[number, number].concat(), number.len()) as i64
        };
        assert_eq!(sum(KeyKind::I8, &(-3_i8).to_ne_bytes()), -6);
        assert_eq!(sum(KeyKind::I16, &(-3_i16).to_ne_bytes()), -6);
        assert_eq!(sum(KeyKind::I32, &(-3_i32).to_ne_bytes()), -6);
        assert_eq!(sum(KeyKind::I64, &(-3_i64).to_ne_bytes()), -6);
        assert_eq!(sum(KeyKind::U8, &[253]), 506);
        assert_eq!(sum(KeyKind::U16, &(u16::MAX - 2).to_ne_bytes()), 2 * 65533);
        assert_eq!(
            sum(KeyKind::U32, &(u32::MAX - 2).to_ne_bytes()),
            2 * ((1 << 32) - 3)
        );
    }

    type Row = (Vec<u8>, u64, i64, i32, f32, f64);

    fn rows(columns: &[Slice]) -> Vec<Row> {
        let [firsts, counts, sums, least, greatest, weights] = columns else {
            panic!("six columns");
        };
        let number = |column: &Slice, row: usize| {
            u64::from_ne_bytes(column[8 * row..][..8].try_into().unwrap())
        };
        let word = |column: &Slice, row: usize| {
            u32::from_ne_bytes(column[4 * row..][..4].try_into().unwrap())
        };
        let rows = firsts.chunks_exact(SIZE).enumerate();
        rows.map(|(row, first)| {
            (
                first.to_vec(),
                number(counts, row),
                number(sums, row) as i64,
                word(least, row) as i32,
                f32::from_bits(word(greatest, row)),
                f64::from_bits(number(weights, row)),
            )
        })
        .collect()
    }

    proptest! {
        /// Groups are complete wherever the borders of nodes are.
        #[test]
        fn groups_are_those_of_the_whole_array(
            fields in proptest::collection::vec((0..6_u8, any::<i32>(), -8..8_i8), 0..60),
            cuts in proptest::collection::vec(0..60_usize, 7),
        ) {
            let mut fields: Vec<(u8, i32, f32)> = fields
                .into_iter()
                .map(|(key, number, weight)| (key, number, f32::from(weight)))
                .collect();
            fields.sort_by_key(|field| field.0);
            let mut expected: BTreeMap<u8, Row> = BTreeMap::new();
            for (key, number, weight) in &fields {
                let row = (record(*key, *number, *weight), 0, 0, i32::MAX, f32::NEG_INFINITY, 0.0);
                let row = expected.entry(*key).or_insert(row);
                row.1 += 1;
                row.2 += i64::from(*number);
                row.3 = row.3.min(*number);
                row.4 = row.4.max(*weight);
                row.5 += f64::from(*weight);
            }
            let kernel = kernel_of(SIZE, KeyKind::U32);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(fields.len())).collect();
            cuts.extend([0, fields.len()]);
            cuts.sort_unstable();
            let blocks: Vec<(Node, Vec<u8>)> = cuts
                .windows(2)
                .zip(0..)
                .map(|(cut, node)| {
                    let part = fields[cut[0]..cut[1]].iter();
                    (Node(node), part.flat_map(|(key, number, weight)| record(*key, *number, *weight)).collect())
                })
                .collect();
            let mut message = Writer::new();
            for (node, records) in blocks.iter().rev() {
                Summary::of(*node, records, &*kernel, &aggregates()).encode(&mut message);
            }
            let message = message.finish();
            prop_assert!(message.len() <= blocks.len() * summary_bytes(SIZE, 5));
            let read = |fields: &mut Reader<'_>| Summary::decode(fields, SIZE, 5);
            let summaries = Reader::new(&message).repeat_to_end(read).unwrap();
            let groups = Groups::new(aggregates(), summaries, &*kernel);
            let mut found = Vec::new();
            for (node, records) in &blocks {
                prop_assert_eq!(groups.offset(*node), found.len() as u64);
                found.extend(rows(&groups.columns(*node, records, &*kernel).unwrap()));
            }
            prop_assert_eq!(groups.total(), found.len() as u64);
            prop_assert_eq!(found, expected.into_values().collect::<Vec<_>>());
        }
    }

    #[test]
    fn aggregates_of_no_number_are_refused() {
        let error = Aggregate::new(Aggregation::Sum, KeyKind::Bytes, 0, 8).unwrap_err();
        assert!(error.text.contains("kind is 11"), "{}", error.text);
        let error = Aggregate::new(Aggregation::Least, KeyKind::I64, 1, 8).unwrap_err();
        assert!(error.text.contains("offset is 1"), "{}", error.text);
        for code in 0..6 {
            let function = Aggregation::from_code(code);
            assert_eq!(
                function.map(|function| function as i32).unwrap_or(code),
                code
            );
            assert_eq!(function.is_some(), (1..5).contains(&code));
        }
    }

    #[test]
    fn wrong_records_are_an_error() {
        let kernel = kernel_of(SIZE, KeyKind::U32);
        let summary = Summary::of(Node(0), &record(1, 1, 1.0), &*kernel, &aggregates());
        let groups = Groups::new(aggregates(), vec![summary], &*kernel);
        let two = [record(1, 1, 1.0), record(2, 1, 1.0)].concat();
        assert!(groups.columns(Node(0), &two, &*kernel).is_err());
        assert!(groups.columns(Node(0), &[], &*kernel).is_err());
    }
}
