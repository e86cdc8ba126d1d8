//! Which topics a flow copies, and what the target lacks for them: look, plan, apply.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tracing::{debug, info, warn};

use super::{Directory, FlowContext, FlowError, LINES_MAX};
use crate::{
    client::{ClientError, Cluster, ClusterSnapshot, NewTopic, TopicConfigs},
    mirror::{
        runs::RunsTopic,
        settings::{FlowSettings, OnTargetRecreated},
    },
    protocol::{ErrorCode, TopicName},
    topics::{PlanRules, SourceTopic, TopicChange, conflicts, plan_topics, should_copy},
};

const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
const TIMESTAMP_AFTER_MAX: &str = "message.timestamp.after.max.ms";

/// A topic to copy.
#[derive(Debug, Clone)]
pub(super) struct Discovered {
    pub(super) source: TopicName,
    pub(super) target: TopicName,
    /// As many as both sides have.
    pub(super) partitions: i32,
    pub(super) target_batch_bytes_max: Option<usize>,
    /// Two flows would write it: why it is not copied.
    pub(super) refused: Option<String>,
}

/// Why the target does not create or grow a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) why: String,
    pub(super) remedy: String,
}

/// What a look found, after what was missing was prepared.
#[derive(Debug, Default)]
pub(super) struct Renewed {
    pub(super) topics: Vec<Discovered>,
    /// What the target refuses to create or grow, by remote topic.
    pub(super) refusals: BTreeMap<TopicName, Refusal>,
    /// Remote topics that are gone and not to be made anew before somebody decides so.
    pub(super) gone: BTreeSet<TopicName>,
}

/// Looks for topics and plans what is missing.
#[derive(Clone, Copy)]
pub(super) struct Discovery<'a> {
    settings: &'a FlowSettings,
    source: &'a Cluster,
    target: &'a Cluster,
    context: &'a FlowContext,
}

/// Makes a cluster's topics known to the other flows of the process.
pub(super) fn publish(directory: &Directory, alias: &str, snapshot: &ClusterSnapshot) {
    directory.borrow_mut().insert(alias.to_owned(), topic_names(snapshot));
}

/// The topics of a flow.
pub(crate) fn selected_topics(settings: &FlowSettings, source: &ClusterSnapshot) -> Vec<TopicName> {
    let is_selected = |name: &TopicName, internal: bool| {
        let (policy, topics) = (&settings.policy, &settings.topics);
        let target = settings.target.alias.as_str();
        let decision = should_copy(policy, topics, settings.copy_heartbeats, target, name.as_str(), internal);
        debug!(topic = name.as_str(), ?decision, "topic considered");
        decision.is_copy()
    };
    let topics = source.topics.iter().filter(|(_, info)| !info.partitions.is_empty());
    topics.filter(|(name, info)| is_selected(name, info.internal)).map(|(name, _)| name.clone()).collect()
}

/// Why topics of a flow are refused, by source name: two writers, or a loop.
pub(crate) fn refused_topics(
    settings: &FlowSettings,
    all_flows: &[FlowSettings],
    topics: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeMap<String, String> {
    let rules: Vec<_> = all_flows.iter().map(FlowSettings::rules).collect();
    let (source, target) = (settings.source.alias.as_str(), settings.target.alias.as_str());
    let mut refused = BTreeMap::new();
    for conflict in conflicts(&rules, topics) {
        for copy in conflict.copies.iter().filter(|copy| copy.source == source && copy.target == target) {
            refused.entry(copy.topic.clone()).or_insert_with(|| conflict.to_string());
        }
    }
    refused
}

/// The names of the topics that belong to nobody but users.
pub(crate) fn topic_names(snapshot: &ClusterSnapshot) -> BTreeSet<String> {
    let topics = snapshot.topics.iter().filter(|(_, info)| !info.internal);
    topics.map(|(name, _)| name.as_str().to_owned()).collect()
}

impl<'a> Discovery<'a> {
    pub(super) fn new(
        settings: &'a FlowSettings,
        source: &'a Cluster,
        target: &'a Cluster,
        context: &'a FlowContext,
    ) -> Self {
        Self { settings, source, target, context }
    }

    /// Looks, and makes what is missing.
    pub(super) async fn renew(self, known: BTreeMap<TopicName, Refusal>) -> Result<Renewed, FlowError> {
        let (topics, mut changes) = self.look().await?;
        let gone = self.gone(&changes).await?;
        changes.retain(|change| !gone.contains(&TopicName::new(change.topic())));
        let refusals = self.apply(changes, &known).await;
        Ok(Renewed { topics, refusals, gone })
    }

    /// Which topics of those that would be created were there before: an empty one in their place would be taken for the
    /// copy by whoever reads it. They are made anew where the settings or an operator say so.
    pub(super) async fn gone(&self, changes: &[TopicChange]) -> Result<BTreeSet<TopicName>, FlowError> {
        let creates = |change: &TopicChange| match change {
            TopicChange::Create { topic, .. } => Some(TopicName::new(topic.clone())),
            TopicChange::Grow { .. } => None,
        };
        let created: BTreeSet<TopicName> = changes.iter().filter_map(creates).collect();
        let begins = self.settings.on_target_recreated == OnTargetRecreated::Begin;
        let runs = RunsTopic::new(self.target.clone(), self.settings.source.alias.as_str());
        if created.is_empty() || begins || self.target.snapshot().topic_id(runs.topic()).is_none() {
            return Ok(BTreeSet::new());
        }
        // The group's commits went with the topic; their copies are here.
        Ok(runs.read(0).await?.missed(&created))
    }

    /// Reads both sides. The topics are what exists now on both, or will after the changes are applied.
    pub(super) async fn look(&self) -> Result<(Vec<Discovered>, Vec<TopicChange>), FlowError> {
        let from = self.source.refresh_all().await?;
        let to = self.target.refresh_all().await?;
        publish(&self.context.directory, self.settings.source.alias.as_str(), &from);
        publish(&self.context.directory, self.settings.target.alias.as_str(), &to);
        let selected = selected_topics(self.settings, &from);
        let refused = refused_topics(self.settings, &self.context.all_flows, &self.context.directory.borrow());
        let remote = |name: &TopicName| {
            TopicName::new(self.settings.policy.remote_topic(self.settings.source.alias.as_str(), name.as_str()))
        };
        let source_configs = self.configs(self.source, &selected).await;
        let remotes: Vec<TopicName> =
            selected.iter().map(&remote).filter(|name| to.topics.contains_key(name)).collect();
        let target_configs = self.configs(self.target, &remotes).await;
        let mut found = Vec::new();
        let mut wanted = Vec::new();
        for name in selected {
            let target = remote(&name);
            let partitions = from.topics.get(&name).map_or(0, |info| info.partitions.len());
            let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
            let configs = source_configs.get(&name);
            let number = |key: &str| configs.and_then(|configs| configs.get(key)?.parse::<i64>().ok());
            let max_message_bytes = number(MAX_MESSAGE_BYTES).and_then(|value| i32::try_from(value).ok());
            let refused = refused.get(name.as_str()).cloned();
            if refused.is_none() {
                wanted.push(SourceTopic {
                    name: name.as_str().to_owned(),
                    partitions,
                    max_message_bytes,
                    timestamp_after_max_ms: number(TIMESTAMP_AFTER_MAX),
                    other_configs: BTreeMap::new(),
                });
            }
            let existing =
                target_configs.get(&target).and_then(|configs| configs.get(MAX_MESSAGE_BYTES)?.parse::<usize>().ok());
            let created = max_message_bytes.and_then(|value| usize::try_from(value).ok());
            let target_batch_bytes_max = if to.topics.contains_key(&target) { existing } else { created };
            found.push(Discovered { source: name, target, partitions, target_batch_bytes_max, refused });
        }
        let rules = PlanRules {
            policy: &self.settings.policy,
            source_alias: self.settings.source.alias.as_str(),
            replication_factor: self.settings.replication_factor,
            target_knows_timestamp_limits: self.target_knows_timestamp_limits().await,
        };
        let counts: BTreeMap<String, i32> = to
            .topics
            .iter()
            .map(|(name, info)| (name.as_str().to_owned(), i32::try_from(info.partitions.len()).unwrap_or(i32::MAX)))
            .collect();
        let changes = plan_topics(&rules, &wanted, &counts);
        Ok((found, changes))
    }

    async fn configs(&self, cluster: &Cluster, topics: &[TopicName]) -> BTreeMap<TopicName, TopicConfigs> {
        if topics.is_empty() {
            return BTreeMap::new();
        }
        match cluster.topic_configs(topics, &[MAX_MESSAGE_BYTES, TIMESTAMP_AFTER_MAX]).await {
            Ok(configs) => configs,
            Err(error) => {
                if self.context.may_say("topic configurations cannot be read", 1) {
                    warn!(cluster = %cluster.alias(), %error, "topic configurations cannot be read; defaults are assumed");
                }
                BTreeMap::new()
            }
        }
    }

    /// What to say where the target has too few brokers for the topics that would be created.
    pub(super) fn too_many_replicas(&self) -> Option<String> {
        let brokers = self.target.snapshot().brokers.len();
        let (wanted, alias) = (self.settings.replication_factor, &self.settings.target.alias);
        let too_many = usize::try_from(wanted).is_ok_and(|wanted| wanted > brokers);
        too_many.then(|| {
            format!(
                "warning: replication.factor = {wanted}, but {alias} has {brokers} {}: it will refuse to create topics;                  set replication.factor to at most {brokers}, or to -1 for its default",
                if brokers == 1 { "broker" } else { "brokers" }
            )
        })
    }

    pub(super) fn refusal(&self, error: &ClientError) -> Refusal {
        let brokers = self.target.snapshot().brokers.len();
        let alias = &self.settings.target.alias;
        let remedy = match error.code() {
            Some(ErrorCode::INVALID_REPLICATION_FACTOR) => format!(
                "set replication.factor to at most {brokers}, the number of brokers of {alias}, or to -1 for their \
                 default"
            ),
            Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::CLUSTER_AUTHORIZATION_FAILED) => {
                format!("allow CREATE and ALTER on {alias} to Towpath's user, or create it there by hand")
            }
            Some(ErrorCode::INVALID_TOPIC_EXCEPTION) => {
                "Kafka allows 249 characters: use a shorter alias, or leave the topic out with topics.exclude".into()
            }
            _ => format!("create it on {alias} by hand, or leave the topic out with topics.exclude"),
        };
        Refusal { why: error.to_string(), remedy }
    }

    /// Whether creating a topic with the setting of KIP-937 (Kafka 3.6) would be accepted.
    async fn target_knows_timestamp_limits(&self) -> bool {
        const BROKER_KEY: &str = "log.message.timestamp.after.max.ms";
        let Some(broker) = self.target.snapshot().brokers.keys().next().copied() else {
            return false;
        };
        self.target.broker_configs(broker, &[BROKER_KEY]).await.is_ok_and(|configs| configs.contains_key(BROKER_KEY))
    }

    /// Creates and grows. Returns what the target refuses, by remote topic; only what is not in `known` is logged. The
    /// rest goes on.
    async fn apply(
        &self,
        changes: Vec<TopicChange>,
        known: &BTreeMap<TopicName, Refusal>,
    ) -> BTreeMap<TopicName, Refusal> {
        let mut refusals = BTreeMap::new();
        if changes.is_empty() {
            return refusals;
        }
        let flow = self.settings.name();
        let mut creates = Vec::new();
        let mut grows = Vec::new();
        for change in changes {
            let (TopicChange::Create { topic, .. } | TopicChange::Grow { topic, .. }) = &change;
            if known.contains_key(&TopicName::new(topic.clone())) {
                debug!(%flow, "again: {change}");
            } else {
                info!(%flow, "{change}");
            }
            match change {
                TopicChange::Create { topic, partitions, replication_factor, configs } => {
                    creates.push(NewTopic { name: TopicName::new(topic), partitions, replication_factor, configs })
                }
                TopicChange::Grow { topic, to, .. } => grows.push((TopicName::new(topic), to)),
            }
        }
        let mut done = BTreeSet::new();
        for outcome in [self.target.create_topics(&creates).await, self.target.create_partitions(&grows).await] {
            match outcome {
                Ok(outcomes) => {
                    for (topic, outcome) in outcomes {
                        match outcome {
                            Ok(()) => {
                                done.insert(topic);
                            }
                            Err(error) => {
                                let refusal = self.refusal(&error);
                                let new = known.get(&topic) != Some(&refusal);
                                if new && self.context.may_say("topic cannot be prepared", LINES_MAX) {
                                    let Refusal { why, remedy } = &refusal;
                                    warn!(%flow, topic = topic.as_str(), %why, %remedy, "topic cannot be prepared");
                                }
                                refusals.insert(topic, refusal);
                            }
                        }
                    }
                }
                Err(error) => {
                    if self.context.may_say("topics cannot be prepared", 1) {
                        warn!(%flow, %error, "topics cannot be prepared on the target just now; it is tried again by itself");
                    }
                }
            }
        }
        await_topics(self.target, &done).await;
        refusals
    }
}

/// Waits until the brokers know topics that were just created, with a leader for each partition; not for ever, since
/// partitions cope with a missing leader themselves.
pub(super) async fn await_topics(cluster: &Cluster, topics: &BTreeSet<TopicName>) {
    for _ in 0..50 {
        if topics.is_empty() {
            return;
        }
        if let Ok(snapshot) = cluster.refresh(topics).await {
            let ready = topics.iter().all(|topic| {
                snapshot.topics.get(topic).is_some_and(|info| {
                    !info.partitions.is_empty() && info.partitions.iter().all(|partition| partition.leader.is_some())
                })
            });
            if ready {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
