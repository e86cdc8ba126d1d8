//! `towpath status`: how far the copies are and what stands, from any machine, whether a mirror runs or not.

use std::{io::Write, path::PathBuf, time::Duration};

use serde::Serialize;
use tokio::{runtime, task::LocalSet};

use super::Exit;
use crate::{
    config,
    mirror::{
        settings::FlowSettings,
        status::{FlowView, PartitionView, Verdict, status},
    },
    wall_clock,
};

/// Reads from the clusters how far each partition is copied and what stands. Needs no mirror to run, and changes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArguments {
    /// MirrorMaker 2's configuration, such as mm2.properties.
    file: PathBuf,
    /// Only this flow, such as `A->B`.
    #[arg(long)]
    flow: Option<String>,
    /// List partitions that are copied or caught up too.
    #[arg(long)]
    all: bool,
    /// Print JSON, with all partitions.
    #[arg(long)]
    json: bool,
    /// How long a cluster that does not answer is tried.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// The version of the JSON: only a change that breaks readers raises it.
const VERSION: u32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    version: u32,
    asked_ms: i64,
    flows: &'a [FlowView],
}

pub(super) fn run(arguments: StatusArguments) -> Exit {
    let loaded = match config::load(&arguments.file) {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprintln!("{errors}");
            return Exit::Usage;
        }
    };
    let all = loaded.settings.flows;
    let wanted = |flow: &&FlowSettings| arguments.flow.as_ref().is_none_or(|name| flow.name() == *name);
    let flows: Vec<FlowSettings> = all.iter().filter(wanted).cloned().collect();
    if flows.is_empty() {
        let names: Vec<String> = all.iter().map(FlowSettings::name).collect();
        let name = arguments.flow.unwrap_or_default();
        eprintln!("--flow {name}: the file enables {} only", names.join(", "));
        return Exit::Usage;
    }
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return Exit::Internal;
        }
    };
    let patience = Duration::from_secs(arguments.timeout);
    let asked_ms = wall_clock::now_ms();
    let views = LocalSet::new().block_on(&runtime, status(&flows, &all, patience));
    // A name look-up that hangs in the system's resolver must not keep the process.
    runtime.shutdown_background();
    let text = if arguments.json {
        let document = Document { version: VERSION, asked_ms, flows: &views };
        serde_json::to_string_pretty(&document).expect("strings and numbers always serialise")
    } else {
        let file = arguments.file.display().to_string();
        views.iter().map(|view| table(view, &file, arguments.all, asked_ms)).collect::<Vec<_>>().join("\n")
    };
    // Whoever reads it may have gone; the exit code still tells.
    let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
    exit(&views)
}

fn exit(views: &[FlowView]) -> Exit {
    match views.iter().map(|view| view.verdict).max() {
        Some(Verdict::Copying) => Exit::Done,
        Some(Verdict::NotCopying) => Exit::NotCopied,
        Some(Verdict::Unknown) | None => Exit::CannotStart,
    }
}

/// Partitions of one topic in the same state are told together: a topic of a thousand partitions is then one line.
const NUMBERS_MAX: usize = 12;

fn table(view: &FlowView, file: &str, all: bool, now_ms: i64) -> String {
    let mut out = vec![head(view)];
    for problem in &view.problems {
        out.push(format!("  ! {problem}"));
    }
    if let Some(mirrors) = view.mirrors.as_ref().filter(|mirrors| !mirrors.is_empty()) {
        let names = mirrors.iter().take(4).map(|mirror| {
            let name = mirror.instance_id.as_deref().unwrap_or(&mirror.client_id);
            format!("{name} at {}", mirror.host.trim_start_matches('/'))
        });
        let more = if mirrors.len() > 4 { ", …" } else { "" };
        out.push(format!("  mirrors: {}{more}", names.collect::<Vec<_>>().join(", ")));
    }
    if !view.counts.is_empty() {
        let counts: Vec<String> = view.counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
        out.push(format!("  partitions: {}", counts.join(", ")));
    }
    let passed = [
        (view.lost_records, "lost at the source before they were copied"),
        (view.truncated_records, "lost by the source after they were copied"),
        (view.foreign_records, "of other writers on the target passed over"),
    ];
    for (count, words) in passed.iter().filter(|(count, _)| *count > 0) {
        out.push(format!("  records {words}: {count}"));
    }
    let shown: Vec<&PartitionView> = view.partitions.iter().filter(|row| all || !row.copying).collect();
    if !shown.is_empty() {
        out.push(String::new());
        out.extend(groups(&shown, all).iter().flat_map(|group| lines(group, file, &view.flow, now_ms)));
    }
    let losing: Vec<&PartitionView> = view.partitions.iter().filter(|row| !row.losses.is_empty()).collect();
    if !losing.is_empty() {
        out.push("\n  losses recorded (source offsets)".to_owned());
        let rows = losing.iter().flat_map(|row| row.losses.iter().map(move |loss| (row, loss)));
        const LOSSES_MAX: usize = 50;
        for (row, loss) in rows.clone().take(LOSSES_MAX) {
            let (first, last, records) = (loss.first, loss.last, loss.records);
            out.push(format!("    {}-{}  {first} to {last} ({records})", row.topic, row.partition));
        }
        let rest = rows.count().saturating_sub(LOSSES_MAX);
        if rest > 0 {
            out.push(format!("    and {rest} more; --json lists all"));
        }
    }
    out.join("\n") + "\n"
}

fn head(view: &FlowView) -> String {
    let verdict = match view.verdict {
        Verdict::Copying => "copying",
        Verdict::NotCopying => "not all is copied",
        Verdict::Unknown => "not everything could be asked",
    };
    let unknown = match view.lag_unknown {
        0 => String::new(),
        count => format!(" and what {count} partitions have not told"),
    };
    let behind = if view.partitions.is_empty() {
        String::new()
    } else {
        format!(", {} records behind{unknown}", view.lag_records)
    };
    format!("{}: {verdict}{behind}", view.flow)
}

/// Rows that say the same but for their numbers: those of one topic and state that wait for the same.
fn groups<'a>(rows: &[&'a PartitionView], all: bool) -> Vec<Vec<&'a PartitionView>> {
    let mut groups: Vec<Vec<&PartitionView>> = Vec::new();
    for row in rows {
        let same = |group: &Vec<&PartitionView>| {
            let first = group.first();
            first.is_some_and(|first| {
                (&first.topic, &first.state) == (&row.topic, &row.state) && first.remedy == row.remedy && !first.copying
            })
        };
        match groups.last_mut().filter(|group| !all && same(group)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn lines(group: &[&PartitionView], file: &str, flow: &str, now_ms: i64) -> Vec<String> {
    let Some(first) = group.first() else { return Vec::new() };
    let mut numbers: Vec<String> = group.iter().take(NUMBERS_MAX).map(|row| row.partition.to_string()).collect();
    if group.len() > NUMBERS_MAX {
        numbers.push(format!("… ({} partitions)", group.len()));
    }
    let offset = |offset: Option<i64>| offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
    let lag: Option<i64> = group.iter().map(|row| row.lag_records).sum();
    let mut facts = vec![first.state.clone()];
    if let [only] = group {
        let (source, target) = (offset(only.source_offset), offset(only.target_offset));
        facts.push(format!("source {source} of {}, target {target}", offset(only.source_end)));
    }
    facts.push(format!("behind {}", offset(lag)));
    let ago = |ms: i64| age((now_ms - ms) / 1000);
    if let Some(since) = group.iter().filter_map(|row| row.since_ms).min() {
        facts.push(format!("since {}", ago(since)));
    }
    if let Some(confirmed) = group.iter().filter_map(|row| row.confirmed_ms).min() {
        facts.push(format!("confirmed {} ago", ago(confirmed)));
    }
    let mut out = vec![format!("  {}-{}  {}", first.topic, numbers.join(","), facts.join("; "))];
    if let Some(reason) = &first.reason {
        out.push(format!("      {reason}"));
    }
    if let Some(remedy) = &first.remedy {
        let command = format!("towpath resume {file} --flow '{flow}'");
        out.push(format!("      remedy: {}", remedy.replace("towpath resume FILE", &command)));
    }
    out
}

/// Seconds in words a person takes in at a glance.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::status::RangeView;

    fn row(topic: &str, partition: i32, state: &str) -> PartitionView {
        PartitionView {
            topic: topic.into(),
            partition,
            remote_topic: format!("A.{topic}"),
            state: state.into(),
            copying: matches!(state, "copying" | "caught-up"),
            reason: (state == "source-gone").then(|| "source topic gone".into()),
            remedy: (state == "source-gone").then(|| "towpath resume FILE --topic t".into()),
            awaits_decision: false,
            since_ms: Some(1_000),
            source_offset: Some(10),
            target_offset: Some(12),
            confirmed_ms: Some(60_000),
            source_end: Some(15),
            lag_records: Some(5),
            lost_records: 0,
            truncated_records: 0,
            foreign_records: 0,
            losses: Vec::new(),
        }
    }

    fn view(partitions: Vec<PartitionView>) -> FlowView {
        FlowView {
            flow: "A->B".into(),
            verdict: Verdict::NotCopying,
            problems: vec!["no mirror runs: the flow's group has no member".into()],
            mirrors: Some(Vec::new()),
            counts: [("caught-up".to_owned(), 9_999), ("source-gone".to_owned(), 1)].into(),
            lag_records: 5,
            lag_unknown: 0,
            lost_records: 300,
            truncated_records: 0,
            foreign_records: 0,
            partitions,
        }
    }

    #[test]
    fn ten_thousand_partitions_are_a_few_lines_and_what_stands_is_named_with_its_remedy() {
        let mut rows: Vec<_> = (0..9_999).map(|number| row("t", number, "caught-up")).collect();
        rows.push(row("t", 9_999, "source-gone"));
        let text = table(&view(rows), "mm2.properties", false, 61_000);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "A->B: not all is copied, 5 records behind");
        assert_eq!(lines[1], "  ! no mirror runs: the flow's group has no member");
        assert_eq!(lines[2], "  partitions: 9999 caught-up, 1 source-gone");
        assert_eq!(lines[3], "  records lost at the source before they were copied: 300");
        assert_eq!(
            lines[5],
            "  t-9999  source-gone; source 10 of 15, target 12; behind 5; since 60 s; confirmed 1 s ago"
        );
        assert_eq!(lines[6], "      source topic gone");
        assert_eq!(lines[7], "      remedy: towpath resume mm2.properties --flow 'A->B' --topic t");
        assert_eq!(lines.len(), 8, "{text}");
        let rows: Vec<_> = (0..9_999).map(|number| row("t", number, "source-gone")).collect();
        let text = table(&view(rows), "mm2.properties", false, 61_000);
        assert!(text.contains("t-0,1,2,3,4,5,6,7,8,9,10,11,… (9999 partitions)  source-gone; behind 49995"), "{text}");
        let rows: Vec<_> = (0..20).map(|number| row("t", number, "copying")).collect();
        assert_eq!(table(&view(rows), "f", true, 61_000).matches("  copying; source 10").count(), 20);
    }

    #[test]
    fn losses_are_listed_with_their_ranges() {
        let mut lossy = row("t", 3, "copying");
        lossy.losses = vec![RangeView { first: 10, last: 14, records: 5 }];
        let text = table(&view(vec![lossy]), "f", false, 61_000);
        assert!(text.ends_with("  losses recorded (source offsets)\n    t-3  10 to 14 (5)\n"), "{text}");
    }

    #[test]
    fn the_json_has_the_documented_names() {
        let document = Document { version: VERSION, asked_ms: 5, flows: &[view(vec![row("t", 0, "source-gone")])] };
        let json = serde_json::to_value(&document).unwrap();
        let documented = include_str!("../../docs/status.md");
        let named = |value: &serde_json::Value| {
            for key in value.as_object().unwrap().keys() {
                assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
            }
        };
        named(&json);
        named(&json["flows"][0]);
        named(&json["flows"][0]["partitions"][0]);
        assert_eq!(json["flows"][0]["verdict"], "not-copying");
        assert_eq!(json["flows"][0]["partitions"][0]["sourceOffset"], 10);
    }

    #[test]
    fn the_worst_flow_decides_the_exit_code() {
        let with = |verdict| FlowView { verdict, ..view(Vec::new()) };
        assert_eq!(exit(&[with(Verdict::Copying)]), Exit::Done);
        assert_eq!(exit(&[with(Verdict::NotCopying), with(Verdict::Copying)]), Exit::NotCopied);
        assert_eq!(exit(&[with(Verdict::NotCopying), with(Verdict::Unknown)]), Exit::CannotStart);
    }
}
