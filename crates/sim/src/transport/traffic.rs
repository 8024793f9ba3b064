//! Counts of the messages of a rank, of records and of control data.

/// The messages of one rank so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of messages sent.
    pub messages: u64,
    /// The bytes sent.
    pub bytes: u64,
    /// The bytes of control messages received.
    pub control: u64,
    /// The most bytes of control messages received between two collective calls.
    pub most_control: u64,
    /// The bytes of control messages received when the last collective call began.
    before: u64,
    /// The bytes of the records that the rank sends next.
    records_to_send: usize,
}

impl Traffic {
    /// Announces that the next bytes that the rank sends are records.
    pub fn announce_records(&mut self, bytes: usize) {
        self.records_to_send = bytes;
    }

    /// Counts a message that is sent. Returns whether it has records.
    pub fn count_sent(&mut self, bytes: usize) -> bool {
        self.messages += 1;
        self.bytes += bytes as u64;
        let is_records = self.records_to_send > 0;
        self.records_to_send = self.records_to_send.saturating_sub(bytes);
        is_records
    }

    /// Counts a message that has arrived.
    pub fn count_received(&mut self, bytes: usize, is_records: bool) {
        if !is_records {
            self.control += bytes as u64;
        }
    }

    /// Counts bytes that came with a control message as records.
    pub fn enclose(&mut self, bytes: usize) {
        self.control = self.control.saturating_sub(bytes as u64);
    }

    /// Ends a step at a collective call. Records that were announced and not sent, because of a failure, are
    /// forgotten.
    pub fn end_step(&mut self) {
        self.most_control = self
            .most_control
            .max(self.control - self.before.min(self.control));
        self.before = self.control;
        self.records_to_send = 0;
    }
}
