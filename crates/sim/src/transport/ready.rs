//! The tasks that can continue, as a set of positions from which the k-th one is found in logarithmic time.

/// A set of positions of tasks, with a Fenwick tree of their counts.
pub struct ReadySet {
    /// The tree: entry i counts the members among the positions that it covers, the last of which is i - 1.
    counts: Vec<u32>,
    is_member: Vec<bool>,
    len: usize,
}

impl ReadySet {
    /// The set of all positions below `length`.
    pub fn all(length: usize) -> ReadySet {
        let width = |index: usize| 1 << index.trailing_zeros();
        ReadySet {
            counts: (0..=length)
                .map(|i| if i == 0 { 0 } else { width(i) })
                .collect(),
            is_member: vec![true; length],
            len: length,
        }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds or removes a position.
    pub fn set(&mut self, position: usize, is_member: bool) {
        if self.is_member[position] == is_member {
            return;
        }
        self.is_member[position] = is_member;
        self.len = if is_member {
            self.len + 1
        } else {
            self.len - 1
        };
        let mut index = position + 1;
        while index < self.counts.len() {
            let count = &mut self.counts[index];
            *count = if is_member { *count + 1 } else { *count - 1 };
            index += index & index.wrapping_neg();
        }
    }

    /// Returns the k-th member in ascending order, counted from 0.
    ///
    /// # Panics
    /// If there are not so many members.
    pub fn kth(&self, k: usize) -> usize {
        assert!(k < self.len, "{k} is not below {}", self.len);
        let mut rest = k as u32;
        let mut before = 0;
        let mut width = (self.counts.len() - 1).next_power_of_two();
        while width > 0 {
            let next = before + width;
            if next < self.counts.len() && self.counts[next] <= rest {
                rest -= self.counts[next];
                before = next;
            }
            width /= 2;
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_the_members_of_a_plain_set_in_their_order(
            length in 1_usize..70,
            changes in prop::collection::vec((any::<usize>(), any::<bool>()), 0..100),
        ) {
            let mut set = ReadySet::all(length);
            let mut plain: std::collections::BTreeSet<usize> = (0..length).collect();
            for (position, is_member) in changes {
                let position = position % length;
                set.set(position, is_member);
                if is_member {
                    plain.insert(position);
                } else {
                    plain.remove(&position);
                }
                prop_assert_eq!(set.len(), plain.len());
                let found: Vec<usize> = (0..set.len()).map(|k| set.kth(k)).collect();
                prop_assert!(found.into_iter().eq(plain.iter().copied()));
            }
        }
    }
}
