//! The formula for the time of a sort without failures: that by which the library chooses among sorts, and the local
//! work, which it leaves out.

use super::ScaleSetting;
use crate::transport::NetworkModel;
use ftsort_core::sort::cost::{Network, Work, predicted};
use ftsort_core::transport::ProtocolConfig;

/// Returns the seconds of a sort by the formula.
pub fn predicted_seconds(setting: &ScaleSetting, model: &NetworkModel) -> f64 {
    let records = setting.records as f64 * model.scale;
    let input_bytes = records * setting.record_bytes as f64;
    let work = Work {
        ranks: setting.ranks,
        input_bytes,
        record_bytes: setting.record_bytes,
        key_bytes: setting.record_bytes,
        fan_out: ProtocolConfig::FAN_OUT,
    };
    let network = Network {
        latency: model.latency,
        overhead: model.overhead,
        byte: model.gap_per_byte,
    };
    // The shares of an input are made from as many bytes of it as copies have.
    let copies = setting.store.replicas().unwrap_or(0);
    let protect = copies.min(setting.ranks - 1) as f64 * model.message(input_bytes);
    // A merge of the pieces of all inputs, of which a simulated block has no more than it has records.
    let runs = setting.ranks.min(setting.records).max(2);
    let levels = f64::from(runs.next_power_of_two().trailing_zeros());
    let local = records * (model.sort + levels * model.merge);
    local + protect + predicted(setting.method, &work, &network)
}
