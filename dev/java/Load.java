import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A bounded load: JSON records of about 300 bytes by Java's own producer, spread evenly over the partitions.
 * Each record starts with its partition and a number that runs without gaps there: {"p":3,"n":17,…
 */
public class Load {
    static final String USAGE = """
        usage: Load BOOTSTRAP TOPIC RECORDS [--codec none|gzip|snappy|lz4|zstd] [--partitions 8] [--batch 16384]
                    [--linger 5] [--start-ms TIME] [--rate RECORDS_PER_SECOND] [--seed 1] [--first 0]
                    [--set KEY=VALUE,...]
        --first N numbers the records of each partition from N on, to continue an earlier load.
        The topic is created when missing.""";
    static final String[] ACTIONS = {"view", "click", "search", "add_to_cart", "checkout", "refund", "login", "logout"};
    static final String[] WORDS = ("tow path lock barge canal rope horse bridge weir basin wharf tunnel aqueduct "
        + "lengthsman gauge winding hole cargo coal timber grain stone brick salt slate").split(" ");

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments, USAGE, 3);
        String bootstrap = options.at(0), topic = options.at(1);
        long records = options.numberAt(2), rate = options.number("rate", 0), first = options.number("first", 0);
        int partitions = (int) options.number("partitions", 8);
        long start = options.number("start-ms", System.currentTimeMillis() - records / 50);
        SplittableRandom random = new SplittableRandom(options.number("seed", 1));
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", options.text("codec", "lz4"));
        settings.put("batch.size", (int) options.number("batch", 16384));
        settings.put("linger.ms", (int) options.number("linger", 5));
        settings.put("acks", "all");
        settings.put("buffer.memory", 64L << 20);
        settings.put("delivery.timeout.ms", 120_000);
        for (String pair : options.text("set", "").split(",")) {
            if (!pair.isEmpty()) settings.put(pair.split("=", 2)[0], pair.split("=", 2)[1]);
        }
        options.done();
        createIfMissing(bootstrap, topic, partitions);

        AtomicReference<Exception> failure = new AtomicReference<>();
        Callback onSent = (metadata, fault) -> {
            if (fault != null) failure.compareAndSet(null, fault);
        };
        Line line = new Line();
        long bytes = 0, began = System.nanoTime();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long index = 0; index < records && failure.get() == null; index++) {
                int partition = (int) (index % partitions);
                int user = random.nextInt(100_000);
                byte[] value = line.json(partition, first + index / partitions, start + index / 50, user, random);
                bytes += value.length;
                producer.send(new ProducerRecord<>(topic, partition, start + index / 50, Line.key(user), value), onSent);
                if (rate > 0 && index % Math.max(1, rate / 100) == 0) {
                    long ahead = (long) (index * 1e9 / rate) - (System.nanoTime() - began);
                    if (ahead > 0) Thread.sleep(ahead / 1_000_000, (int) (ahead % 1_000_000));
                }
            }
        }
        if (failure.get() != null) {
            System.err.println("load failed: " + failure.get());
            System.exit(1);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf(Locale.ROOT, "{\"records\":%d,\"bytes\":%d,\"seconds\":%.2f,\"records_per_second\":%.0f}%n",
            records, bytes, seconds, records / seconds);
    }

    static void createIfMissing(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
        } catch (ExecutionException fault) {
            if (!(fault.getCause() instanceof TopicExistsException)) throw fault;
        }
    }

    /** Builds JSON into one buffer; String.format would be the slowest part of the load. */
    static final class Line {
        private final byte[] buffer = new byte[512];
        private int at;

        static byte[] key(int user) { return ("user-" + user).getBytes(StandardCharsets.US_ASCII); }

        byte[] json(int partition, long number, long time, int user, SplittableRandom random) {
            at = 0;
            text("{\"p\":").number(partition).text(",\"n\":").number(number).text(",\"time\":").number(time);
            text(",\"user\":\"user-").number(user).text("\",\"session\":\"").hex(random.nextLong());
            text("\",\"action\":\"").text(ACTIONS[random.nextInt(ACTIONS.length)]);
            text("\",\"url\":\"https://shop.example.com/").word(random).text("/").word(random).text("/");
            number(random.nextInt(10_000)).text("\",\"amount\":").number(random.nextInt(500)).text(".");
            number(10 + random.nextInt(90)).text(",\"currency\":\"EUR\",\"trace\":\"").hex(random.nextLong());
            text("\",\"note\":\"");
            while (at < 285) word(random).text(" ");
            text("\"}");
            return Arrays.copyOf(buffer, at);
        }

        private Line word(SplittableRandom random) { return text(WORDS[random.nextInt(WORDS.length)]); }

        @SuppressWarnings("deprecation") // the one that copies ASCII without allocating
        private Line text(String text) {
            text.getBytes(0, text.length(), buffer, at);
            at += text.length();
            return this;
        }

        private Line number(long value) {
            int digits = 1;
            for (long rest = value; rest >= 10; rest /= 10) digits++;
            for (int place = at + digits - 1; place >= at; place--, value /= 10) buffer[place] = (byte) ('0' + value % 10);
            at += digits;
            return this;
        }

        private Line hex(long value) {
            for (int shift = 60; shift >= 0; shift -= 4) buffer[at++] = (byte) "0123456789abcdef".charAt((int) (value >>> shift) & 15);
            return this;
        }
    }
}
