//! Insertions into a text at places of the original, such that what is put around a part nests with what is put around
//! parts of it.

use std::ops::Range;

/// Texts to insert and to replace.
#[derive(Default)]
pub struct Edits {
    /// The place, the order at this place, the length of the replaced text, and the new text.
    edits: Vec<(usize, i64, usize, String)>,
}

impl Edits {
    /// Puts `before` and `after` around a part. Of two parts, the outer one must be given first.
    pub fn surround(&mut self, part: Range<usize>, before: String, after: String) {
        let order = self.edits.len() as i64 + 1;
        self.edits.push((part.start, order, 0, before));
        self.edits.push((part.end, -order, 0, after));
    }

    /// Inserts a text.
    pub fn insert(&mut self, place: usize, text: String) {
        self.replace(place..place, text);
    }

    /// Replaces a part in which no other edit is.
    pub fn replace(&mut self, part: Range<usize>, text: String) {
        let order = self.edits.len() as i64 + 1;
        self.edits.push((part.start, order, part.len(), text));
    }

    /// Returns the edited text.
    pub fn apply(mut self, text: &str) -> String {
        self.edits.sort_by_key(|&(place, order, ..)| (place, order));
        let mut result = String::new();
        let mut done = 0;
        for (place, _, length, new) in self.edits {
            result.push_str(&text[done..place]);
            result.push_str(&new);
            done = place + length;
        }
        result.push_str(&text[done..]);
        result
    }
}
