//! What must be true of every world: each committed source record once on the target, in order, unchanged; anchors never
//! ahead of the log.
//!
//! It reads the logs of both clusters themselves, with a decoder of its own way: batch by batch through the codec, then
//! record by record. It does not ask the mirror anything.

use std::collections::{BTreeMap, BTreeSet};

use towpath::{
    batch::{Batch, Codec, ControlType, Record, recoded, records},
    mirror::anchor::Anchor,
    testkit::{engine::PartitionView, log::Stored},
};

/// Most bytes of an opened batch.
const OPENED_MAX: usize = 16 << 20;

/// The value of records that somebody else wrote to the copy.
pub(super) const FOREIGN: &[u8] = b"foreign";

/// A record as consumers see it: time, key, value, headers.
type Seen = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// One record of a source partition, ever.
#[derive(Debug, Clone)]
struct Original {
    seen: Seen,
    /// Its transaction, if any, was not aborted; unknown while it is open.
    visible: Option<bool>,
    /// It was taken from the source, so that it need not have been copied.
    taken: Option<Taken>,
}

/// What took a record from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Retention,
    /// An unclean election, or the end of its topic.
    History,
}

/// Which record of a source partition: in which history it was written, and at which offset.
type Place = (u32, i64);

/// What a source partition ever held.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    originals: BTreeMap<Place, Original>,
    /// Counts the log's histories: a new one begins where the log is cut off, or the topic is another one.
    history: u32,
    /// Where histories began.
    pub(super) cuts: Vec<i64>,
    /// Records were taken from either log, so that what anchors say cannot be compared any more.
    pub(super) disturbed: bool,
    /// The copy began anew.
    pub(super) restarted: bool,
    /// Before this offset records were gone before the copy began: nobody has to say so.
    pub(super) begins: i64,
    /// What the mirror said that it passed over.
    pub(super) losses: Vec<(i64, i64)>,
    /// Up to here the log was read.
    read_to: i64,
    /// Open transactions: producer id and the offsets of their records.
    open: BTreeMap<i64, Vec<Place>>,
    /// Offsets whose records a cleaner took, at some time.
    cleaned: BTreeSet<Place>,
}

fn seen(record: &Record) -> Seen {
    let bytes = |field: &Option<bytes::Bytes>| field.as_ref().map(|bytes| bytes.to_vec());
    let headers = record.headers.iter().map(|header| (header.key.to_vec(), bytes(&header.value)));
    (record.timestamp, bytes(&record.key), bytes(&record.value), headers.collect())
}

fn opened(batch: &Batch) -> Result<Vec<Record>, String> {
    if batch.header.is_empty() {
        return Ok(Vec::new());
    }
    let plain = recoded(batch, Codec::None, OPENED_MAX).map_err(|error| error.to_string())?;
    records(&plain).map_err(|error| error.to_string())?.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn batch(stored: &Stored) -> Result<Batch, String> {
    stored.batch().ok_or_else(|| format!("offset {} holds no batch", stored.base_offset))
}

impl Ledger {
    /// Reads what was added to the source's log since the last time, below its high watermark.
    pub(super) fn note(&mut self, view: &PartitionView) -> Result<(), String> {
        for stored in &view.entries {
            if stored.last_offset < self.read_to || stored.base_offset >= view.high_watermark {
                continue;
            }
            let batch = batch(stored)?;
            let id = batch.header.producer_id;
            if batch.header.is_control() {
                let Some(kind) = batch.control_type() else { continue };
                for offset in self.open.remove(&id).unwrap_or_default() {
                    if let Some(original) = self.originals.get_mut(&offset) {
                        original.visible = Some(kind == ControlType::Commit);
                    }
                }
            } else {
                for record in opened(&batch)? {
                    let visible = (!batch.header.is_transactional()).then_some(true);
                    if visible.is_none() {
                        self.open.entry(id).or_default().push((self.history, record.offset));
                    }
                    let original = Original { seen: seen(&record), visible, taken: None };
                    self.originals.insert((self.history, record.offset), original);
                }
            }
            self.read_to = stored.last_offset + 1;
        }
        Ok(())
    }

    /// Notes which records are gone from the log.
    pub(super) fn note_cleaned(&mut self, view: &PartitionView) -> Result<(), String> {
        let mut left = BTreeSet::new();
        for stored in &view.entries {
            let batch = batch(stored)?;
            if !batch.header.is_control() {
                left.extend(opened(&batch)?.iter().map(|record| record.offset));
            }
        }
        let gone = |(_, offset): &&Place| *offset < self.read_to && !left.contains(offset);
        self.cleaned.extend(self.originals.keys().filter(gone));
        Ok(())
    }

    /// Retention takes what lies before an offset.
    pub(super) fn note_deleted(&mut self, before: i64) {
        self.disturbed = true;
        for ((_, offset), original) in &mut self.originals {
            if *offset < before && original.taken.is_none() {
                original.taken = Some(Taken::Retention);
            }
        }
    }

    /// From this offset on the log is another one.
    pub(super) fn note_cut(&mut self, from: i64) {
        self.disturbed = true;
        for ((_, offset), original) in &mut self.originals {
            if *offset >= from {
                original.taken = Some(Taken::History);
            }
        }
        self.history += 1;
        self.cuts.push(from);
        self.read_to = self.read_to.min(from);
        self.open.clear();
    }

    /// Whether the mirror named what it passed over, no more and no less; only where nothing else happened to the logs.
    fn check_losses(&self, copied: &BTreeSet<Place>, missing: &[Place]) -> Result<(), String> {
        if !self.cuts.is_empty() || self.restarted {
            return Ok(());
        }
        let named = |offset: i64| self.losses.iter().any(|(from, to)| (*from..*to).contains(&offset));
        if let Some((_, offset)) = copied.iter().find(|(_, offset)| named(*offset)) {
            return Err(format!("source offset {offset} was copied, and is said to be lost: {:?}", self.losses));
        }
        let last = copied.last().map_or(-1, |(_, offset)| *offset);
        match missing.iter().find(|(_, offset)| *offset >= self.begins && *offset < last && !named(*offset)) {
            Some((_, offset)) => {
                Err(format!("source offset {offset} was passed over without a word: {:?}", self.losses))
            }
            None => Ok(()),
        }
    }

    /// Records that consumers may see, in order.
    fn visible(&self, read_committed: bool) -> impl Iterator<Item = (Place, &Original)> {
        let wanted = move |original: &Original| !read_committed || original.visible == Some(true);
        // A stable reader stops at the first open transaction.
        let stable = if read_committed {
            self.originals
                .iter()
                .find(|(_, original)| original.visible.is_none())
                .map_or((u32::MAX, i64::MAX), |(place, _)| *place)
        } else {
            (u32::MAX, i64::MAX)
        };
        self.originals
            .range(..stable)
            .map(|(offset, original)| (*offset, original))
            .filter(move |(_, original)| wanted(original))
    }
}

/// How far a copy is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// What is there is right, and something is missing yet.
    Partly { missing: usize },
    /// All of it.
    Whole,
}

/// Compares a copy with its ledger: right so far, or the first thing that is wrong.
pub(super) fn compare(
    ledger: &Ledger,
    copy: &PartitionView,
    read_committed: bool,
    anchor: Option<&Anchor>,
) -> Result<Copied, String> {
    let mut wanted = ledger.visible(read_committed).peekable();
    let mut missing = 0;
    let mut passed: Vec<Place> = Vec::new();
    // Of each record of the copy: where it stood.
    let mut origins: Vec<(i64, Place)> = Vec::new();
    let mut expected_offset = copy.log_start_offset;
    for stored in &copy.entries {
        let batch = batch(stored)?;
        if batch.header.is_control() || batch.header.is_transactional() {
            return Err(format!("target offset {} holds a control or transactional batch", stored.base_offset));
        }
        for record in opened(&batch)? {
            if record.offset != expected_offset {
                return Err(format!("target offset {} where {expected_offset} was expected", record.offset));
            }
            expected_offset += 1;
            let found = seen(&record);
            if found.2.as_deref() == Some(FOREIGN) {
                continue;
            }
            let origin = loop {
                match wanted.next() {
                    None => {
                        let before = ledger.originals.iter().find(|(_, original)| original.seen == found);
                        return Err(format!(
                            "target offset {} holds {}, which {}",
                            record.offset,
                            shown(&found),
                            match before {
                                Some(((_, offset), original)) => format!(
                                    "stands at source offset {offset} (visible: {:?}) and does not belong here: doubled, reordered or not committed",
                                    original.visible
                                ),
                                None => "the source never held: altered".to_owned(),
                            }
                        ));
                    }
                    Some((place, original)) if original.seen == found => break place,
                    // Taken, perhaps before it was copied.
                    Some((place, original)) if ledger.cleaned.contains(&place) || original.taken.is_some() => {
                        passed.extend((original.taken == Some(Taken::Retention)).then_some(place));
                    }
                    Some(((_, offset), original)) => {
                        return Err(format!(
                            "target offset {} holds {} where source offset {offset} ({}) was expected",
                            record.offset,
                            shown(&found),
                            shown(&original.seen)
                        ));
                    }
                }
            };
            origins.push((record.offset, origin));
        }
    }
    for (place, original) in wanted {
        missing += usize::from(!ledger.cleaned.contains(&place) && original.taken.is_none());
    }
    if missing == 0 && ledger.disturbed {
        ledger.check_losses(&origins.iter().map(|(_, place)| *place).collect(), &passed)?;
    }
    if let Some(anchor) = anchor.filter(|_| !ledger.disturbed) {
        check_anchor(anchor, copy, &origins, ledger, read_committed)?;
    }
    Ok(if missing == 0 { Copied::Whole } else { Copied::Partly { missing } })
}

/// Everything before the anchor's source position lies before its target position, and nothing else.
fn check_anchor(
    anchor: &Anchor,
    copy: &PartitionView,
    origins: &[(i64, Place)],
    ledger: &Ledger,
    read_committed: bool,
) -> Result<(), String> {
    let position = anchor.position;
    if position.target_next > copy.end_offset {
        return Err(format!(
            "an anchor names target offset {}, the log ends at {}",
            position.target_next, copy.end_offset
        ));
    }
    for (target, (_, source)) in origins {
        let (before_target, before_source) = (*target < position.target_next, *source < position.source_next);
        if before_target != before_source {
            return Err(format!(
                "the anchor says {} -> {}, but source offset {source} is at target offset {target}",
                position.source_next, position.target_next
            ));
        }
    }
    let copied: BTreeSet<Place> = origins.iter().map(|(_, source)| *source).collect();
    for (place, _) in ledger.visible(read_committed).take_while(|((_, offset), _)| *offset < position.source_next) {
        if !copied.contains(&place) && !ledger.cleaned.contains(&place) {
            return Err(format!(
                "the anchor stands at source offset {}, and {} was never copied",
                position.source_next, place.1
            ));
        }
    }
    Ok(())
}

fn shown(seen: &Seen) -> String {
    let text = |bytes: &Option<Vec<u8>>| {
        bytes
            .as_ref()
            .map_or_else(|| "null".to_owned(), |bytes| String::from_utf8_lossy(bytes).chars().take(24).collect())
    };
    format!("{}={} at {}", text(&seen.1), text(&seen.2), seen.0)
}

/// A log for people, a line for each batch.
pub(super) fn dump(view: &PartitionView) -> String {
    let mut text = format!(
        "  start {} high watermark {} last stable {} end {}\n",
        view.log_start_offset, view.high_watermark, view.last_stable_offset, view.end_offset
    );
    for stored in &view.entries {
        let Ok(batch) = batch(stored) else { continue };
        let header = batch.header;
        let records = if header.is_control() {
            format!("{:?}", batch.control_type())
        } else {
            let found = opened(&batch).unwrap_or_default();
            found
                .iter()
                .map(|record| format!("{}:{}", record.offset, shown(&seen(record))))
                .collect::<Vec<_>>()
                .join(", ")
        };
        text += &format!(
            "  {}..{} id {} epoch {} sequence {} {}: {records}\n",
            stored.base_offset,
            stored.last_offset,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            if header.is_transactional() { "transactional" } else { "" },
        );
    }
    text
}
