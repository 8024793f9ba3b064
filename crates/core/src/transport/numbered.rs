//! Values by the number that each of them got when it was added.

use std::collections::VecDeque;

/// Values with ascending numbers, none of which is given twice. No value has an allocation of its own. Most values are
/// removed in the order in which they were added, which takes no search; another removal moves the values before it or
/// after it, whichever are fewer.
#[derive(Debug)]
pub struct Numbered<T> {
    entries: VecDeque<(u64, T)>,
    next: u64,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered {
            entries: VecDeque::new(),
            next: 0,
        }
    }
}

impl<T> Numbered<T> {
    /// Adds a value, and returns its number.
    pub fn add(&mut self, value: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.push_back((number, value));
        number
    }

    /// Returns the value with a number, if it has not been removed.
    pub fn get(&self, number: u64) -> Option<&T> {
        let index = self.index_of(number)?;
        self.entries.get(index).map(|(_, value)| value)
    }

    /// As [`Numbered::get`], to change the value.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let index = self.index_of(number)?;
        self.entries.get_mut(index).map(|(_, value)| value)
    }

    /// Removes the value with a number, and returns it.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let index = self.index_of(number)?;
        self.entries.remove(index).map(|(_, value)| value)
    }

    /// Removes the values for which `is_kept` returns false.
    pub fn retain(&mut self, mut is_kept: impl FnMut(u64, &T) -> bool) {
        self.entries
            .retain(|(number, value)| is_kept(*number, value));
    }

    /// Removes all values, and returns them in ascending order of their numbers.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.entries)
            .into_iter()
            .map(|(_, value)| value)
    }

    fn index_of(&self, number: u64) -> Option<usize> {
        if self.entries.front()?.0 == number {
            return Some(0);
        }
        self.entries
            .binary_search_by_key(&number, |(number, _)| *number)
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Additions, and removals in any order, have the same effect as on a map.
        #[test]
        fn it_has_the_values_that_were_added_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..60),
            divisor in 1_u64..5,
        ) {
            let mut numbered = Numbered::default();
            let mut expected = BTreeMap::new();
            for (removes, index) in steps {
                let number = expected.keys().nth(index.index(expected.len().max(1))).copied();
                match number.filter(|_| removes) {
                    Some(number) => prop_assert_eq!(numbered.remove(number), expected.remove(&number)),
                    None => {
                        let value = index.index(100);
                        let number = numbered.add(value);
                        prop_assert_eq!(expected.insert(number, value), None);
                    }
                }
                for number in 0..=numbered.next {
                    prop_assert_eq!(numbered.get(number), expected.get(&number));
                    prop_assert_eq!(numbered.get_mut(number), expected.get_mut(&number));
                }
            }
            prop_assert_eq!(numbered.remove(numbered.next), None);
            numbered.retain(|number, _| number % divisor == 0);
            expected.retain(|number, _| number % divisor == 0);
            prop_assert!(numbered.take_all().eq(expected.into_values()));
        }
    }
}
