//! What the live screen shows, as text: one line for each flow, then the partitions that need a look.
//!
//! Pure: reports and the time go in, lines come out.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span, Text},
};
use tokio::time::Instant;

use crate::mirror::{FlowReport, partition::PartitionState};

/// Lines for reasons and partitions below the flows.
const PARTITION_LINES: u16 = 6;
/// Room for a flow's state; what is longer stands below in full.
const STATE_WIDTH: usize = 14;
/// Longer names of flows are cut.
const NAME_WIDTH_MAX: usize = 32;
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

    /// The whole panel, for a screen of so many columns.
    pub(super) fn text(&mut self, reports: &[FlowReport], now: Instant, width: u16) -> Text<'static> {
        let width = usize::from(width);
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.flows.resize(reports.len(), Rates::default());
        let longest = reports.iter().map(|report| report.name.chars().count()).max().unwrap_or(0);
        let name_width = longest.clamp("flow".len(), NAME_WIDTH_MAX);
        let columns = columns(width.saturating_sub(name_width + 2 + STATE_WIDTH));
        let row = |name: &str, state: &str, cells: &[String; COLUMNS.len()]| {
            let mut text = format!("{:<name_width$}  {:<STATE_WIDTH$}", cut(name, name_width), state);
            for (column, cell) in COLUMNS.iter().zip(cells).filter(|(column, _)| columns.contains(&column.heading)) {
                text.push_str(&format!(" {cell:>width$}", width = column.width));
            }
            text
        };
        let heading = row("flow", "state", &COLUMNS.map(|column| column.heading.to_owned()));
        let mut lines = vec![
            Line::styled("─".repeat(heading.chars().count()), Style::new().fg(Color::DarkGray)),
            Line::styled(heading, Style::new().add_modifier(Modifier::BOLD)),
        ];
        for (report, rates) in reports.iter().zip(&mut self.flows) {
            let (totals, progress) = (&report.totals, &report.totals.progress);
            rates.step(progress.records, progress.bytes_in, seconds);
            let cells = [
                totals.partitions.to_string(),
                totals.caught_up.to_string(),
                grouped(rates.records),
                format!("{:.1}", rates.bytes / 1e6),
                grouped(totals.lag),
                seconds_of((progress.records > 0).then_some(totals.lag_ms)),
                report.sealed_share(),
            ];
            lines.push(Line::raw(row(&report.name, &short(&report.state), &cells)));
        }
        let mut room = usize::from(PARTITION_LINES);
        let several = reports.len() > 1;
        for report in reports.iter().filter(|report| short(&report.state) != report.state) {
            let colour = if report.state.starts_with("cannot run") { Color::Red } else { Color::Yellow };
            add(&mut lines, &mut room, wrapped(&report.name, &report.state, colour, width));
        }
        for report in reports {
            notable(report, several, width, &mut lines, &mut room);
        }
        for line in reports.iter().flat_map(|report| furthest(report, several)) {
            add(&mut lines, &mut room, vec![line]);
        }
        Text::from(lines)
    }
}

/// A column of numbers.
struct Column {
    heading: &'static str,
    width: usize,
    /// Those with the highest are left out first where the screen is narrow.
    rank: u8,
}

const COLUMNS: [Column; 7] = [
    Column { heading: "partitions", width: 10, rank: 6 },
    Column { heading: "caught up", width: 9, rank: 5 },
    Column { heading: "records/s", width: 12, rank: 1 },
    Column { heading: "MB/s", width: 7, rank: 3 },
    Column { heading: "behind", width: 12, rank: 0 },
    Column { heading: "behind s", width: 8, rank: 2 },
    Column { heading: "sealed", width: 6, rank: 4 },
];

/// Headings of the columns that fit into so much room.
fn columns(mut room: usize) -> Vec<&'static str> {
    let mut by_rank: Vec<&Column> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut fitting = Vec::new();
    for column in by_rank {
        let Some(left) = room.checked_sub(column.width + 1) else { break };
        room = left;
        fitting.push(column.heading);
    }
    fitting
}

/// The beginning of a state, in whole words, as far as its column goes.
fn short(state: &str) -> String {
    let head = state.split(':').next().unwrap_or_default();
    let mut short = String::new();
    for word in head.split_whitespace() {
        let longer = if short.is_empty() { word.to_owned() } else { format!("{short} {word}") };
        if longer.chars().count() > STATE_WIDTH {
            break;
        }
        short = longer;
    }
    if short.is_empty() { cut(head, STATE_WIDTH) } else { short }
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Adds what belongs together if it fits; says whether it did. The first of all is shown as far as there is room.
fn add(lines: &mut Vec<Line<'static>>, room: &mut usize, mut more: Vec<Line<'static>>) -> bool {
    if *room == usize::from(PARTITION_LINES) {
        more.truncate(*room);
    }
    let fits = more.len() <= *room;
    if fits {
        *room -= more.len();
        lines.extend(more);
    }
    fits
}

/// A name and what is said of it, in as many lines as that takes.
fn wrapped(name: &str, text: &str, colour: Color, width: usize) -> Vec<Line<'static>> {
    const INDENT: &str = "      ";
    let style = Style::new().fg(colour);
    let width = width.max(40);
    let mut lines = vec![(format!("  {name}  "), String::new())];
    for word in text.split(' ') {
        let (before, said) = lines.last_mut().expect("it begins with one");
        let taken = before.chars().count() + said.chars().count();
        let is_first = said.is_empty();
        if taken + usize::from(!is_first) + word.chars().count() > width && !(is_first && before == INDENT) {
            lines.push((INDENT.to_owned(), word.to_owned()));
        } else {
            if !is_first {
                said.push(' ');
            }
            said.push_str(word);
        }
    }
    lines.into_iter().map(|(before, said)| Line::from(vec![Span::raw(before), Span::styled(said, style)])).collect()
}

/// Partitions whose state is not ordinary: somebody may have to act.
fn notable(report: &FlowReport, several: bool, width: usize, lines: &mut Vec<Line<'static>>, room: &mut usize) {
    let all = report.totals.stopped + report.totals.other;
    let mut shown = 0;
    for (partition, state) in &report.notable {
        let colour = if matches!(state, PartitionState::Stopped(_)) { Color::Red } else { Color::Yellow };
        let said = wrapped(&label(report, partition, several), &state.to_string(), colour, width);
        // One line is kept for those that are not named.
        let rest = usize::from(shown + 1 < all);
        if shown > 0 && said.len() + rest > *room || !add(lines, room, said) {
            break;
        }
        shown += 1;
    }
    let others = all.saturating_sub(shown);
    if others > 0 {
        let text = format!("  and {others} others of {} that are not copying", report.name);
        add(lines, room, vec![Line::raw(text)]);
    }
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
        let progress = Progress { records, bytes_in, bytes_out: bytes_in.max(1), ..Progress::default() };
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
        shown_at(panel, report, now, 120)
    }

    fn shown_at(panel: &mut Panel, report: FlowReport, now: Instant, width: u16) -> Vec<String> {
        panel.text(&[report], now, width).lines.iter().map(ToString::to_string).collect()
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
    fn a_long_state_does_not_shift_columns_and_is_told_in_full_below() {
        let start = Instant::now();
        let refused = "cannot run: cannot connect to b1.example.org:9092: Connection refused; tried again";
        for state in ["copying", "reaching its clusters", "no topics to copy", refused] {
            let report = FlowReport { state: state.into(), notable: Vec::new(), ..report(0, 0) };
            let lines = shown(&mut Panel::new(start), report, start);
            let ends = |line: &str| line.chars().count();
            assert_eq!(ends(&lines[1]), ends(&lines[2]), "{lines:?}");
            assert_eq!(lines[0].chars().count(), ends(&lines[1]));
            let told = lines[2].contains(&format!(" {state} ")) || lines[3] == format!("  A->B  {state}");
            assert!(told, "{lines:?}");
        }
        assert_eq!(short(refused), "cannot run");
        assert_eq!(short("lease joining: waits for other members, at most 90 s"), "lease joining");
    }

    #[test]
    fn at_80_columns_what_matters_is_there_and_nothing_is_cut() {
        let start = Instant::now();
        let why = "cannot connect to broker-1.target.example.org:9092: Connection refused".to_owned();
        let mut report = report(0, 0);
        report.name = "source->target".into();
        report.notable =
            vec![("orders-with-a-long-name-3".into(), PartitionState::AwaitingTarget { why: why.clone() })];
        report.totals.other = 3;
        let lines = shown_at(&mut Panel::new(start), report, start, 80);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        for heading in ["state", "records/s", "MB/s", "behind", "behind s", "sealed"] {
            assert!(lines[1].contains(heading), "{lines:#?}");
        }
        assert!(lines[2].contains("1 234 567") && lines[2].contains("100 %"), "{lines:#?}");
        let words: Vec<_> = lines[3..].iter().flat_map(|line| line.split_whitespace()).collect();
        assert!(words.join(" ").contains(&why), "{lines:#?}");
        assert!(words.join(" ").contains("and 2 others"), "{lines:#?}");
        assert!(lines.len() <= usize::from(Panel::height(1)), "{lines:#?}");
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
