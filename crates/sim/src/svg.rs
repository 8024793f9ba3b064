//! x
use crate::transport::TraceEntry;
/// x
pub fn draw_diagram(_ranks: usize, _trace: &[TraceEntry]) -> String {
    String::new()
}
