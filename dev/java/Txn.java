import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Two transactional producers and a plain one write into the same partitions, interleaved. Prints, in the form of Digest,
 * what a read_committed consumer must see. The order is known because each group is flushed before the next one.
 */
public class Txn {
    static final String USAGE = """
        usage: Txn BOOTSTRAP TOPIC [--codec none] [--partitions 3] [--rounds 30] [--group 20] [--seed 1] [--open]
                   [--open-timeout-ms 900000]
               Txn BOOTSTRAP TOPIC --end-open
        --open leaves one transaction hanging: the process halts in the middle of it.
        --end-open aborts that one, by a producer with the same transactional id.""";

    record Sent(int partition, long offset, long time, byte[] key, byte[] value) {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments, USAGE, 2, "open", "end-open");
        String bootstrap = options.at(0), topic = options.at(1), codec = options.text("codec", "none");
        int partitions = (int) options.number("partitions", 3), rounds = (int) options.number("rounds", 30);
        int group = (int) options.number("group", 20);
        int openTimeout = (int) options.number("open-timeout-ms", 900_000);
        boolean open = options.flag("open"), endOpen = options.flag("end-open");
        Random random = new Random(options.number("seed", 1));
        options.done();
        if (endOpen) {
            try (var producer = producer(bootstrap, codec, topic + "-open", openTimeout)) {
                producer.initTransactions();
            }
            System.out.println("{\"ended\":true}");
            return;
        }
        Load.createIfMissing(bootstrap, topic, partitions);

        List<Sent> visible = new ArrayList<>();
        var first = producer(bootstrap, codec, topic + "-a", 60_000);
        var second = producer(bootstrap, codec, topic + "-b", 60_000);
        var plain = producer(bootstrap, codec, null, 0);
        first.initTransactions();
        second.initTransactions();
        int committed = 0, aborted = 0, number = 0;
        for (int round = 0; round < rounds; round++) {
            List<Sent> ofFirst = new ArrayList<>(), ofSecond = new ArrayList<>();
            first.beginTransaction();
            second.beginTransaction();
            for (int step = 0; step < 3; step++) {
                ofFirst.addAll(send(first, topic, partitions, group, "a", number++, random));
                if (random.nextBoolean()) visible.addAll(send(plain, topic, partitions, 1 + random.nextInt(group), "p", number++, random));
                ofSecond.addAll(send(second, topic, partitions, 1 + random.nextInt(group), "b", number++, random));
            }
            for (var one : List.of(Map.entry(first, ofFirst), Map.entry(second, ofSecond))) {
                if (random.nextInt(3) == 0) {
                    one.getKey().abortTransaction();
                    aborted++;
                } else {
                    one.getKey().commitTransaction();
                    visible.addAll(one.getValue());
                    committed++;
                }
            }
        }
        long[] stable = new long[partitions];
        Arrays.fill(stable, Long.MAX_VALUE);
        if (open) {
            var hanging = producer(bootstrap, codec, topic + "-open", openTimeout);
            hanging.initTransactions();
            hanging.beginTransaction();
            // Partition 0 stays without it and must be readable to its end.
            for (Sent one : send(hanging, topic, partitions, group, "open", number++, random, partitions > 1 ? 1 : 0)) {
                stable[one.partition()] = Math.min(stable[one.partition()], one.offset());
            }
            visible.addAll(send(plain, topic, partitions, group, "after", number++, random));
            first.beginTransaction();
            visible.addAll(send(first, topic, partitions, group, "after", number++, random));
            first.commitTransaction();
        }

        visible.sort(Comparator.comparingInt(Sent::partition).thenComparingLong(Sent::offset));
        StringBuilder parts = new StringBuilder();
        long total = 0;
        for (int partition = 0; partition < partitions; partition++) {
            RecordHash hash = new RecordHash();
            for (Sent one : visible) {
                if (one.partition() != partition || one.offset() >= stable[partition]) continue;
                hash.add(TimestampType.CREATE_TIME, one.time(), one.key(), one.value(), new ProducerRecord<>(topic, one.value()).headers());
            }
            total += hash.records;
            String until = stable[partition] == Long.MAX_VALUE ? "null" : "" + stable[partition];
            parts.append(partition == 0 ? "\n" : ",\n").append(" {\"partition\":" + partition + ",\"records\":" + hash.records
                + ",\"sha256\":\"" + hash.hex() + "\",\"open_from\":" + until + "}");
        }
        System.out.println("{\"topic\":\"" + topic + "\",\"records\":" + total + ",\"committed\":" + committed + ",\"aborted\":" + aborted
            + ",\"open\":" + open + ",\"violation\":null,\"partitions\":[" + parts + "\n]}");
        System.out.flush();
        // No close: closing would abort the open transaction.
        if (open) Runtime.getRuntime().halt(0);
        first.close();
        second.close();
        plain.close();
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String codec, String id, int timeout) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "acks", "all",
            "linger.ms", 10, "delivery.timeout.ms", 60_000, "request.timeout.ms", 20_000));
        if (id != null) {
            settings.put("transactional.id", id);
            settings.put("transaction.timeout.ms", timeout);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static List<Sent> send(KafkaProducer<byte[], byte[]> producer, String topic, int partitions, int count, String who, int number, Random random)
            throws Exception {
        return send(producer, topic, partitions, count, who, number, random, 0);
    }

    static List<Sent> send(KafkaProducer<byte[], byte[]> producer, String topic, int partitions, int count, String who, int number,
            Random random, int firstPartition) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        for (int partition = firstPartition; partition < partitions; partition++) {
            for (int index = 0; index < count; index++) {
                byte[] value = Tricky.bytes(who + " group " + number + " record " + index + " " + Long.toHexString(random.nextLong()));
                records.add(new ProducerRecord<>(topic, partition, 1_600_000_000_000L + number * 1000L + index, Tricky.bytes(who), value));
                answers.add(producer.send(records.get(records.size() - 1)));
            }
        }
        producer.flush();
        List<Sent> sent = new ArrayList<>();
        for (int at = 0; at < records.size(); at++) {
            ProducerRecord<byte[], byte[]> record = records.get(at);
            sent.add(new Sent(record.partition(), answers.get(at).get().offset(), record.timestamp(), record.key(), record.value()));
        }
        return sent;
    }
}
