import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Records that a replicator may get wrong: nulls, empties, repeated headers, odd timestamps, large and Unicode content. */
public class Tricky {
    static final String USAGE = "usage: Tricky BOOTSTRAP TOPIC [--codec none] [--partitions 3] [--rounds 20] [--seed 1] [--no-big]";

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments, USAGE, 2, "no-big");
        String bootstrap = options.at(0), topic = options.at(1);
        int partitions = (int) options.number("partitions", 3), rounds = (int) options.number("rounds", 20);
        boolean big = !options.flag("no-big");
        Random random = new Random(options.number("seed", 1));
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "acks", "all", "linger.ms", 20,
            "compression.type", options.text("codec", "none"), "delivery.timeout.ms", 120_000);
        options.done();
        Load.createIfMissing(bootstrap, topic, partitions);

        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int round = 0; round < rounds; round++) {
                for (int partition = 0; partition < partitions; partition++) {
                    // Equal within a round, and every other round lies before the one that went ahead of it.
                    long time = 1_556_000_000_000L + (round % 2 == 0 ? round : -round) * 60_000L;
                    for (ProducerRecord<byte[], byte[]> record : cases(topic, partition, time, random)) {
                        sent.add(producer.send(record));
                    }
                    if (big && round % 10 == 0) {
                        byte[] noise = new byte[900 * 1024];
                        random.nextBytes(noise);
                        sent.add(producer.send(new ProducerRecord<>(topic, partition, time, bytes("noise"), noise)));
                        byte[] even = new byte[900 * 1024];
                        Arrays.fill(even, (byte) 'e');
                        sent.add(producer.send(new ProducerRecord<>(topic, partition, time + 1, bytes("even"), even)));
                    }
                }
                // Batches of different sizes, also of a single record.
                if (round % 3 == 0) producer.flush();
            }
        }
        for (Future<RecordMetadata> one : sent) one.get();
        System.out.printf("{\"records\":%d}%n", sent.size());
    }

    static List<ProducerRecord<byte[], byte[]>> cases(String topic, int partition, long time, Random random) {
        List<ProducerRecord<byte[], byte[]>> all = new ArrayList<>();
        byte[] some = new byte[random.nextInt(200)];
        random.nextBytes(some);
        all.add(record(topic, partition, time, null, null));
        all.add(record(topic, partition, time, null, some));
        all.add(record(topic, partition, time, bytes("tombstone"), null));
        all.add(record(topic, partition, time, new byte[0], new byte[0]));
        all.add(record(topic, partition, time, some, bytes("binary key")));
        all.add(record(topic, partition, time - 3_600_000, bytes("an hour before"), bytes("its neighbours")));
        all.add(record(topic, partition, time + 86_400_000, bytes("a day after"), bytes("its neighbours")));
        all.add(record(topic, partition, 0, bytes("at the epoch"), bytes("1970")));
        all.add(record(topic, partition, time, bytes("Größe-尺寸-размер-📏"), bytes("Zürich e\u0301 \u0000 \uFFFD 👩‍👩‍👧 \r\n\t")));
        all.add(record(topic, partition, time, bytes("headers"), bytes("repeated, in order"),
            "trace", "1", "other", "x", "trace", "2", "trace", "1", "Trace", "3"));
        all.add(record(topic, partition, time, bytes("headers"), bytes("empty and null"),
            "empty", "", "null", null, "", "empty key", "", null, "ключ-🔑", "значение"));
        String[] many = new String[200];
        for (int at = 0; at < many.length; at += 2) {
            many[at] = "h" + at % 14;
            many[at + 1] = "v" + at;
        }
        all.add(record(topic, partition, time, bytes("headers"), bytes("a hundred of them"), many));
        return all;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, long time, byte[] key, byte[] value, String... headers) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, time, key, value);
        for (int at = 0; at < headers.length; at += 2) {
            record.headers().add(new RecordHeader(headers[at], headers[at + 1] == null ? null : bytes(headers[at + 1])));
        }
        return record;
    }

    static byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }
}
