//! What the live screen shows, as text: one line for each flow, then the partitions that need a look.
//!
//! Pure: reports and the time go in, lines come out.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span, Text},
};
use tokio::time::Instant;

use crate::mirror::{FlowReport, partition::PartitionState};

/// Lines for partitions below the flows.
const PARTITION_LINES: u16 = 6;
/// Rates are taken over about this many seconds, so that they can be read.
const SMOOTH_S: f64 = 3.0;

/// Remembers what it showed before, for rates.
pub(super) struct Panel {
    at: Instant,
    flows: Vec<Rates>,
}

/// Per second, smoothed.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    records_before: u64,
    bytes_before: u64,
    records: f64,
    bytes: f64,
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    fn step(&mut self, records: u64, bytes: u64, seconds: f64) {
        let weight = (seconds / SMOOTH_S).min(1.0);
        let blend = |old: f64, more: u64| old + ((more as f64) / seconds.max(0.001) - old) * weight;
        self.records = blend(self.records, records.saturating_sub(self.records_before));
        self.bytes = blend(self.bytes, bytes.saturating_sub(self.bytes_before));
        (self.records_before, self.bytes_before) = (records, bytes);
    }
}

impl Panel {
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now, flows: Vec::new() }
    }

    /// Rows that `flows` flows take: a rule, a heading, the flows, some partitions.
    pub(super) fn height(flows: usize) -> u16 {
        u16::try_from(flows).unwrap_or(u16::MAX).saturating_add(2 + PARTITION_LINES)
    }

    /// The whole panel.
    pub(super) fn text(&mut self, reports: &[FlowReport], now: Instant) -> Text<'static> {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.flows.resize(reports.len(), Rates::default());
        let width = reports.iter().map(|report| report.name.chars().count()).max().unwrap_or(0).max("flow".len());
        let heading = format!(
            "{:<width$}  {:<12} {:>10} {:>9} {:>12} {:>9} {:>12} {:>8} {:>7}",
            "flow", "state", "partitions", "caught up", "records/s", "MB/s", "behind", "behind s", "sealed"
        );
        let mut lines = vec![
            Line::styled("─".repeat(heading.chars().count()), Style::new().fg(Color::DarkGray)),
            Line::styled(heading, Style::new().add_modifier(Modifier::BOLD)),
        ];
        for (report, rates) in reports.iter().zip(&mut self.flows) {
            let (totals, progress) = (&report.totals, &report.totals.progress);
            rates.step(progress.records, progress.bytes_in, seconds);
            lines.push(Line::raw(format!(
                "{:<width$}  {:<12} {:>10} {:>9} {:>12} {:>9.1} {:>12} {:>8} {:>7}",
                report.name,
                report.state,
                totals.partitions,
                totals.caught_up,
                grouped(rates.records),
                rates.bytes / 1e6,
                grouped(totals.lag),
                seconds_of((progress.records > 0).then_some(totals.lag_ms)),
                report.sealed_share(),
            )));
        }
        let room = usize::from(PARTITION_LINES);
        let several = reports.len() > 1;
        let mut partitions: Vec<_> = reports.iter().flat_map(|report| notable(report, several)).collect();
        partitions.extend(reports.iter().flat_map(|report| furthest(report, several)));
        partitions.truncate(room);
        lines.extend(partitions);
        Text::from(lines)
    }
}

/// Partitions whose state is not ordinary: somebody may have to act.
fn notable(report: &FlowReport, several: bool) -> Vec<Line<'static>> {
    let mut lines: Vec<_> = report
        .notable
        .iter()
        .map(|(partition, state)| {
            let colour = if matches!(state, PartitionState::Stopped(_)) { Color::Red } else { Color::Yellow };
            Line::from(vec![
                Span::raw(format!("  {}  ", label(report, partition, several))),
                Span::styled(state.to_string(), Style::new().fg(colour)),
            ])
        })
        .collect();
    let others = (report.totals.stopped + report.totals.other).saturating_sub(report.notable.len());
    if others > 0 {
        lines.push(Line::raw(format!("  and {others} others of {} that are not copying", report.name)));
    }
    lines
}

fn furthest(report: &FlowReport, several: bool) -> Vec<Line<'static>> {
    let line = |behind: &crate::mirror::Behind| {
        let label = label(report, &behind.partition, several);
        let age = seconds_of(behind.lag_ms);
        Line::raw(format!("  {label}  {} records, {age} s behind", grouped(behind.lag)))
    };
    report.furthest.iter().map(line).collect()
}

fn label(report: &FlowReport, partition: &str, several: bool) -> String {
    if several { format!("{} {partition}", report.name) } else { partition.to_owned() }
}

fn seconds_of(millis: Option<i64>) -> String {
    #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
    millis.map_or_else(|| "-".to_owned(), |millis| format!("{:.1}", millis as f64 / 1000.0))
}

/// `1234567.8` as `1 234 568`.
pub(super) trait Grouped {
    fn digits(self) -> String;
}

impl Grouped for f64 {
    fn digits(self) -> String {
        format!("{self:.0}")
    }
}

impl Grouped for u64 {
    fn digits(self) -> String {
        self.to_string()
    }
}

impl Grouped for i64 {
    fn digits(self) -> String {
        self.to_string()
    }
}

pub(super) fn grouped(number: impl Grouped) -> String {
    let digits = number.digits();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mirror::{Behind, Totals, partition::Progress};

    fn report(records: u64, bytes_in: u64) -> FlowReport {
        let progress = Progress { records, bytes_in, ..Progress::default() };
        let totals =
            Totals { partitions: 24, caught_up: 20, lag: 1_234_567, lag_ms: 2_500, progress, ..Totals::default() };
        FlowReport {
            name: "A->B".into(),
            state: "copying".into(),
            totals,
            notable: vec![("orders-3".into(), PartitionState::AwaitingTarget { why: "no leader".into() })],
            furthest: vec![Behind { partition: "orders-1".into(), lag: 1_000, lag_ms: None }],
        }
    }

    fn shown(panel: &mut Panel, report: FlowReport, now: Instant) -> Vec<String> {
        panel.text(&[report], now).lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_flow_is_one_line_and_partitions_that_need_a_look_follow() {
        let start = Instant::now();
        let mut panel = Panel::new(start);
        shown(&mut panel, report(0, 0), start);

        let lines = shown(&mut panel, report(30_000, 12_000_000), start + Duration::from_secs(3));

        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["A->B", "copying", "24", "20", "10", "000", "4.0", "1", "234", "567", "2.5", "100", "%"]
        );
        assert!(lines[3].contains("orders-3") && lines[3].contains("no leader"), "{lines:?}");
        assert_eq!(lines[4], "  orders-1  1 000 records, - s behind");
        assert!(lines.len() <= usize::from(Panel::height(1)));
    }

    #[test]
    fn digits_stand_in_groups() {
        assert_eq!(grouped(0_u64), "0");
        assert_eq!(grouped(999_u64), "999");
        assert_eq!(grouped(1_000_i64), "1 000");
        assert_eq!(grouped(-123_456_i64), "-123 456");
        assert_eq!(grouped(1_234_567.8), "1 234 568");
    }
}
