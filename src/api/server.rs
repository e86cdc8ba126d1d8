//! The HTTP server: bounded in connections, in the size of a request and in time. Bodies are never read.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{Mutex, Semaphore},
    task::LocalSet,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, info, warn};

use super::{exposition, is_healthy, reasons};
use crate::{
    metrics,
    mirror::{Observed, Observer},
    os_error::Reason,
    wall_clock,
};

/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Within this the head of a request has to be there.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// After this a connection is closed, whatever it does: whoever scrapes opens another one.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(60);
/// The control thread answers within a moment; a machine that is suspended or swaps needs longer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(4);
/// What was observed is shown for so long: whoever asks without pause costs the control thread no more.
const FRESH: Duration = Duration::from_millis(250);
/// After an error of the listener, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process listens there, or the address cannot be used.
    #[error("{at} cannot be listened on: {}", Reason(.error))]
    Listen {
        /// Where.
        at: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// No thread.
    #[error("no thread for it: {}", Reason(.0))]
    Thread(io::Error),
}

/// A server that runs until the process ends.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub at: SocketAddr,
}

struct Site {
    observer: Observer,
    started_ms: i64,
    last: Mutex<Option<(Instant, Arc<Observed>)>>,
}

impl Server {
    /// Listens, and answers on a thread of its own.
    ///
    /// # Errors
    /// See [`ServeError`]; the mirror goes on without.
    pub fn start(at: SocketAddr, observer: Observer) -> Result<Self, ServeError> {
        let listen = |error| ServeError::Listen { at, error };
        let listener = std::net::TcpListener::bind(at).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let at = listener.local_addr().map_err(listen)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
        let site = Arc::new(Site { observer, started_ms: wall_clock::now_ms(), last: Mutex::default() });
        let serve = move || {
            LocalSet::new().block_on(&runtime, async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => accept(listener, site).await,
                    Err(error) => warn!(error = %Reason(&error), "metrics and readiness are not shown"),
                }
            });
        };
        thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(ServeError::Thread)?;
        info!(%at, "metrics and readiness are shown over http");
        Ok(Self { at })
    }
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(error = %Reason(&error), "no connection taken");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Without room it is closed by dropping it.
        let Ok(permit) = room.clone().try_acquire_owned() else {
            continue;
        };
        let site = site.clone();
        tokio::task::spawn_local(async move {
            let _ = timeout(CONNECTION_PATIENCE, converse(stream, site)).await;
            drop(permit);
        });
    }
}

async fn converse(stream: TcpStream, site: Arc<Site>) {
    let service = service_fn(|request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(answer(&request, &site).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES_MAX).max_headers(64);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        debug!(%error, "an http connection broke off");
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(request: &Request<Incoming>, site: &Site) -> Answer {
    if !is_for_this_host(request.headers().get(HOST)) {
        return text(StatusCode::FORBIDDEN, "ask by the name localhost or by a loopback address\n".to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned());
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match request.uri().path() {
        "/health" => health(site).await,
        "/ready" => ready(request, site).await,
        "/metrics" => show_metrics(request, site).await,
        "/" => text(StatusCode::OK, "towpath: /metrics /health /ready\n".to_owned()),
        _ => text(StatusCode::NOT_FOUND, "there are /metrics, /health and /ready\n".to_owned()),
    }
}

/// A page of somebody else's that leads a browser here by a name of its own must not read anything.
fn is_for_this_host(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Site {
    async fn observe(&self) -> Option<Arc<Observed>> {
        let mut last = self.last.lock().await;
        if let Some((at, observed)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(observed.clone());
        }
        let observed = Arc::new(self.observer.observe(ANSWER_PATIENCE).await?);
        *last = Some((Instant::now(), observed.clone()));
        Some(observed)
    }
}

async fn health(site: &Site) -> Answer {
    match is_healthy(site.observe().await.as_deref()) {
        Ok(()) => text(StatusCode::OK, "healthy\n".to_owned()),
        Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not healthy: {why}\n")),
    }
}

async fn ready(request: &Request<Incoming>, site: &Site) -> Answer {
    let Some(observed) = site.observe().await else { return silent() };
    let (reasons, more) = reasons(&observed);
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let accepts = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if accepts.is_some_and(|accept| accept.contains("application/json")) {
        let body = serde_json::json!({ "ready": ready, "reasons": reasons, "more": more });
        return with_type(status, "application/json", body.to_string() + "\n");
    }
    let mut lines = vec![if ready { "ready".to_owned() } else { "not ready".to_owned() }];
    for one in &reasons {
        let partition = one.partition.as_ref().map(|partition| format!(" {partition}")).unwrap_or_default();
        lines.push(format!("{}{partition}: {}", one.flow, one.reason));
    }
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    text(status, lines.join("\n") + "\n")
}

async fn show_metrics(request: &Request<Incoming>, site: &Site) -> Answer {
    let Some(observed) = site.observe().await else { return silent() };
    let partitions = request.uri().query().is_none_or(|query| !query.split('&').any(|word| word == "partitions=no"));
    match exposition(&observed, site.started_ms, partitions).expose() {
        Ok(body) => with_type(StatusCode::OK, metrics::CONTENT_TYPE, body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn silent() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "the control thread does not answer\n".to_owned())
}

fn text(status: StatusCode, body: String) -> Answer {
    with_type(status, "text/plain; charset=utf-8", body)
}

fn with_type(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
