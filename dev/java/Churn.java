import java.util.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes until it is killed, whatever the brokers do: a producer that fails is replaced by another one.
 * What the log holds in the end is all that counts; nothing is promised about what was sent.
 */
public class Churn {
    static final String USAGE = """
        usage: Churn BOOTSTRAP TOPIC [--kind idempotent|plain|transactional] [--partitions 4] [--rate RECORDS_PER_SECOND]
                     [--start-ms TIME] [--codec lz4] [--seed 1]
        Transactions take up to a second; a third of them is aborted. --start-ms is the time of the first record, a
        record a millisecond from there on (default: the time of day).""";

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments, USAGE, 2);
        String bootstrap = options.at(0), topic = options.at(1), kind = options.text("kind", "idempotent");
        int partitions = (int) options.number("partitions", 4);
        long rate = options.number("rate", 300), start = options.number("start-ms", -1);
        SplittableRandom random = new SplittableRandom(options.number("seed", 1));
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all", "linger.ms", 20,
            "compression.type", options.text("codec", "lz4"), "delivery.timeout.ms", 20_000, "request.timeout.ms", 8_000,
            "max.block.ms", 20_000, "retry.backoff.max.ms", 500, "reconnect.backoff.max.ms", 500));
        settings.put("enable.idempotence", !kind.equals("plain"));
        boolean transactional = kind.equals("transactional");
        if (transactional) {
            settings.put("transactional.id", topic + "-churn");
            settings.put("transaction.timeout.ms", 15_000);
        }
        options.done();
        AtomicLong failures = new AtomicLong();
        long number = 0;
        while (true) {
            try (var producer = new KafkaProducer<byte[], byte[]>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
                if (transactional) producer.initTransactions();
                long failed = failures.get();
                while (failures.get() == failed) {
                    if (transactional) producer.beginTransaction();
                    long count = 1 + random.nextLong(Math.max(2, rate));
                    for (long sent = 0; sent < count; sent++, number++) {
                        long time = start < 0 ? System.currentTimeMillis() : start + number;
                        byte[] key = Long.toString(random.nextInt(1000)).getBytes();
                        byte[] value = (kind + " " + number + " " + Long.toHexString(random.nextLong()).repeat(1 + random.nextInt(30))).getBytes();
                        producer.send(new ProducerRecord<>(topic, random.nextInt(partitions), time, key, value), (metadata, fault) -> {
                            if (fault != null) failures.incrementAndGet();
                        });
                        if (sent % 10 == 9) Thread.sleep(Math.max(1, 10_000 / rate));
                    }
                    if (!transactional) continue;
                    if (random.nextInt(3) == 0) producer.abortTransaction();
                    else producer.commitTransaction();
                }
            } catch (KafkaException fault) {
                System.err.println("churn " + topic + " begins anew: " + fault);
                Thread.sleep(200);
            }
        }
    }
}
