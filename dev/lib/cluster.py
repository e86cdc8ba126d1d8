"""Real Kafka clusters on free loopback ports: start, stop, single brokers, topics.

A cluster is one JSON file in the cache plus one temporary folder. The file is written before the first process
starts and after every change, so a cluster whose starter was killed can still be stopped by name.
"""

import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
import base64

import wire
from common import Fault, alive, cache, end_process, is_kraft, java_command, libs, locked, need, parsed, say
from common import started_ticks, tail

# Below the kernel's range for outgoing connections, so that no client takes a stopped broker's port meanwhile.
PORTS = range(20_000, 32_000)
START_DEADLINE_S = 120


def state_folder():
    folder = cache() / "clusters"
    folder.mkdir(exist_ok=True)
    return folder


def state_lock():
    return locked(state_folder() / ".lock", 60)


def load(name):
    try:
        return json.loads((state_folder() / f"{name}.json").read_text())
    except FileNotFoundError:
        known = ", ".join(sorted(cluster["name"] for cluster in every())) or "none"
        raise Fault(f"no cluster named {name!r}; there are: {known}") from None


def save(cluster):
    path = state_folder() / f"{cluster['name']}.json"
    scratch = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
    scratch.write_text(json.dumps(cluster, indent=1))
    scratch.rename(path)


def every():
    found = []
    for path in sorted(state_folder().glob("*.json")):
        try:
            found.append(json.loads(path.read_text()))
        except FileNotFoundError:
            continue
    return found


def processes(cluster):
    """The brokers, and ZooKeeper where there is one."""
    return cluster["brokers"] + ([cluster["zookeeper"]] if cluster.get("zookeeper") else [])


def running(cluster):
    return [process for process in processes(cluster) if alive(process["pid"], process["ticks"])]


def public(cluster):
    """What is printed for people and tests; the rest is for these tools."""
    brokers = [{**{key: broker[key] for key in ("id", "port", "pid", "log", "config", "data")},
                "running": alive(broker["pid"], broker["ticks"])} for broker in cluster["brokers"]]
    shown = {key: cluster[key] for key in ("name", "version", "dir", "bootstrap")}
    return {**shown, "brokers": brokers, "libs": str(libs(cluster["version"]))}


def free_ports(count, taken):
    ports = []
    for port in random.sample(PORTS, len(PORTS)):
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise Fault(f"no {count} free loopback ports between {PORTS.start} and {PORTS.stop}")


def plan(version, count, name, overrides, owner):
    """Chooses name, ports and folder under the lock and writes the state file, before anything is started."""
    with state_lock():
        others = every()
        name = name or f"k{uuid.uuid4().hex[:8]}"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
            raise Fault(f"{name!r} is no name for a cluster: letters, digits, '-' and '_', at most 40")
        if any(other["name"] == name for other in others):
            raise Fault(f"there is a cluster named {name!r} already; stop it with: dev/kafka stop {name}")
        taken = {port for other in others for process in processes(other)
                 for port in (process["port"], process.get("controller_port"))}
        controllers = count if count >= 3 else 1
        ports = free_ports(count + min(3, controllers) + 1, taken)
        folder = tempfile.mkdtemp(prefix=f"towpath-kafka-{name}-")
        brokers = []
        for index in range(count):
            home = pathlib.Path(folder, f"broker-{index + 1}")
            (home / "data").mkdir(parents=True)
            brokers.append({
                "id": index + 1, "port": ports[index], "pid": 0, "ticks": None, "log": str(home / "broker.log"),
                "config": str(home / "server.properties"), "data": str(home / "data"),
                "controller_port": ports[count + index] if index < min(3, controllers) else None,
            })
        cluster = {
            "name": name, "version": version, "dir": folder, "brokers": brokers, "overrides": overrides,
            "bootstrap": ",".join(f"127.0.0.1:{broker['port']}" for broker in brokers),
            "zookeeper": None, "owner": [owner, started_ticks(owner)] if owner else None,
        }
        if not is_kraft(version):
            home = pathlib.Path(folder, "zookeeper")
            (home / "data").mkdir(parents=True)
            cluster["zookeeper"] = {"id": 0, "port": ports[-1], "pid": 0, "ticks": None, "data": str(home / "data"),
                                    "log": str(home / "zookeeper.log"), "config": str(home / "zoo.cfg")}
        save(cluster)
        return cluster


def broker_settings(cluster, broker):
    count = len(cluster["brokers"])
    version = parsed(cluster["version"])
    replicas = min(3, count)
    own = f"PLAINTEXT://127.0.0.1:{broker['port']}"
    settings = {
        "listeners": own,
        "advertised.listeners": own,
        "log.dirs": broker["data"],
        "broker.rack": f"rack-{broker['id']}",
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 5,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 5,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 2 if replicas == 3 else 1,
        # Test records may be dated years ago; time-based deletion would take them away during a test.
        "log.retention.ms": -1,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    if is_kraft(cluster["version"]):
        voters = [b for b in cluster["brokers"] if b["controller_port"]]
        settings |= {
            "node.id": broker["id"],
            "process.roles": "broker",
            "controller.quorum.voters": ",".join(f"{b['id']}@127.0.0.1:{b['controller_port']}" for b in voters),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
                                              "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        }
        if broker["controller_port"]:
            settings["process.roles"] = "broker,controller"
            settings["listeners"] += f",CONTROLLER://127.0.0.1:{broker['controller_port']}"
        if version >= (4, 0):
            settings["share.coordinator.state.topic.replication.factor"] = replicas
            settings["share.coordinator.state.topic.min.isr"] = 2 if replicas == 3 else 1
            settings["share.coordinator.state.topic.num.partitions"] = 5
    else:
        settings |= {
            "broker.id": broker["id"],
            "zookeeper.connect": f"127.0.0.1:{cluster['zookeeper']['port']}",
            "zookeeper.session.timeout.ms": 6000,
        }
    for key, value in cluster["overrides"].items():
        settings[key] = value.replace("{id}", str(broker["id"])).replace("{port}", str(broker["port"]))
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def launch(process, command, folder):
    """Starts a process in a session of its own, output to its log; the caller saves the new process id."""
    with open(process["log"], "ab") as log:
        child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 start_new_session=True)
    process["pid"], process["ticks"] = child.pid, started_ticks(child.pid)
    return child


def broker_command(cluster, broker):
    small = len(cluster["brokers"]) > 2
    options = ["-Xms128m" if small else "-Xms256m", "-Xmx640m" if small else "-Xmx1g", "-XX:+UseG1GC",
               "-XX:TieredStopAtLevel=4", "-Djava.awt.headless=true", f"-Dkafka.logs.dir={cluster['dir']}"]
    return java_command(cluster["version"], "kafka.Kafka", [broker["config"]], options, "info")


def died(what, process):
    return Fault(f"{what} ended by itself; the end of its log {process['log']}:\n{tail(process['log'])}")


def wait_for_port(what, process, end):
    while True:
        if not alive(process["pid"], process["ticks"]):
            raise died(what, process)
        try:
            socket.create_connection(("127.0.0.1", process["port"]), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise Fault(f"{what} does not listen after {START_DEADLINE_S} s; the end of its log:\n"
                            f"{tail(process['log'])}") from None
            time.sleep(0.05)


def wait_until_ready(cluster, brokers, end):
    """Each of `brokers` answers, and names every broker of the cluster that should be up."""
    expected = {broker["id"] for broker in cluster["brokers"] if alive(broker["pid"], broker["ticks"])}
    for broker in brokers:
        what = f"broker {broker['id']} of {cluster['name']} (Kafka {cluster['version']})"
        wait_for_port(what, broker, end)
        seen = "nothing"
        while True:
            if not alive(broker["pid"], broker["ticks"]):
                raise died(what, broker)
            try:
                seen = set(wire.metadata(f"127.0.0.1:{broker['port']}", timeout=5)["brokers"])
                if expected <= seen:
                    break
            except (OSError, ValueError, IndexError):
                pass
            if time.monotonic() > end:
                raise Fault(f"{what} does not know all of the brokers {sorted(expected)} after {START_DEADLINE_S} s,"
                            f" only {seen}; the end of its log:\n{tail(broker['log'])}")
            time.sleep(0.05)


def format_storage(cluster):
    """Writes the KRaft identity of every broker, all at the same time."""
    identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if identity.startswith("-"):
        identity = "A" + identity[1:]
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"]
    running_tools = []
    for broker in cluster["brokers"]:
        command = java_command(cluster["version"], "kafka.tools.StorageTool",
                               ["format", "-t", identity, "-c", broker["config"]], quick)
        log = open(broker["log"], "ab")
        running_tools.append((broker, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)))
        log.close()
    failed = None
    for broker, tool in running_tools:
        try:
            if tool.wait(timeout=60) != 0:
                failed = broker
        except subprocess.TimeoutExpired:
            tool.kill()
            tool.wait()
            failed = broker
    if failed:
        raise Fault(f"the storage of broker {failed['id']} could not be formatted:\n{tail(failed['log'])}")


def start(version, count, name=None, overrides=None, owner=None):
    if not 1 <= count <= 9:
        raise Fault("--brokers takes 1 to 9")
    need("java")
    libs(version)
    reap_orphans()
    for attempt in (1, 2, 3):
        cluster = plan(version, count, name, overrides or {}, owner)
        try:
            bring_up(cluster)
            return cluster
        except BaseException as fault:
            logs = "".join(tail(process["log"], 60) for process in processes(cluster))
            remove(cluster)
            # Somebody else took the port between the look and the bind: choose again.
            if not (isinstance(fault, Fault) and "Address already in use" in logs and attempt < 3):
                raise
            say(f"a port was taken meanwhile, trying other ones ({attempt} of 3)")
    raise AssertionError("unreachable: the last attempt returns or raises")


def bring_up(cluster):
    end = time.monotonic() + START_DEADLINE_S
    for broker in cluster["brokers"]:
        pathlib.Path(broker["config"]).write_text(broker_settings(cluster, broker))
    keeper = cluster["zookeeper"]
    if keeper:
        pathlib.Path(keeper["config"]).write_text(
            f"dataDir={keeper['data']}\nclientPort={keeper['port']}\nclientPortAddress=127.0.0.1\ntickTime=2000\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n")
        launch(keeper, java_command(cluster["version"], "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                                    [keeper["config"]], ["-Xmx256m", "-XX:+UseSerialGC"], "info"), cluster["dir"])
        save(cluster)
        wait_for_port("ZooKeeper", keeper, end)
    else:
        format_storage(cluster)
    for broker in cluster["brokers"]:
        launch(broker, broker_command(cluster, broker), cluster["dir"])
        save(cluster)
    wait_until_ready(cluster, cluster["brokers"], end)


def remove(cluster):
    """Ends every process of a cluster and forgets it. The data goes away too, so nobody is asked politely."""
    for process in processes(cluster):
        end_process(process["pid"], process["ticks"], kill=True)
    shutil.rmtree(cluster["dir"], ignore_errors=True)
    with state_lock():
        (state_folder() / f"{cluster['name']}.json").unlink(missing_ok=True)


def reap_orphans():
    """Removes clusters whose owner (a test run that was itself killed) is gone."""
    for cluster in every():
        if cluster.get("owner") and not alive(*cluster["owner"]):
            say(f"removing cluster {cluster['name']}: the process that owned it is gone")
            remove(cluster)


def one_broker(cluster, number):
    for broker in cluster["brokers"]:
        if broker["id"] == number:
            return broker
    raise Fault(f"cluster {cluster['name']} has no broker {number}")


def stop_broker(name, number, kill):
    cluster = load(name)
    broker = one_broker(cluster, number)
    if not alive(broker["pid"], broker["ticks"]):
        raise Fault(f"broker {number} of {name} is not running")
    if not end_process(broker["pid"], broker["ticks"], kill):
        say(f"broker {number} of {name} did not stop within 30 s and was killed")


def start_broker(name, number):
    cluster = load(name)
    broker = one_broker(cluster, number)
    if alive(broker["pid"], broker["ticks"]):
        raise Fault(f"broker {number} of {name} is running already")
    launch(broker, broker_command(cluster, broker), cluster["dir"])
    with state_lock():
        fresh = load(name)
        one_broker(fresh, number).update(pid=broker["pid"], ticks=broker["ticks"])
        save(fresh)
    wait_until_ready(fresh, [one_broker(fresh, number)], time.monotonic() + START_DEADLINE_S)
    return fresh


def address_of(target):
    """A cluster's name, or an address as it is."""
    if ":" in target:
        return target.split(",")[0]
    cluster = load(target)
    for broker in cluster["brokers"]:
        if alive(broker["pid"], broker["ticks"]):
            return f"127.0.0.1:{broker['port']}"
    raise Fault(f"no broker of {target} is running")


def check(results):
    for name, error, message in results:
        if error:
            raise Fault(f"topic {name}: error code {error}{': ' + message if message else ''}")


def create_topic(target, topic, partitions, replicas, config):
    address = address_of(target)
    replicas = replicas or min(3, len(wire.metadata(address)["brokers"]))
    check(wire.create_topic(address, topic, partitions, replicas, config))
    wait_for_leaders(address, topic, partitions)


def grow_topic(target, topic, partitions):
    address = address_of(target)
    check(wire.grow_topic(address, topic, partitions))
    wait_for_leaders(address, topic, partitions)


def leads(broker, topic):
    known = wire.metadata(broker, [topic])
    mine = [number for number, part in known["topics"][topic]["partitions"].items()
            if known["brokers"].get(part["leader"]) == broker]
    return not mine or set(wire.end_offsets(broker, topic, mine)) == set(mine)


def wait_for_leaders(address, topic, partitions):
    """Until every broker names a leader for every partition, and each leader answers for its own.

    The controller announces leaders before they have opened their logs; a request in between gets an error.
    """
    end = time.monotonic() + 30
    waiting = set(wire.metadata(address)["brokers"].values())
    while waiting:
        for broker in sorted(waiting):
            known = wire.metadata(broker, [topic])["topics"].get(topic, {"partitions": {}})["partitions"]
            if len(known) >= partitions and all(part["leader"] >= 0 for part in known.values()) and leads(broker, topic):
                waiting.discard(broker)
        if waiting and time.monotonic() > end:
            raise Fault(f"topic {topic} has no leaders on {sorted(waiting)} after 30 s")
        if waiting:
            time.sleep(0.05)
