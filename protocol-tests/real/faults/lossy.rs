//! A path to the target that cuts, delays and silences connections.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use super::bench::{Logs, Mirror, Moments, assert_copied, peak, wait_for, wait_for_growth};
use super::proxy::Proxy;
use crate::real::kafka::Cluster;

const PATIENCE: Duration = Duration::from_secs(60);
const LOSSY_TIME: Duration = Duration::from_secs(40);
const MEMORY_MAX: u64 = 150 << 20;

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_lossy_path_to_the_target() {
    let source = Cluster::start("4.3.1", 1);
    let [lossy, controller] = [(); 2].map(|()| free_port());
    let proxy = Proxy::start(lossy, Moments::new());
    let listeners = format!(
        "listeners=PLAINTEXT://127.0.0.1:{{port}},LOSSY://127.0.0.1:{lossy},CONTROLLER://127.0.0.1:{controller}"
    );
    let advertised = format!("advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},LOSSY://127.0.0.1:{}", proxy.port());
    let voters = format!("controller.quorum.voters=1@127.0.0.1:{controller}");
    let protocols = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOSSY:PLAINTEXT";
    let target = Cluster::start_with("4.3.1", 1, &[&listeners, &advertised, &voters, protocols]);
    source.create_topic("load", 6, &[]);
    let loading = source.keep_loading("load", 6, 5000, &[]);
    // Deadlines that end a silence within the test.
    let settings = [
        "B.producer.request.timeout.ms = 5000",
        "B.admin.request.timeout.ms = 5000",
        "towpath.memory.bytes = 33554432",
    ];
    let mirror = Mirror::new(&source.bootstrap, &format!("127.0.0.1:{}", proxy.port()), &settings);
    let copies = Logs::of(&target, "A.load");
    let mut worker = mirror.start("state");
    wait_for_growth(&copies, PATIENCE);

    proxy.set_lossy(true);
    std::thread::sleep(LOSSY_TIME);
    // Which partition gets a whole request through is chance: most connections end before they have passed a megabyte.
    let bytes = copies.bytes();
    wait_for("growth on the lossy path", PATIENCE, || copies.bytes() > bytes);
    let (cuts, silences) = proxy.faults();
    proxy.set_lossy(false);

    println!("{cuts} connections cut, {silences} silenced");
    assert!(cuts >= 20 && silences >= 1, "the path was too good: {cuts} cuts, {silences} silences");
    wait_for_growth(&copies, PATIENCE);
    drop(loading);
    assert_copied(&source, &target, "load");
    assert!(worker.is_running(), "{}", worker.stderr());
    let peak_bytes = peak(worker.id());
    println!("peak memory {} MB", peak_bytes >> 20);
    assert!(peak_bytes < MEMORY_MAX, "{peak_bytes} bytes");
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|bound| bound.local_addr()).expect("a free port").port()
}
