//! Asks the clusters of flows. A cluster that cannot be reached costs its own flows their rows, and no other ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{FlowView, Found, MirrorView, PartitionView, SourceSays, TargetSays, judge};
use crate::{
    client::{ClientError, Cluster, ClusterSnapshot, OffsetQuery, list_offsets},
    mirror::{
        flow::{lone_cluster, refused_topics, selected_topics, topic_names},
        lease::lease_group,
        records::{Records, coordinator, read_records},
        runs::RunsTopic,
        settings::{ClusterSettings, FlowSettings, Isolation},
    },
    protocol::{BrokerId, TopicId, TopicName, TopicPartition},
    wall_clock,
};

/// Partitions of one question.
const PARTITIONS_PER_REQUEST: usize = 2000;

/// One look at `flows`. `all` are all flows of the file, for conflicts between them; a cluster is tried for `patience`.
pub async fn status(flows: &[FlowSettings], all: &[FlowSettings], patience: Duration) -> Vec<FlowView> {
    let mut clusters = BTreeMap::new();
    for settings in flows.iter().flat_map(|flow| [&flow.source, &flow.target]) {
        clusters.entry(key(settings)).or_insert_with(|| settings.clone());
    }
    let mut reached = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (key, settings) in clusters {
        tasks.spawn_local(async move { (key, reach(&settings, patience).await) });
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok((key, cluster)) = done {
            reached.insert(key, cluster);
        }
    }
    let mut topics = BTreeMap::new();
    for (key, cluster) in &reached {
        if let Ok(cluster) = cluster {
            topics.insert(key.0.clone(), topic_names(&cluster.snapshot()));
        }
    }
    let mut views = Vec::new();
    for flow in flows {
        let unreached = || Err("it was not asked".to_owned());
        let source = reached.get(&key(&flow.source)).cloned().unwrap_or_else(unreached);
        let target = reached.get(&key(&flow.target)).cloned().unwrap_or_else(unreached);
        views.push(look(flow, all, &topics, source, target, patience).await);
    }
    views
}

type Key = (String, Vec<(String, u16)>);

fn key(settings: &ClusterSettings) -> Key {
    let servers = settings.bootstrap_servers.iter().map(|at| (at.host.to_string(), at.port)).collect();
    (settings.alias.as_str().to_owned(), servers)
}

async fn reach(settings: &ClusterSettings, patience: Duration) -> Result<Cluster, String> {
    let cluster = lone_cluster(settings, None);
    let asked = cluster.bootstrap(Some(Instant::now() + patience), || ());
    match timeout(patience + Duration::from_secs(1), asked).await {
        Ok(Ok(_)) => Ok(cluster),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("cluster {} did not answer within {} s", settings.alias, patience.as_secs())),
    }
}

async fn look(
    flow: &FlowSettings,
    all: &[FlowSettings],
    topics: &BTreeMap<String, BTreeSet<String>>,
    source: Result<Cluster, String>,
    target: Result<Cluster, String>,
    patience: Duration,
) -> FlowView {
    let mut view = FlowView::new(flow.name());
    view.problems.extend(source.as_ref().err().cloned());
    let target = match target {
        Ok(target) => target,
        Err(why) => {
            // Both may be the same one.
            if !view.problems.contains(&why) {
                view.problems.push(why);
            }
            return view;
        }
    };
    let snapshot = source.as_ref().ok().map(Cluster::snapshot);
    let mut wanted = Wanted::default();
    if let Some(snapshot) = &snapshot {
        wanted.select(flow, all, topics, snapshot);
        if wanted.rows.is_empty() {
            view.problems.push("no topic of the source matches topics".to_owned());
        }
    }
    let told = target_says(flow, &target, &wanted, patience).await;
    let records = match told {
        Ok((records, mirrors)) => {
            view.mirrors = Some(mirrors);
            records
        }
        Err(why) => {
            view.problems.push(why);
            return view;
        }
    };
    let mut complete = source.is_ok();
    let mut ends = Ends::default();
    if let Ok(source) = &source {
        let unasked = ends.learn(flow, source, wanted.rows.keys(), patience).await;
        complete &= unasked.is_empty();
        view.problems.extend(unasked);
    }
    let mirror_runs = view.mirrors.as_ref().map(|mirrors| !mirrors.is_empty());
    view.partitions = rows(flow, &target.snapshot(), snapshot.as_deref(), wanted, records, &ends, mirror_runs);
    view.conclude(complete);
    view
}

/// The partitions of a flow, by source.
#[derive(Default)]
struct Wanted {
    /// The remote partition, and why it is refused.
    rows: BTreeMap<TopicPartition, (TopicPartition, Option<String>)>,
}

impl Wanted {
    fn select(
        &mut self,
        flow: &FlowSettings,
        all: &[FlowSettings],
        topics: &BTreeMap<String, BTreeSet<String>>,
        source: &ClusterSnapshot,
    ) {
        let refused = refused_topics(flow, all, topics);
        for topic in selected_topics(flow, source) {
            let remote = TopicName::new(flow.policy.remote_topic(flow.source.alias.as_str(), topic.as_str()));
            let refused = refused.get(topic.as_str());
            for partition in source.partitions_of(&topic) {
                let target = TopicPartition { topic: remote.clone(), partition: partition.partition };
                self.rows.insert(partition, (target, refused.cloned()));
            }
        }
    }

    /// Whether some of these has no record.
    fn lacks(&self, records: &Records) -> bool {
        // Without the source everything that ever was is wanted.
        self.rows.is_empty() || self.rows.values().any(|(target, _)| !records.contains_key(target))
    }
}

async fn target_says(
    flow: &FlowSettings,
    target: &Cluster,
    wanted: &Wanted,
    patience: Duration,
) -> Result<(Records, Vec<MirrorView>), String> {
    let group = lease_group(flow.source.alias.as_str(), flow.target.alias.as_str());
    let runs = RunsTopic::new(target.clone(), flow.source.alias.as_str());
    let has_runs = target.snapshot().topic_id(runs.topic()).is_some();
    if !has_runs {
        // No flow ever ran. Asking for the coordinator would make the cluster create its offsets topic.
        return Ok((Records::new(), Vec::new()));
    }
    let ask = || async {
        let described = coordinator(target, &group).await?.describe().await;
        let described = described.map_err(|error| ClientError::Request { cluster: target.alias().clone(), error })?;
        let members = described.map_err(|code| ClientError::Code {
            cluster: target.alias().clone(),
            what: format!("to describe the group {group}").into(),
            code,
            message: None,
        })?;
        let mirror = |member: crate::client::GroupMember| MirrorView {
            instance_id: member.instance_id,
            client_id: member.client_id,
            host: member.host,
        };
        let mirrors = members.into_iter().map(mirror).collect();
        let records = read_records(target, &group, &runs, |records| wanted.lacks(records)).await?;
        Ok::<_, ClientError>((records, mirrors))
    };
    let until = Instant::now() + patience;
    // A coordinator that is just being elected passes.
    let asked = async {
        loop {
            match ask().await {
                Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(250)).await,
                told => return told,
            }
        }
    };
    // The copies of ten thousand anchors are a few megabytes.
    match timeout(patience * 3, asked).await {
        Ok(Ok(told)) => Ok(told),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("cluster {} did not tell its records in time", target.alias())),
    }
}

/// Where logs of the source end: high watermark, and what may be read.
#[derive(Default)]
struct Ends(BTreeMap<TopicPartition, (i64, i64)>);

impl Ends {
    /// Returns a line for each broker that could not be asked.
    async fn learn(
        &mut self,
        flow: &FlowSettings,
        source: &Cluster,
        partitions: impl Iterator<Item = &TopicPartition>,
        patience: Duration,
    ) -> Vec<String> {
        let snapshot = source.snapshot();
        let mut by_leader: BTreeMap<Option<BrokerId>, Vec<TopicPartition>> = BTreeMap::new();
        for partition in partitions {
            let leader = snapshot.leader(partition).and_then(|leader| leader.leader);
            by_leader.entry(leader).or_default().push(partition.clone());
        }
        let mut unasked = Vec::new();
        for (leader, partitions) in by_leader {
            let count = partitions.len();
            let Some(leader) = leader else {
                unasked.push(format!("{count} partitions of cluster {} have no leader", source.alias()));
                continue;
            };
            let read_committed = flow.isolation == Isolation::ReadCommitted;
            let learnt = timeout(patience, self.learn_from(source, leader, &partitions, read_committed)).await;
            let why = match learnt {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", patience.as_secs()),
            };
            unasked.push(format!(
                "broker {} of cluster {} does not say where its {count} partitions end: {why}",
                leader.0,
                source.alias()
            ));
        }
        unasked
    }

    async fn learn_from(
        &mut self,
        source: &Cluster,
        leader: BrokerId,
        partitions: &[TopicPartition],
        read_committed: bool,
    ) -> Result<(), ClientError> {
        let connection = source.broker(leader).await?;
        let failed = |error| ClientError::Request { cluster: source.alias().clone(), error };
        let wait = source.request_timeout();
        for some in partitions.chunks(PARTITIONS_PER_REQUEST) {
            let (stable, ends) = if read_committed {
                let stable = list_offsets(&connection, OffsetQuery::LastStable, some, wait).await.map_err(failed)?;
                (Some(stable), list_offsets(&connection, OffsetQuery::HighWatermark, some, wait).await.map_err(failed)?)
            } else {
                (None, list_offsets(&connection, OffsetQuery::HighWatermark, some, wait).await.map_err(failed)?)
            };
            for (partition, end) in ends.into_iter().filter(|(_, listed)| listed.error_code.is_none()) {
                let readable = stable.as_ref().map_or(Some(end.offset), |stable| {
                    stable.get(&partition).filter(|listed| listed.error_code.is_none()).map(|listed| listed.offset)
                });
                if let Some(readable) = readable {
                    self.0.insert(partition, (end.offset, readable));
                }
            }
        }
        Ok(())
    }
}

fn rows(
    flow: &FlowSettings,
    target: &ClusterSnapshot,
    source: Option<&ClusterSnapshot>,
    wanted: Wanted,
    mut records: Records,
    ends: &Ends,
    mirror_runs: Option<bool>,
) -> Vec<PartitionView> {
    let now_ms = wall_clock::now_ms();
    let says = |partition: &TopicPartition| {
        let Some(source) = source else { return SourceSays::Nothing };
        let topic_id = source.topic_id(&partition.topic).unwrap_or_default();
        match ends.0.get(partition) {
            Some(&(end, readable)) => SourceSays::Ends { topic_id, end, readable },
            None => SourceSays::Exists(topic_id),
        }
    };
    let there = |remote: &TopicPartition| match target.leader(remote) {
        Some(_) => TargetSays::Exists(target.topic_id(&remote.topic).unwrap_or(TopicId::ZERO)),
        None => TargetSays::Missing,
    };
    let mut found: Vec<Found> = Vec::new();
    for (partition, (remote, refused)) in wanted.rows {
        found.push(Found {
            source: says(&partition),
            source_cluster: source.and_then(|source| source.cluster_id.clone()),
            target: there(&remote),
            record: records.remove(&remote),
            topic: partition.topic.as_str().to_owned(),
            partition: partition.partition.0,
            remote_topic: remote.topic.as_str().to_owned(),
            refused,
            mirror_runs,
        });
    }
    // What is left was copied once, or the source does not tell what is copied now.
    for (remote, record) in records {
        let topic = flow.policy.upstream_topic(remote.topic.as_str()).unwrap_or_else(|| remote.topic.as_str());
        found.push(Found {
            source_cluster: None,
            source: if source.is_some() { SourceSays::NotCopied } else { SourceSays::Nothing },
            target: there(&remote),
            topic: topic.to_owned(),
            partition: remote.partition.0,
            remote_topic: remote.topic.as_str().to_owned(),
            record: Some(record),
            refused: None,
            mirror_runs,
        });
    }
    found.sort_by(|one, other| (&one.topic, one.partition).cmp(&(&other.topic, other.partition)));
    found.iter().map(|found| judge(found, now_ms)).collect()
}
