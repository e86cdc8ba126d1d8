//! What partitions of a flow recorded on the target, for whoever asks without being the mirror.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    anchor::{AnchorError, Record},
    runs::RunsTopic,
};
use crate::{
    client::{ClientError, Cluster, GroupConnection},
    protocol::TopicPartition,
};

/// The last record of each remote partition.
pub(crate) type Records = BTreeMap<TopicPartition, Result<Record, AnchorError>>;

/// A connection to the coordinator of a flow's group.
pub(crate) async fn coordinator(cluster: &Cluster, group: &str) -> Result<GroupConnection, ClientError> {
    let broker = cluster.coordinator(group).await?;
    let connection = cluster.broker(broker).await?;
    Ok(GroupConnection::new(connection, Arc::from(group), cluster.request_timeout()))
}

/// Reads the group's commits, and where `lacks` says that something is missing, the copies in the runs topic.
pub(crate) async fn read_records(
    cluster: &Cluster,
    group: &str,
    runs: &RunsTopic,
    lacks: impl FnOnce(&Records) -> bool,
) -> Result<Records, ClientError> {
    let answer = coordinator(cluster, group).await?.fetch_offsets().await;
    let answer = answer.map_err(|error| ClientError::Request { cluster: cluster.alias().clone(), error })?;
    let refused = |code| ClientError::Code {
        cluster: cluster.alias().clone(),
        what: format!("to tell what the group {group} committed").into(),
        code,
        message: None,
    };
    if !answer.group_error.is_none() {
        return Err(refused(answer.group_error));
    }
    let mut records = Records::new();
    for offset in answer.partitions {
        // A partition that is left out would look as if it were never copied.
        if !offset.error_code.is_none() {
            return Err(refused(offset.error_code));
        }
        if offset.committed_offset >= 0 {
            let metadata = offset.metadata.unwrap_or_default();
            records.insert(offset.tp, Record::from_commit(offset.committed_offset, &metadata));
        }
    }
    if lacks(&records) {
        for (partition, (offset, metadata)) in runs.read(0).await?.anchors {
            records.entry(partition).or_insert_with(|| Record::from_commit(offset, &metadata));
        }
    }
    Ok(records)
}
