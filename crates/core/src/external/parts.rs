//! The files of an output, each with consecutive records of the result.

use std::ops::Range;

use super::manifest::Identity;

/// The names of the files of an output and the records in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputParts {
    name: String,
    /// 0: one file with the name of the output.
    count: u64,
    records: u64,
    record_bytes: u64,
    /// The position of the first record in each file.
    offset: u64,
}

/// Consecutive bytes for one file of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The number of the file.
    pub part: u64,
    /// The position of the first byte in the file.
    pub at: u64,
    /// The place of the bytes among those that were divided.
    pub bytes: Range<usize>,
}

impl OutputParts {
    /// The largest number of files: the names have five digits.
    pub const MOST: u64 = 100_000;

    /// The files of the output `name` of a sort.
    pub fn new(name: &str, identity: &Identity) -> OutputParts {
        let record_bytes = identity.record_bytes as u64;
        OutputParts {
            name: name.into(),
            count: identity.output_parts,
            records: identity.bytes / record_bytes,
            record_bytes,
            offset: identity.output_offset,
        }
    }

    /// The name of the output.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of a file once the output is complete.
    pub fn name_of(&self, part: u64) -> String {
        match self.count {
            0 => self.name.clone(),
            _ => part_name(&self.name, part),
        }
    }

    /// The name of a file until the output is complete.
    pub fn draft_of(&self, part: u64) -> String {
        draft_name(&self.name_of(part))
    }

    /// All files.
    pub fn all(&self) -> Range<u64> {
        0..self.count.max(1)
    }

    /// The files of these records.
    pub fn of_records(&self, records: Range<u64>) -> Range<u64> {
        if records.is_empty() {
            return 0..0;
        }
        self.part_of(records.start)..self.part_of(records.end - 1) + 1
    }

    /// The size in bytes of a file that has its part of the first `done` records. The bytes before the first record appear
    /// with it.
    pub fn size_of(&self, part: u64, done: u64) -> u64 {
        let here = done.min(self.start_of(part + 1));
        match here.saturating_sub(self.start_of(part)) {
            0 => 0,
            records => self.offset + records * self.record_bytes,
        }
    }

    /// Divides `bytes` bytes of records, the first of which is `first`, among the files.
    pub fn divide(&self, first: u64, bytes: usize) -> Vec<Portion> {
        let size = self.record_bytes as usize;
        let (mut next, end) = (first, first + (bytes / size) as u64);
        let mut portions = Vec::new();
        while next < end {
            let part = self.part_of(next);
            let last = end.min(self.start_of(part + 1));
            let place = |record: u64| (record - first) as usize * size;
            portions.push(Portion {
                part,
                at: self.offset + (next - self.start_of(part)) * self.record_bytes,
                bytes: place(next)..place(last),
            });
            next = last;
        }
        portions
    }

    /// The first record of a file.
    fn start_of(&self, part: u64) -> u64 {
        let parts = u128::from(self.count.max(1));
        let before = u128::from(part) * u128::from(self.records) / parts;
        u64::try_from(before).unwrap_or(u64::MAX)
    }

    /// The file of a record: the last one that does not start behind it.
    fn part_of(&self, record: u64) -> u64 {
        let parts = u128::from(self.count.max(1));
        let part = ((u128::from(record) + 1) * parts - 1) / u128::from(self.records.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

/// The end of the name of a file that is not complete.
const DRAFT: &str = ".partial";

/// The end of the name of a manifest.
const MANIFEST: &str = ".ftsort";

/// The name of a file that is not complete.
pub fn draft_name(name: &str) -> String {
    format!("{name}{DRAFT}")
}

/// The name of a file of an output in several files.
pub fn part_name(output: &str, part: u64) -> String {
    format!("{output}.{part:05}")
}

/// The name of the manifest of an output.
pub fn manifest_name(output: &str) -> String {
    format!("{output}{MANIFEST}")
}

/// Whether a sort into `output` may write or remove a file of this name besides its result. The
/// number of files of an earlier output, which a sort removes, may be any.
pub fn is_state_of(output: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(output) else {
        return false;
    };
    if rest == MANIFEST {
        return true;
    }
    let draft_of = rest.strip_suffix(DRAFT);
    draft_of.is_some_and(|rest| match rest.strip_prefix('.') {
        Some(part) => rest == MANIFEST || part_number(part).is_some(),
        None => rest.is_empty(),
    })
}

/// Whether a file of an output with `parts` files has this name.
pub fn is_part_of(output: &str, parts: u64, name: &str) -> bool {
    let rest = name.strip_prefix(output);
    let number = rest.and_then(|rest| rest.strip_prefix('.'));
    let number = number.and_then(part_number);
    number.is_some_and(|part| part < parts)
}

/// The number of a file of an output, from the end of its name.
fn part_number(end: &str) -> Option<u64> {
    let is_number = end.len() == 5 && end.bytes().all(|digit| digit.is_ascii_digit());
    end.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_temporary_files_and_manifests_are_known() {
        for end in [
            ".partial",
            ".ftsort",
            ".ftsort.partial",
            ".00000.partial",
            ".99999.partial",
        ] {
            assert!(is_state_of("x.y", &format!("x.y{end}")), "{end}");
        }
        for other in [
            "x",
            "x.00000",
            "x.0.partial",
            "x.a.partial",
            "xpartial",
            "y.partial",
            "x.partial.partial",
        ] {
            assert!(!is_state_of("x", other), "{other}");
        }
    }

    #[test]
    fn names_of_parts_are_known() {
        assert!(is_part_of("x.y", 13, "x.y.00012") && is_part_of("x", 1, "x.00000"));
        for (parts, other) in [
            (0, "x.00000"),
            (13, "x.00013"),
            (13, "x.0"),
            (13, "x.+0001"),
            (13, "y.00001"),
        ] {
            assert!(!is_part_of("x", parts, other), "{other}");
        }
    }

    fn parts(count: u64, records: u64, record_bytes: usize, offset: u64) -> OutputParts {
        let identity = Identity {
            layout: 0,
            record_bytes,
            bytes: records * record_bytes as u64,
            source: 0,
            output_offset: offset,
            output_parts: count,
        };
        OutputParts::new("out", &identity)
    }

    proptest! {
        /// Every byte of a block has one place, the files get equal numbers of records, and only the last bytes of a
        /// file are at its end.
        #[test]
        fn divides_every_block(
            count in 0..40_u64,
            records in 0..200_u64,
            record_bytes in 1..5_usize,
            offset in 0..9_u64,
            ends: (u64, u64),
        ) {
            let parts = parts(count, records, record_bytes, offset);
            let one = ends.0 % (records + 1);
            let other = ends.1 % (records + 1);
            let (first, end) = (one.min(other), one.max(other));
            let bytes = (end - first) as usize * record_bytes;
            let portions = parts.divide(first, bytes);
            let mut next = 0;
            for portion in &portions {
                prop_assert_eq!(portion.bytes.start, next);
                prop_assert!(next < portion.bytes.end);
                next = portion.bytes.end;
                let here = (next - portion.bytes.start) as u64;
                let before = first + (portion.bytes.start / record_bytes) as u64;
                prop_assert_eq!(portion.at.max(offset), parts.size_of(portion.part, before).max(offset));
                let done = first + (next / record_bytes) as u64;
                prop_assert_eq!(portion.at + here, parts.size_of(portion.part, done));
            }
            prop_assert_eq!(next, bytes);
            let used: Vec<u64> = portions.iter().map(|portion| portion.part).collect();
            prop_assert!(used.is_sorted_by(|one, other| one < other));
            let range = parts.of_records(first..end);
            prop_assert_eq!(used.first().copied(), range.clone().next());
            prop_assert_eq!(used.last().copied(), range.last());
        }

        #[test]
        fn all_files_have_all_records_in_equal_shares(count in 0..40_u64, records in 0..200_u64) {
            let parts = parts(count, records, 3, 0);
            let sizes: Vec<u64> = parts.all().map(|part| parts.size_of(part, records) / 3).collect();
            prop_assert_eq!(sizes.iter().sum::<u64>(), records);
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            prop_assert!(most.unwrap() - least.unwrap() <= 1);
        }
    }

    #[test]
    fn names_files_by_number_unless_there_is_one() {
        let one = parts(0, 10, 4, 0);
        assert_eq!(
            one.all().map(|part| one.name_of(part)).collect::<Vec<_>>(),
            ["out"]
        );
        assert_eq!(one.draft_of(0), "out.partial");
        let two = parts(2, 10, 4, 0);
        let names: Vec<String> = two.all().map(|part| two.name_of(part)).collect();
        assert_eq!(names, ["out.00000", "out.00001"]);
        assert_eq!(two.draft_of(1), "out.00001.partial");
    }

    #[test]
    fn the_largest_sorts_have_places() {
        let most = parts(OutputParts::MOST, u64::MAX, 1, 0);
        let last = OutputParts::MOST - 1;
        assert_eq!(most.divide(u64::MAX - 1, 1)[0].part, last);
        assert_eq!(most.of_records(0..u64::MAX), 0..OutputParts::MOST);
    }
}
