//! Where each leader's records begin (KIP-101), and what follows for a client that read under an older leader.

/// Start offset of every leader epoch of a partition.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaderEpochs {
    /// Epoch and first offset, both rising.
    starts: Vec<(i32, i64)>,
}

impl LeaderEpochs {
    /// A leader begins at `offset`. Epochs that wrote nothing before it are forgotten.
    pub(super) fn begin(&mut self, epoch: i32, offset: i64) {
        if self.latest().is_none_or(|latest| latest < epoch) {
            self.starts.retain(|(_, start)| *start < offset);
            self.starts.push((epoch, offset));
        }
    }

    pub(super) fn latest(&self) -> Option<i32> {
        self.starts.last().map(|(epoch, _)| *epoch)
    }

    /// The log was cut off at `end`.
    pub(super) fn truncate(&mut self, end: i64) {
        self.starts.retain(|(_, start)| *start < end);
    }

    /// The log begins at `start` now; the epoch that reaches over it stays, from there.
    pub(super) fn trim(&mut self, start: i64) {
        if let Some(last) = self.starts.iter().rposition(|(_, from)| *from <= start) {
            self.starts.drain(..last);
            if let Some(first) = self.starts.first_mut() {
                first.1 = start;
            }
        }
    }

    /// The epoch under which an offset was written.
    pub(super) fn at(&self, offset: i64) -> Option<i32> {
        self.starts.iter().rev().find(|(_, start)| *start <= offset).map(|(epoch, _)| *epoch)
    }

    /// Epoch and end offset that OffsetForLeaderEpoch answers; (-1, -1) if `epoch` is not known.
    pub(super) fn end_of(&self, epoch: i32, log_end: i64) -> (i32, i64) {
        let Some(latest) = self.latest().filter(|latest| epoch >= 0 && epoch <= *latest) else {
            return (-1, -1);
        };
        if epoch == latest {
            return (epoch, log_end);
        }
        let above = self.starts.iter().position(|(known, _)| *known > epoch).unwrap_or(0);
        let end = self.starts.get(above).map_or(log_end, |(_, start)| *start);
        match above.checked_sub(1).and_then(|below| self.starts.get(below)) {
            Some((below, _)) => (*below, end),
            None => (epoch, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_follow_the_rules_of_the_epoch_cache() {
        // batch-forwarding 5.3.
        let mut epochs = LeaderEpochs::default();
        assert_eq!(epochs.end_of(0, 0), (-1, -1));
        epochs.begin(2, 0);
        epochs.begin(5, 10);
        epochs.begin(7, 20);
        assert_eq!(epochs.end_of(7, 33), (7, 33));
        assert_eq!(epochs.end_of(5, 33), (5, 20));
        assert_eq!(epochs.end_of(6, 33), (5, 20));
        assert_eq!(epochs.end_of(1, 33), (1, 0));
        assert_eq!(epochs.end_of(8, 33), (-1, -1));
        assert_eq!((epochs.at(9), epochs.at(10), epochs.at(99)), (Some(2), Some(5), Some(7)));
        epochs.trim(15);
        assert_eq!(epochs.end_of(2, 33), (2, 15));
        epochs.truncate(18);
        assert_eq!(epochs.latest(), Some(5));
    }

    #[test]
    fn an_epoch_without_records_is_forgotten() {
        let mut epochs = LeaderEpochs::default();
        epochs.begin(0, 0);
        epochs.begin(1, 0);
        assert_eq!(epochs.end_of(0, 5), (0, 0));
    }
}
