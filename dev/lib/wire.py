"""A handful of Kafka requests, written by hand so that no client library stands between a tool and the broker.

Only versions without tagged fields are used; every broker from 0.11 to 4.3 speaks them.
"""

import socket
import struct

METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS = 3, 19, 20, 21, 37
EARLIEST, LATEST = -2, -1


class Answer:
    """Reads a response body front to back."""

    def __init__(self, body):
        self.body, self.at = body, 0

    def take(self, form):
        (value,) = struct.unpack_from(">" + form, self.body, self.at)
        self.at += struct.calcsize(">" + form)
        return value

    def text(self):
        length = self.take("h")
        if length < 0:
            return None
        self.at += length
        return self.body[self.at - length:self.at].decode()

    def array(self, item):
        return [item() for _ in range(max(0, self.take("i")))]


def text(value):
    if value is None:
        return struct.pack(">h", -1)
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def array(items):
    return struct.pack(">i", len(items)) + b"".join(items)


def ask(address, api_key, version, body, timeout=10):
    """One request on a connection of its own; raises OSError when there is no whole answer in time."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhi", api_key, version, 7) + text("towpath-dev") + body
    with socket.create_connection((host, int(port)), timeout=timeout) as link:
        link.settimeout(timeout)
        link.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", exactly(link, 4))
        answer = Answer(exactly(link, size))
    if answer.take("i") != 7:
        raise OSError("answer to another request")
    return answer


def exactly(link, size):
    parts = []
    while size:
        part = link.recv(size)
        if not part:
            raise OSError("connection closed in the middle of an answer")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def metadata(address, topics=(), timeout=10):
    """`{"brokers": {id: "host:port"}, "controller": id, "topics": {name: {"error", "partitions": {…}}}}`.

    `topics=None` asks for all.
    """
    names = struct.pack(">i", -1) if topics is None else array([text(name) for name in topics])
    answer = ask(address, METADATA, 4, names + b"\0", timeout)
    answer.take("i")

    def broker():
        node, host, port = answer.take("i"), answer.text(), answer.take("i")
        answer.text()
        return node, f"{host}:{port}"

    def partition():
        error, number, leader = answer.take("h"), answer.take("i"), answer.take("i")
        replicas = answer.array(lambda: answer.take("i"))
        in_sync = answer.array(lambda: answer.take("i"))
        return number, {"error": error, "leader": leader, "replicas": replicas, "isr": in_sync}

    def topic():
        error, name, internal = answer.take("h"), answer.text(), answer.take("b")
        partitions = dict(sorted(answer.array(partition)))
        return name, {"error": error, "internal": bool(internal), "partitions": partitions}

    brokers = dict(sorted(answer.array(broker)))
    answer.text()
    controller = answer.take("i")
    return {"brokers": brokers, "controller": controller, "topics": dict(sorted(answer.array(topic)))}


def to_controller(address, api_key, version, body):
    """Asks the controller, which ZooKeeper brokers insist on; returns `[(name, error code, message)]`."""
    known = metadata(address)
    answer = ask(known["brokers"].get(known["controller"], address), api_key, version, body, 40)
    answer.take("i")
    with_message = api_key != DELETE_TOPICS
    return answer.array(lambda: (answer.text(), answer.take("h"), answer.text() if with_message else None))


def create_topic(address, name, partitions, replicas, config):
    settings = array([text(key) + text(value) for key, value in config.items()])
    topic = text(name) + struct.pack(">ih", partitions, replicas) + array([]) + settings
    return to_controller(address, CREATE_TOPICS, 2, array([topic]) + struct.pack(">i?", 30_000, False))


def delete_topic(address, name):
    return to_controller(address, DELETE_TOPICS, 1, array([text(name)]) + struct.pack(">i", 30_000))


def grow_topic(address, name, partitions):
    topic = text(name) + struct.pack(">ii", partitions, -1)
    return to_controller(address, CREATE_PARTITIONS, 0, array([topic]) + struct.pack(">i?", 30_000, False))


def produce(address, topic, partition, batch):
    """Sends one encoded record batch to a partition's leader; returns its base offset."""
    known = metadata(address, [topic])
    leader = known["topics"][topic]["partitions"][partition]["leader"]
    records = struct.pack(">i", len(batch)) + batch
    body = text(None) + struct.pack(">hi", -1, 30_000)
    body += array([text(topic) + array([struct.pack(">i", partition) + records])])
    answer = ask(known["brokers"][leader], 0, 3, body, 40)
    [[(_, error, offset)]] = answer.array(lambda: (answer.text(), answer.array(
        lambda: (answer.take("i"), answer.take("h"), answer.take("q"), answer.take("q"))[:3]))[1])
    if error:
        raise OSError(f"the broker refused the batch with error code {error}")
    return offset


def end_offsets(address, topic, partitions, isolation=0, which=LATEST):
    """`{partition: end offset}` from a leader; with isolation 1 the last stable offset, with EARLIEST the first offset.

    Errors are left out.
    """
    asked = array([struct.pack(">iq", number, which) for number in partitions])
    answer = ask(address, 2, 2, struct.pack(">ib", -1, isolation) + array([text(topic) + asked]))
    answer.take("i")
    found = {}

    def partition():
        number, error, _, offset = answer.take("i"), answer.take("h"), answer.take("q"), answer.take("q")
        if error == 0:
            found[number] = offset

    answer.array(lambda: (answer.text(), answer.array(partition)))
    return found


def delete_records(address, topic, partition, before):
    """Deletes the records before an offset; returns where the log begins now."""
    known = metadata(address, [topic])
    leader = known["topics"][topic]["partitions"][partition]["leader"]
    body = array([text(topic) + array([struct.pack(">iq", partition, before)])]) + struct.pack(">i", 30_000)
    answer = ask(known["brokers"][leader], DELETE_RECORDS, 0, body, 40)
    answer.take("i")
    [[(_, start, error)]] = answer.array(lambda: (answer.text(), answer.array(
        lambda: (answer.take("i"), answer.take("q"), answer.take("h"))))[1])
    if error:
        raise OSError(f"the broker refused to delete records with error code {error}")
    return start
