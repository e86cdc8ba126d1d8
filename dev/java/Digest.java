import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic with Java's own consumer and prints a SHA-256 per partition over everything but the offsets. */
public class Digest {
    static final String USAGE = """
        usage: Digest BOOTSTRAP TOPIC [--isolation read_committed|read_uncommitted] [--numbered] [--first 0]
                      [--expect RECORDS] [--any-time-type] [--timeout SECONDS]
        Reads each partition from its start to the end it had when this began. With --expect it goes on until the
        topic has that many records, then to the end as of then (so that surplus records show up too).
        --numbered checks the running numbers that Load wrote, starting at --first; exit code 3 when they do not fit.
        --any-time-type leaves out whether a timestamp is the producer's, the broker's or none.
        --timeout limits the whole run (default 120).""";

    public static void main(String[] arguments) {
        Options options = new Options(arguments, USAGE, 2, "numbered", "any-time-type");
        String bootstrap = options.at(0), topic = options.at(1);
        boolean numbered = options.flag("numbered"), anyType = options.flag("any-time-type");
        long first = options.number("first", 0), expect = options.number("expect", -1);
        long deadline = System.nanoTime() + options.number("timeout", 120) * 1_000_000_000L;
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", options.text("isolation", "read_committed"),
            "enable.auto.commit", false, "auto.offset.reset", "none", "fetch.max.bytes", 50 << 20,
            "max.partition.fetch.bytes", 4 << 20, "max.poll.records", 20_000, "allow.auto.create.topics", false);
        options.done();

        long total = 0;
        String violation = null;
        Map<Integer, RecordHash> hashes = new TreeMap<>();
        Map<Integer, Long> next = new HashMap<>();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = partitions(consumer, topic, deadline);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            for (TopicPartition one : all) {
                hashes.put(one.partition(), new RecordHash());
                next.put(one.partition(), first);
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            boolean sawExpected = expect < 0;
            while (true) {
                boolean atEnd = true;
                for (TopicPartition one : all) {
                    boolean done = consumer.position(one) >= ends.get(one);
                    if (done && !consumer.paused().contains(one)) consumer.pause(List.of(one));
                    atEnd &= done;
                }
                if (atEnd && sawExpected) break;
                if (atEnd) {
                    sawExpected = total >= expect;
                    ends = consumer.endOffsets(all);
                    consumer.resume(all);
                }
                if (System.nanoTime() > deadline) {
                    System.err.printf("digest: out of time after %d records of %s, positions %s, ends %s%n",
                        total, topic, positions(consumer, all), ends);
                    System.exit(1);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    // What arrived beyond the end is another run's business.
                    if (record.offset() >= ends.get(new TopicPartition(topic, record.partition())) && sawExpected) continue;
                    total++;
                    hashes.get(record.partition())
                        .add(anyType ? TimestampType.CREATE_TIME : record.timestampType(), record.timestamp(), record.key(),
                            record.value(), record.headers());
                    if (numbered && violation == null) violation = check(record, next);
                }
            }
        }
        StringBuilder out = new StringBuilder("{\"topic\":\"" + topic + "\",\"records\":" + total + ",\"violation\":");
        out.append(violation == null ? "null" : "\"" + violation.replace("\"", "'") + "\"").append(",\"partitions\":[");
        String comma = "\n";
        for (var entry : hashes.entrySet()) {
            long records = entry.getValue().records;
            out.append(comma).append(" {\"partition\":").append(entry.getKey()).append(",\"records\":").append(records)
                .append(",\"sha256\":\"").append(entry.getValue().hex()).append("\"}");
            comma = ",\n";
        }
        System.out.println(out.append("\n]}"));
        if (violation != null) {
            System.err.println("digest: " + violation);
            System.exit(3);
        }
    }

    private static List<TopicPartition> partitions(Consumer<?, ?> consumer, String topic, long deadline) {
        while (true) {
            List<PartitionInfo> known = consumer.partitionsFor(topic, Duration.ofSeconds(30));
            if (known != null && !known.isEmpty()) {
                return known.stream().map(one -> new TopicPartition(topic, one.partition())).toList();
            }
            if (System.nanoTime() > deadline) Options.fail("digest: there is no topic " + topic);
            try {
                Thread.sleep(100);
            } catch (InterruptedException fault) {
                throw new IllegalStateException(fault);
            }
        }
    }

    private static Map<TopicPartition, Long> positions(Consumer<?, ?> consumer, List<TopicPartition> all) {
        Map<TopicPartition, Long> found = new LinkedHashMap<>();
        for (TopicPartition one : all) found.put(one, consumer.position(one));
        return found;
    }

    /** Null when the record is the next one of its partition, else what is wrong with it. */
    private static String check(ConsumerRecord<byte[], byte[]> record, Map<Integer, Long> next) {
        String place = "partition " + record.partition() + " offset " + record.offset() + ": ";
        byte[] value = record.value();
        int[] at = {5};
        if (value == null || value.length < 12 || value[1] != '"' || value[2] != 'p') return place + "not a record of Load";
        long partition = number(value, at);
        at[0] += 5;
        long number = number(value, at);
        if (partition != record.partition()) return place + "belongs to partition " + partition;
        long expected = next.get(record.partition());
        next.put(record.partition(), number + 1);
        if (number > expected) return place + "gap, number " + expected + " expected, " + number + " found";
        if (number < expected) return place + "repeated or out of order, number " + expected + " expected, " + number + " found";
        return null;
    }

    private static long number(byte[] value, int[] at) {
        long number = 0;
        while (at[0] < value.length && value[at[0]] >= '0' && value[at[0]] <= '9') number = number * 10 + value[at[0]++] - '0';
        return number;
    }
}
