//! The binary without Kafka: wrong command lines, wrong files, and addresses where something else listens. Each gives a
//! message with a remedy and the exit code that `design.md` 8 promises.

// Both watch another process and real sockets: the real clock is the only one there is.
#![allow(clippy::disallowed_methods, reason = "see above")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::real::program::{Outcome, Running};

/// Starting is given up after thirty seconds, and an attempt under way may take ten.
const START_DEADLINE: Duration = Duration::from_secs(50);
const AT_ONCE: Duration = Duration::from_secs(10);
/// It takes seven seconds on an idle machine, in a debug build ten.
const DEMO_DEADLINE: Duration = Duration::from_secs(90);

fn towpath(arguments: &[&str], dir: &Path) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.args(arguments).current_dir(dir).env_remove("TOWPATH_LOG");
    Running::spawn(command)
}

fn run(arguments: &[&str]) -> Outcome {
    towpath(arguments, Path::new(".")).wait(AT_ONCE)
}

/// A directory with a configuration whose clusters are both at `port`.
fn directory(port: u16, lines: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("the system has room for a directory");
    let text = format!(
        "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:{port}\nB.bootstrap.servers = 127.0.0.1:{port}\n\
         A->B.enabled = true\ntowpath.state.dir = {}\n{lines}\n",
        dir.path().join("state").display()
    );
    std::fs::write(dir.path().join("mm2.properties"), text).expect("the directory is ours");
    dir
}

fn show_config(lines: &str) -> Outcome {
    let dir = directory(1, lines);
    towpath(&["run", "mm2.properties", "--show-config"], dir.path()).wait(AT_ONCE)
}

fn assert_says(text: &str, wanted: &[&str]) {
    for words in wanted {
        assert!(text.contains(words), "{words:?} expected in: {text}");
    }
    assert!(!text.contains("os error"), "numbers of the operating system are for programs: {text}");
}

/// Something that listens on a loopback port until the test process ends.
fn peer(serve: impl Fn(TcpStream) + Send + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

/// Answers the first bytes, and closes as a server does that has read everything.
fn answer(bytes: &'static [u8]) -> u16 {
    peer(move |mut stream| {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut request);
    })
}

/// Runs against a port with something else on it. The second value is how long it took.
fn run_at(port: u16, options: &[&str]) -> (Outcome, Duration) {
    let dir = directory(port, "");
    let began = Instant::now();
    let words = [&["run", "mm2.properties"], options].concat();
    let outcome = towpath(&words, dir.path()).wait(START_DEADLINE);
    (outcome, began.elapsed())
}

#[test]
fn wrong_command_lines_are_told_how_it_is_meant() {
    for arguments in [&[][..], &["run"], &["run", "a", "b"], &["--frobnicate"]] {
        let outcome = run(arguments);
        assert_eq!(outcome.code, Some(2), "{outcome}");
        assert_says(&outcome.stderr, &["towpath", "Usage"]);
        assert_eq!(outcome.stdout, "");
    }
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let outcome = run(arguments);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome}");
        assert_says(&outcome.stdout, &["towpath"]);
    }
}

#[test]
fn a_missing_file_is_named() {
    for arguments in [&["run", "no-such.properties"][..], &["no-such.properties"]] {
        let outcome = run(arguments);
        assert_eq!(outcome.code, Some(2), "{outcome}");
        assert_says(
            &outcome.stderr,
            &["no-such.properties: cannot be read: No such file or directory", "give the path"],
        );
    }
}

#[test]
fn every_fault_of_a_file_is_told_at_once_with_its_line() {
    let faults = "A->C.enabled = true\ntowpath.worker.threads = many\nreplication.factor = 0\n\
                  A.security.protocol = SSL";
    let outcome = show_config(faults);
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert_says(
        &outcome.stderr,
        &[
            "mm2.properties:6: A->C.enabled = true: ",
            "mm2.properties:7: towpath.worker.threads = many: ",
            "mm2.properties:8: replication.factor = 0: ",
            "mm2.properties:9: A.security.protocol = SSL: ",
        ],
    );
    assert_eq!(outcome.stderr.lines().count(), 4, "{outcome}");
}

#[test]
fn resume_tells_what_is_wrong_with_its_command_line_and_when_the_target_does_not_answer() {
    let resume = |lines: &str, arguments: &[&str], deadline| {
        let dir = directory(1, lines);
        towpath(&[&["resume", "mm2.properties"], arguments].concat(), dir.path()).wait(deadline)
    };
    let usage = |lines: &str, arguments: &[&str], wanted: &[&str]| {
        let outcome = resume(lines, arguments, AT_ONCE);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{outcome}");
        assert_says(&outcome.stderr, wanted);
    };
    usage("", &[], &["--topic"]);
    usage("", &["--topic", "t", "--partition", "1", "--recreate-target"], &["--partition", "--recreate-target"]);
    usage("", &["--topic", "t", "--flow", "A->C"], &["--flow A->C: the file enables A->B only"]);
    usage("B->A.enabled = true", &["--topic", "t"], &["--flow: which one? The file enables A->B, B->A"]);
    usage("towpath.on.source.loss = perhaps", &["--topic", "t"], &["towpath.on.source.loss", "stop, continue"]);
    let outcome = resume("", &["--topic", "t"], START_DEADLINE);
    assert_eq!(outcome.code, Some(3), "{outcome}");
    assert_says(&outcome.stderr, &["127.0.0.1:1"]);
}

#[test]
fn keys_without_effect_are_noted_and_nothing_more() {
    let outcome = show_config("tasks.max = 4\nA->B.topcis = orders");
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_says(
        &outcome.stderr,
        &["mm2.properties:6: tasks.max: ", "mm2.properties:7: A->B.topcis: ", "did you mean A->B.topics?"],
    );
    assert_says(&outcome.stdout, &["A->B"]);
}

#[test]
fn a_state_directory_that_cannot_be_used_is_named() {
    let dir = directory(1, "towpath.state.dir = /proc/towpath");
    let outcome = towpath(&["run", "mm2.properties"], dir.path()).wait(AT_ONCE);
    assert_eq!(outcome.code, Some(3), "{outcome}");
    assert_says(&outcome.stderr, &["/proc/towpath", "towpath.state.dir"]);
}

#[test]
fn a_second_process_with_the_same_state_is_refused() {
    let dir = directory(peer(hold_open), "");
    let mut first = towpath(&["run", "mm2.properties"], dir.path());
    let lock = dir.path().join("state/A-B.lock");
    first.wait_until("the lock file", AT_ONCE, |_| std::fs::read_to_string(&lock).ok().filter(|text| !text.is_empty()));

    let second = towpath(&["run", "mm2.properties"], dir.path()).wait(AT_ONCE);

    assert_eq!(second.code, Some(3), "{second}");
    let pid = format!("pid {}", first.id());
    assert_says(&second.stderr, &["is locked by another towpath process", &pid, "state directory"]);
    first.terminate();
    let first = first.wait(AT_ONCE);
    assert_eq!(first.code, Some(0), "stopping is no fault, also before anything was reached: {first}");
}

fn hold_open(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn peers_that_are_no_kafka_are_told_apart_at_once() {
    // What a Java broker's TLS listener and most TLS servers answer, what web servers answer, what sshd says.
    let tls = answer(&[0x15, 3, 3, 0, 2, 2, 70]);
    let http = answer(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    let ssh = answer(b"SSH-2.0-OpenSSH_9.2p1\r\n");
    for (port, wanted) in [
        (tls, "expects TLS, which this version does not speak: use the port of a PLAINTEXT listener"),
        (http, "speaks HTTP, not Kafka: check host and port"),
        (ssh, "is not a Kafka broker, its first bytes begin no answer: check host and port"),
    ] {
        let (outcome, took) = run_at(port, &[]);
        assert_eq!(outcome.code, Some(3), "{outcome}");
        assert!(took < AT_ONCE, "waiting does not help: {took:?}");
        let peer = format!("127.0.0.1:{port} {wanted}");
        assert_says(&outcome.stderr, &["no broker of cluster A can be reached", "of cluster B", &peer]);
        let times = outcome.stderr.matches("no broker of cluster A").count();
        assert_eq!(times, 1, "a message is told once: {outcome}");
    }
}

#[test]
fn a_copy_that_shall_end_gives_an_address_up_after_half_a_minute() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.local_addr().expect("it is bound").port()
    };
    let python = Python::start();
    let closes = peer(drop);
    let cases = [
        (gone, "cannot connect to 127.0.0.1", "Connection refused"),
        (closes, "closes connections without an answer", "TLS or SASL"),
        (peer(hold_open), "accepts connections but gave no answer within 10 s", "check host and port"),
        (python.http, "accepts connections but gave no answer within 10 s", "TLS, HTTP"),
        (python.tls, "closes connections without an answer", "PLAINTEXT listener"),
    ];
    std::thread::scope(|scope| {
        for (port, what, remedy) in cases {
            scope.spawn(move || {
                let (outcome, took) = run_at(port, &["--until-caught-up"]);
                assert_eq!(outcome.code, Some(3), "{outcome}");
                assert!(took > Duration::from_secs(25), "brokers may be starting: {took:?}");
                assert_says(&outcome.stderr, &["cluster cannot be reached yet", what, remedy, "flow cannot run"]);
            });
        }
    });
}

#[test]
fn without_an_end_it_goes_on_trying_and_says_so() {
    let dir = directory(peer(drop), "towpath.progress.interval.seconds = 1");
    let mut running = towpath(&["run", "mm2.properties"], dir.path());

    running.wait_for_line("tried again until it answers", AT_ONCE);
    running.wait_for_line("state=reaching its clusters", AT_ONCE);
    running.terminate();

    let outcome = running.wait(AT_ONCE);
    assert_eq!(outcome.code, Some(0), "{outcome}");
}

#[test]
fn a_terminal_that_closes_ends_it_in_order() {
    let dir = directory(peer(drop), "");
    let mut running = towpath(&["run", "mm2.properties"], dir.path());
    running.wait_for_line("cluster cannot be reached yet", AT_ONCE);
    running.hang_up();
    let outcome = running.wait(AT_ONCE);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_says(&outcome.stderr, &["stopping: "]);
    assert!(!outcome.stderr.contains("copied in all"), "it never ran: {outcome}");
}

#[test]
fn a_copy_that_shall_end_is_not_done_when_it_is_stopped_before_it_began() {
    let dir = directory(peer(drop), "");
    let mut running = towpath(&["run", "mm2.properties", "--until-caught-up"], dir.path());

    running.wait_for_line("cluster cannot be reached yet", AT_ONCE);
    running.terminate();

    let outcome = running.wait(AT_ONCE);
    assert_eq!(outcome.code, Some(4), "{outcome}");
    assert_says(&outcome.stdout, &["not copied: A->B all partitions: stopped before its clusters were reached"]);
}

/// Python's own HTTP and TLS servers: what people have at hand.
struct Python {
    http: u16,
    tls: u16,
    _process: Running,
}

impl Python {
    fn start() -> Self {
        const PROGRAM: &str = "
import http.server, socket, ssl, sys, threading
web = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=web.serve_forever, daemon=True).start()
secret = socket.create_server(('127.0.0.1', 0))
print(f'ports {web.server_address[1]} {secret.getsockname()[1]} ready', flush=True)
while True:
    stream, _ = secret.accept()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(stream, server_side=True)
    except OSError:
        pass
";
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]);
        let mut process = Running::spawn(command);
        let said = process.wait_for_line("ready", AT_ONCE);
        let ports: Vec<u16> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [http, tls] = ports[..] else { panic!("two ports expected: {said}") };
        Self { http, tls, _process: process }
    }
}

/// Runs `towpath demo` with a directory of its own for temporary files.
fn demo(options: &[&str]) -> (Running, TempDir) {
    let place = tempfile::tempdir().expect("the system has room for a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("demo").args(options).env("TMPDIR", place.path());
    (Running::spawn(command), place)
}

fn assert_left_nothing(place: &TempDir) {
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("it is ours").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_demo_survives_its_own_kill_and_finds_every_record() {
    let (running, place) = demo(&["--records", "60000"]);

    let outcome = running.wait(DEMO_DEADLINE).expect_success();

    let row = |label: &str| {
        let line = outcome.stdout.lines().find(|line| line.contains(label)).unwrap_or_else(|| panic!("{outcome}"));
        line.rsplit("  ").next().unwrap_or_default().trim().to_owned()
    };
    assert_eq!(row("records found on west"), "60 000");
    assert_eq!(row("lost, twice, out of order, changed"), "0, 0, 0, 0");
    assert_eq!(row("batches that arrived as they were compressed"), "120 of 120");
    assert_says(&outcome.stdout, &["kill -9", "Every record is on west once, in order, unchanged."]);
    assert_left_nothing(&place);
}

#[test]
fn a_demo_that_is_kept_answers_other_clients_until_it_is_interrupted() {
    let (mut running, place) = demo(&["--records", "6000", "--keep"]);
    running.wait_for_line("Ctrl-C ends everything", DEMO_DEADLINE);

    running.terminate();

    running.wait(AT_ONCE).expect_success();
    assert_left_nothing(&place);
}
