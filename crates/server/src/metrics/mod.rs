//! The figures of a [`StatusReport`] for Prometheus, beside the pruner's own counters.
//!
//! Every metric is one line of [`table::OURS`]: its name, its help, its labels and where in the report its value stands. What is
//! scraped, what is documented and what the dashboards are checked against all come from there.

mod labels;
pub mod table;

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use sapwood_pruner::PrunerMetrics;
pub use sapwood_pruner::metrics::MetricInfo;

use crate::status::StatusReport;

/// What kind a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only goes up.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often something took how long.
    Histogram,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Every metric that is scraped.
pub fn list() -> Vec<MetricInfo> {
    let ours = table::OURS.iter().map(|metric| MetricInfo {
        name: metric.name,
        kind: metric.kind.name(),
        labels: metric.labels,
        help: metric.help,
    });
    ours.chain(PrunerMetrics::list()).collect()
}

/// The page `docs/metrics.md`.
pub fn documentation() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         `/metrics` on the HTTP address (127.0.0.1:8097 unless set otherwise), in the OpenMetrics text format. All stats of one \
         scrape were measured at the same moment and are the same as in `/api/v1/status`. They are measured every `servers.refresh` \
         (one second), those of the storage engine and of the disk every five seconds, or every minute with \
         `servers.heavy_statistics = false`.\n\n\
         This page is made from the code: `SAPWOOD_WRITE_DOCS=1 cargo nextest run --release -p sapwood-server documentation` \
         writes it.\n\n\
         | name | kind | labels | what it says |\n|---|---|---|---|\n",
    );
    for MetricInfo { name, kind, labels, help } in list() {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { " ".to_owned() } else { format!(" {} ", labels.join(", ")) };
        page += &format!("| `{name}` | {kind} |{labels}| {help} |\n");
    }
    page + &labels::documentation()
}

/// Turns reports into text.
pub struct Metrics {
    registry: Registry,
    report: Arc<Mutex<Option<Arc<StatusReport>>>>,
}

impl Metrics {
    /// The figures of reports, beside those of a pruner.
    pub fn new(pruner: &PrunerMetrics) -> Self {
        let report = Arc::new(Mutex::new(None));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(FromReport(Arc::clone(&report))));
        pruner.register(&mut registry);
        Self { registry, report }
    }

    /// What is scraped.
    pub fn text(&self, report: &Arc<StatusReport>) -> Arc<str> {
        *self.report.lock() = Some(Arc::clone(report));
        let mut text = String::with_capacity(16 << 10);
        // Writing into a string cannot fail.
        if let Err(error) = text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text.into()
    }
}

#[derive(Debug)]
struct FromReport(Arc<Mutex<Option<Arc<StatusReport>>>>);

impl Collector for FromReport {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(report) = self.0.lock().clone() else { return Ok(()) };
        for metric in table::OURS {
            let values = (metric.read)(&report);
            if values.is_empty() {
                continue;
            }
            let (name, kind) = match metric.kind {
                // The library appends the suffix of counters by itself.
                Kind::Counter => {
                    (metric.name.strip_suffix("_total").unwrap_or(metric.name), MetricType::Counter)
                }
                Kind::Gauge | Kind::Histogram => (metric.name, MetricType::Gauge),
            };
            // As the library does with those that are registered.
            let help = format!("{}.", metric.help);
            let mut family = encoder.encode_descriptor(name, &help, None, kind)?;
            if metric.labels.is_empty() {
                if let Some((_, value)) = values.first() {
                    encode_value(kind, *value, family)?;
                }
                continue;
            }
            for (values, value) in values {
                let labels: Vec<(&str, String)> = metric.labels.iter().copied().zip(values).collect();
                encode_value(kind, value, family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode_value(
    kind: MetricType,
    value: f64,
    encoder: prometheus_client::encoding::MetricEncoder,
) -> Result<(), std::fmt::Error> {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(encoder),
        _ => ConstGauge::new(value).encode(encoder),
    }
}
