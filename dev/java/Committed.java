import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What a group of any protocol type has committed, beside the ends of the logs (the console tool wants consumers). */
public class Committed {
    static final String USAGE = """
        usage: Committed BOOTSTRAP GROUP TOPIC
        Prints the committed offset and the end offset of each partition of the topic that the group has committed.""";

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments, USAGE, 3);
        String bootstrap = options.at(0), group = options.at(1), topic = options.at(2);
        options.done();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Map<TopicPartition, OffsetAndMetadata> committed = new TreeMap<>(Comparator.comparing(TopicPartition::partition));
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(30, TimeUnit.SECONDS)
                .forEach((partition, offset) -> { if (partition.topic().equals(topic)) committed.put(partition, offset); });
            var ends = admin.listOffsets(committed.keySet().stream()
                .collect(Collectors.toMap(one -> one, one -> OffsetSpec.latest()))).all().get(30, TimeUnit.SECONDS);
            StringJoiner rows = new StringJoiner(",\n ", "{\"partitions\":[\n ", "\n]}");
            committed.forEach((partition, offset) -> rows.add(String.format(Locale.ROOT,
                "{\"partition\":%d,\"committed\":%d,\"end\":%d}",
                partition.partition(), offset.offset(), ends.get(partition).offset())));
            System.out.println(rows);
        }
    }
}
