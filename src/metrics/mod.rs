//! The metrics there are, with their names, units and meaning, and their text for Prometheus (OpenMetrics).
//!
//! Nothing is kept here: who is asked for metrics makes [`Samples`] of what he knows at that moment, so that nothing is
//! paid between two scrapes. `docs/metrics.md` holds the same table, and a test compares them.

pub mod catalogue;

use std::{collections::BTreeMap, fmt};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

pub use catalogue::{CATALOGUE, Metric};

/// The content type of [`Samples::expose`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a metric only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Counts since the process started; `_total` is added to its name.
    Counter,
    /// A value as it is now.
    Gauge,
}

/// Values at one moment.
#[derive(Debug, Default)]
pub struct Samples(BTreeMap<&'static str, Vec<(Vec<String>, f64)>>);

impl Samples {
    /// Adds a value of a metric, with a value for each of its labels in order.
    pub fn add(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.entry(metric.name).or_default().push((labels, value));
    }

    /// As [`Self::add`], of a count.
    pub fn count(&mut self, metric: &'static Metric, labels: &[&str], value: u64) {
        #[expect(clippy::cast_precision_loss, reason = "Prometheus keeps doubles")]
        self.add(metric, labels, value as f64);
    }

    /// The text that Prometheus reads.
    ///
    /// # Errors
    /// None that can occur: text grows.
    pub fn expose(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in CATALOGUE {
            let Some(samples) = self.0.get(metric.name) else {
                continue;
            };
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            // The registry ends the help with a full stop of its own.
            let help = metric.help.trim_end_matches('.');
            let mut family = encoder.encode_descriptor(metric.name, help, None, kind)?;
            for (values, value) in samples {
                let labels: Vec<(&str, &str)> =
                    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                let encoder = family.encode_family(&labels)?;
                match metric.kind {
                    Kind::Counter => ConstCounter::new(*value).encode(encoder)?,
                    Kind::Gauge => ConstGauge::new(*value).encode(encoder)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_type_and_meaning_and_escapes_labels() {
        let mut samples = Samples::default();
        samples.count(&catalogue::RECORDS, &["A->B", "or\"ders"], 12);
        samples.add(&catalogue::PARTITION_LAG_SECONDS, &["A->B", "orders", "3"], 1.5);
        let text = samples.expose().unwrap();
        let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        has("# TYPE towpath_records counter");
        has(r#"towpath_records_total{flow="A->B",topic="or\"ders"} 12.0"#);
        has("# TYPE towpath_partition_lag_seconds gauge");
        has(r#"towpath_partition_lag_seconds{flow="A->B",topic="orders",partition="3"} 1.5"#);
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn the_documented_table_is_the_one_of_the_code() {
        let documented = include_str!("../../docs/metrics.md");
        assert!(documented.contains(&catalogue::markdown()), "docs/metrics.md must hold:\n{}", catalogue::markdown());
    }

    #[test]
    fn names_follow_the_rules() {
        let mut names: Vec<&str> = CATALOGUE.iter().map(|metric| metric.name).collect();
        for name in &names {
            let legal = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(legal && name.starts_with("towpath_") && !name.ends_with("_total"), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOGUE.len());
    }
}
