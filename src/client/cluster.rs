//! One cluster seen from the control thread: metadata, connections for admin work, coordinator look-up.
//!
//! Workers get the metadata as snapshots through a watch channel and dial brokers themselves; nothing here is on the
//! path of a batch. Connections are kept one per broker and dropped when idle.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use kafka_protocol::{
    messages::{
        FindCoordinatorRequest, MetadataRequest, TopicName as WireTopicName, metadata_request::MetadataRequestTopic,
    },
    protocol::StrBytes,
};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tracing::{debug, info, warn};

use super::{
    error::ClientError,
    snapshot::{ClusterSnapshot, Endpoint},
};
use crate::{
    net::{Connection, Dialer},
    protocol::{BrokerId, ErrorCode, MetadataResponse, TopicName},
};

/// How long a broker may take to answer what any broker knows, before another one is asked: a frozen broker must not
/// keep leaders and coordinators from being learnt. Doubled with each failure in a row, up to the request timeout, so
/// that a large answer on a slow link still gets through.
const ANSWER_PATIENCE: Duration = Duration::from_secs(4);
/// A cluster that cannot be reached is named in the log this often.
const STILL_UNREACHABLE: Duration = Duration::from_secs(30);
/// Metadata of 100,000 partitions with long names stays below this.
const METADATA_ANSWER_MAX: usize = 64 << 20;

/// What a cluster object needs to know.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The name in the configuration.
    pub alias: Arc<str>,
    /// Tried in turn until one answers.
    pub bootstrap: Vec<(String, u16)>,
    /// For admin requests.
    pub request_timeout: Duration,
    /// Connections unused for this long are closed.
    pub idle_max: Duration,
}

/// A cluster. Cheap to clone; lives on one thread.
#[derive(Clone)]
pub struct Cluster(Rc<Inner>);

struct Inner {
    config: ClusterConfig,
    dialer: Dialer,
    connections: RefCell<BTreeMap<BrokerId, (Connection, Instant)>>,
    bootstrap: RefCell<Option<Connection>>,
    next_bootstrap: Cell<usize>,
    /// When each address failed last; those that did are tried after the others.
    failed: RefCell<BTreeMap<Arc<str>, Instant>>,
    failures_in_a_row: Cell<u32>,
    snapshot: watch::Sender<Arc<ClusterSnapshot>>,
    /// One refresh at a time: askers that come meanwhile find its result fresh.
    refreshing: Mutex<()>,
}

impl Cluster {
    /// Connects to nothing yet.
    #[must_use]
    pub fn new(config: ClusterConfig, dialer: Dialer) -> Self {
        Self(Rc::new(Inner {
            config,
            dialer,
            connections: RefCell::default(),
            bootstrap: RefCell::default(),
            next_bootstrap: Cell::new(0),
            failed: RefCell::default(),
            failures_in_a_row: Cell::new(0),
            snapshot: watch::Sender::new(Arc::default()),
            refreshing: Mutex::new(()),
        }))
    }

    /// The name in the configuration.
    #[must_use]
    pub fn alias(&self) -> &Arc<str> {
        &self.0.config.alias
    }

    /// For requests that are not on the path of a batch.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.0.config.request_timeout
    }

    /// How to open connections of one's own.
    #[must_use]
    pub fn dialer(&self) -> &Dialer {
        &self.0.dialer
    }

    /// The cluster as last seen.
    #[must_use]
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.0.snapshot.borrow().clone()
    }

    /// Follows the snapshots.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<ClusterSnapshot>> {
        self.0.snapshot.subscribe()
    }

    /// Learns everything: brokers, all topics. Tries the known brokers, then the bootstrap addresses in turn.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] names every address and why it failed.
    pub async fn refresh_all(&self) -> Result<Arc<ClusterSnapshot>, ClientError> {
        self.refresh_topics(None).await
    }

    /// Learns the leaders of some topics anew.
    ///
    /// # Errors
    /// As [`Self::refresh_all`].
    pub async fn refresh(&self, topics: &BTreeSet<TopicName>) -> Result<Arc<ClusterSnapshot>, ClientError> {
        self.refresh_topics(Some(topics)).await
    }

    async fn refresh_topics(&self, topics: Option<&BTreeSet<TopicName>>) -> Result<Arc<ClusterSnapshot>, ClientError> {
        let _one = self.0.refreshing.lock().await;
        let (connection, mut failures, mut wrong_peer) = match self.any().await {
            Ok(connection) => (connection, Vec::new(), false),
            Err(error) => return Err(error),
        };
        let mut connection = Some(connection);
        // Every known broker and every bootstrap address gets one chance.
        for _ in 0..self.0.config.bootstrap.len() + self.snapshot().brokers.len() + 1 {
            let current = match connection.take() {
                Some(connection) => connection,
                None => match self.any().await {
                    Ok(connection) => connection,
                    Err(ClientError::Unreachable { failures: more, wrong_peer: wrong, .. }) => {
                        failures.extend(more);
                        wrong_peer |= wrong;
                        break;
                    }
                    Err(error) => return Err(error),
                },
            };
            match self.ask_metadata(&current, topics).await {
                Ok(answer) if answer.brokers.is_empty() => {
                    // A broker that is just starting: what it says about topics means nothing.
                    failures.push(format!("{}: it knows no brokers yet", current.peer()));
                    self.forget(&current);
                }
                // An address that was given to somebody else: nothing it says is about our topics.
                Ok(answer) if self.snapshot().is_another(&answer) => {
                    let id = answer.cluster_id.unwrap_or_default();
                    failures.push(format!(
                        "{}: leads to another cluster now (cluster id {id}); restart Towpath if that is meant",
                        current.peer()
                    ));
                    self.forget(&current);
                }
                Ok(answer) => {
                    self.0.failures_in_a_row.set(0);
                    let updated = Arc::new(self.snapshot().updated(answer, topics.is_none()));
                    self.0.snapshot.send_replace(updated.clone());
                    return Ok(updated);
                }
                Err(error) => {
                    debug!(cluster = %self.alias(), %error, "metadata request failed");
                    failures.push(format!("{}: {error}", current.peer()));
                    self.forget(&current);
                }
            }
        }
        Err(ClientError::Unreachable { cluster: self.alias().clone(), failures, wrong_peer })
    }

    async fn ask_metadata(
        &self,
        connection: &Connection,
        topics: Option<&BTreeSet<TopicName>>,
    ) -> Result<MetadataResponse, ClientError> {
        let mut request = MetadataRequest::default();
        request.allow_auto_topic_creation = false;
        request.topics = topics.map(|names| {
            names.iter().map(|name| MetadataRequestTopic::default().with_name(Some(wire_topic(name)))).collect()
        });
        let failed = |error| ClientError::Request { cluster: self.alias().clone(), error };
        let version = connection.negotiate::<MetadataRequest>(i16::MAX).map_err(failed)?;
        let reply = connection
            .begin(version, &request, METADATA_ANSWER_MAX, self.answer_patience())
            .map_err(failed)?
            .await
            .map_err(failed)?;
        let answer = MetadataResponse::decode(reply.body, version).map_err(|error| {
            failed(crate::net::RequestError::Decode { peer: connection.peer().into(), error: Arc::new(error) })
        })?;
        if !answer.error_code.is_none() {
            return Err(self.refused("metadata", answer.error_code, None));
        }
        Ok(answer)
    }

    /// A connection to any broker: a known one, else a bootstrap address, each tried in turn.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] with every failure.
    pub async fn any(&self) -> Result<Connection, ClientError> {
        if let Some(connection) = self.open_connection() {
            return Ok(connection);
        }
        let mut failures = Vec::new();
        let mut wrong_peer = false;
        let mut known: Vec<Endpoint> = self.snapshot().brokers.values().cloned().collect();
        let failed_at = |peer: &str| self.0.failed.borrow().get(peer).copied();
        known.sort_by_cached_key(|endpoint| (failed_at(&format!("{}:{}", endpoint.host, endpoint.port)), endpoint.id));
        for endpoint in known {
            match self.broker(endpoint.id).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failures.push(error.to_string()),
            }
        }
        // All known brokers are gone: they may have moved, the bootstrap addresses are what the operator maintains.
        let addresses = &self.0.config.bootstrap;
        for _ in 0..addresses.len() {
            let index = self.0.next_bootstrap.get();
            self.0.next_bootstrap.set((index + 1) % addresses.len().max(1));
            let Some((host, port)) = addresses.get(index) else {
                continue;
            };
            match self.0.dialer.dial(host, *port).await {
                Ok((connection, _)) => {
                    *self.0.bootstrap.borrow_mut() = Some(connection.clone());
                    return Ok(connection);
                }
                Err(error) => {
                    wrong_peer |= error.is_wrong_peer();
                    failures.push(error.to_string());
                }
            }
        }
        Err(ClientError::Unreachable { cluster: self.alias().clone(), failures, wrong_peer })
    }

    /// Of the open connections, the one to the address whose last failure is longest ago.
    fn open_connection(&self) -> Option<Connection> {
        let failed = self.0.failed.borrow();
        let connections = self.0.connections.borrow();
        let bootstrap = self.0.bootstrap.borrow();
        let open = connections.values().map(|(connection, _)| connection).chain(bootstrap.as_ref());
        open.filter(|connection| !connection.is_ended())
            .min_by_key(|connection| failed.get(connection.peer()).copied())
            .cloned()
    }

    pub(super) fn answer_patience(&self) -> Duration {
        let doubled = ANSWER_PATIENCE.saturating_mul(1 << self.0.failures_in_a_row.get().min(8));
        doubled.min(self.request_timeout())
    }

    fn note_failure(&self, peer: &str) {
        self.0.failed.borrow_mut().insert(peer.into(), Instant::now());
        self.0.failures_in_a_row.set(self.0.failures_in_a_row.get().saturating_add(1));
    }

    /// The shared admin connection to one broker.
    ///
    /// # Errors
    /// [`ClientError::NoEndpoint`] or [`ClientError::Dial`].
    pub async fn broker(&self, id: BrokerId) -> Result<Connection, ClientError> {
        let now = Instant::now();
        self.0.connections.borrow_mut().retain(|_, (connection, used)| {
            !connection.is_ended() && now.duration_since(*used) < self.0.config.idle_max
        });
        if let Some((connection, used)) = self.0.connections.borrow_mut().get_mut(&id) {
            *used = now;
            return Ok(connection.clone());
        }
        let connection = self.dial(id).await?;
        self.0.connections.borrow_mut().insert(id, (connection.clone(), now));
        Ok(connection)
    }

    /// A connection of the caller's own to one broker.
    ///
    /// # Errors
    /// [`ClientError::NoEndpoint`] or [`ClientError::Dial`].
    pub async fn dial(&self, id: BrokerId) -> Result<Connection, ClientError> {
        let endpoint = self
            .snapshot()
            .endpoint(id)
            .cloned()
            .ok_or_else(|| ClientError::NoEndpoint { cluster: self.alias().clone(), broker: id })?;
        let (connection, _) = self.0.dialer.dial(&endpoint.host, endpoint.port).await.map_err(|error| {
            self.0.failed.borrow_mut().insert(format!("{}:{}", endpoint.host, endpoint.port).into(), Instant::now());
            ClientError::Dial { cluster: self.alias().clone(), error }
        })?;
        Ok(connection)
    }

    /// The controller, where topics are created.
    ///
    /// # Errors
    /// [`ClientError::Nobody`] during an election.
    pub async fn controller(&self) -> Result<Connection, ClientError> {
        match self.snapshot().controller {
            Some(id) => self.broker(id).await,
            None => Err(ClientError::Nobody { cluster: self.alias().clone(), what: "controller".into() }),
        }
    }

    /// The broker that coordinates a group.
    ///
    /// # Errors
    /// [`ClientError::Code`] with 15 while there is none, or 30 without the right to look.
    pub async fn coordinator(&self, group: &str) -> Result<BrokerId, ClientError> {
        let connection = self.any().await?;
        let failed = |error| ClientError::Request { cluster: self.alias().clone(), error };
        let version = connection.negotiate::<FindCoordinatorRequest>(i16::MAX).map_err(failed)?;
        let key = StrBytes::from_string(group.to_owned());
        let mut request = FindCoordinatorRequest::default();
        if version >= 4 {
            request.coordinator_keys = vec![key];
        } else {
            request.key = key;
        }
        let answer = connection.request_at(version, &request, self.answer_patience()).await.map_err(|error| {
            self.forget(&connection);
            failed(error)
        })?;
        let (code, id, host, port) = match answer.coordinators.first() {
            Some(found) => (found.error_code, found.node_id, found.host.to_string(), found.port),
            None => (answer.error_code, answer.node_id, answer.host.to_string(), answer.port),
        };
        let code = ErrorCode(code);
        if !code.is_none() {
            return Err(self.refused(&format!("to name the coordinator of group {group}"), code, None));
        }
        let id = BrokerId(id.0);
        if self.snapshot().endpoint(id).is_none() {
            // A broker that joined since the last metadata answer.
            let mut updated = (*self.snapshot()).clone();
            if let Ok(port) = u16::try_from(port) {
                updated.brokers.insert(id, Endpoint { id, host: host.into(), port });
                self.0.snapshot.send_replace(Arc::new(updated));
            }
        }
        Ok(id)
    }

    /// Drops a connection from the shared ones, after it failed.
    pub fn forget(&self, failed: &Connection) {
        self.note_failure(failed.peer());
        self.0.connections.borrow_mut().retain(|_, (connection, _)| connection.peer() != failed.peer());
        let mut bootstrap = self.0.bootstrap.borrow_mut();
        if bootstrap.as_ref().is_some_and(|connection| connection.peer() == failed.peer()) {
            *bootstrap = None;
        }
    }

    pub(super) fn refused(&self, what: &str, code: ErrorCode, message: Option<String>) -> ClientError {
        ClientError::Code { cluster: self.alias().clone(), what: what.into(), code, message }
    }

    /// Learns the cluster for the first time, trying until `deadline`, for ever without one. `tried` is called once,
    /// after the first attempt, however it ended.
    ///
    /// # Errors
    /// The last failure; at once when an address leads to something that is not a Kafka broker.
    pub async fn bootstrap(
        &self,
        deadline: Option<Instant>,
        tried: impl FnOnce(),
    ) -> Result<Arc<ClusterSnapshot>, ClientError> {
        let mut backoff =
            crate::backoff::Backoff::new(Duration::from_millis(100), Duration::from_secs(2), crate::backoff::entropy());
        let mut tried = Some(tried);
        let began = Instant::now();
        let mut said = None;
        loop {
            let outcome = self.refresh_all().await;
            if let Some(tried) = tried.take() {
                tried();
            }
            let error = match outcome {
                Ok(snapshot) => {
                    info!(
                        cluster = %self.alias(),
                        cluster_id = snapshot.cluster_id.as_deref().unwrap_or("none"),
                        brokers = snapshot.brokers.len(),
                        topics = snapshot.topics.len(),
                        "connected"
                    );
                    return Ok(snapshot);
                }
                Err(error) => error,
            };
            let (delay, now) = (backoff.next_delay(), Instant::now());
            if error.is_wrong_peer() || deadline.is_some_and(|deadline| now + delay >= deadline) {
                return Err(error);
            }
            if said.is_none_or(|said| now >= said + STILL_UNREACHABLE) {
                said = Some(now);
                let waited_s = now.saturating_duration_since(began).as_secs();
                match deadline.map(|deadline| deadline.saturating_duration_since(now).as_secs()) {
                    Some(left_s) => warn!(
                        cluster = %self.alias(), %error, waited_s, left_s,
                        "cluster cannot be reached yet; tried again for a while"
                    ),
                    None => warn!(
                        cluster = %self.alias(), %error, waited_s,
                        "cluster cannot be reached yet; tried again until it answers"
                    ),
                }
            }
            tokio::time::sleep(delay).await;
        }
    }
}

/// A topic name as the crate wants it.
pub(crate) fn wire_topic(name: &TopicName) -> WireTopicName {
    WireTopicName(StrBytes::from_string(name.as_str().to_owned()))
}
