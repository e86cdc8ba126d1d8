import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.record.TimestampType;

/** SHA-256 over a partition's records in order: timestamp with its type, key, value, headers; offsets are left out. */
final class RecordHash {
    private final MessageDigest digest;
    private final ByteBuffer fixed = ByteBuffer.allocate(13);
    long records;

    RecordHash() {
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException fault) {
            throw new IllegalStateException("every Java has SHA-256", fault);
        }
    }

    void add(TimestampType type, long timestamp, byte[] key, byte[] value, Headers headers) {
        fixed.clear().put((byte) type.id).putLong(timestamp);
        digest.update(fixed.array(), 0, 9);
        bytes(key);
        bytes(value);
        Header[] all = headers.toArray();
        number(all.length);
        for (Header header : all) {
            bytes(header.key().getBytes(StandardCharsets.UTF_8));
            bytes(header.value());
        }
        records++;
    }

    private void number(int value) {
        fixed.clear().putInt(value);
        digest.update(fixed.array(), 0, 4);
    }

    private void bytes(byte[] value) {
        number(value == null ? -1 : value.length);
        if (value != null) digest.update(value);
    }

    String hex() { return HexFormat.of().formatHex(digest.digest()); }
}
