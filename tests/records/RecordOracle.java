import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;

/** Kafka's own record classes as an oracle: "write FOLDER" makes one file per kind of batch, "read FILE..." lists records. */
public class RecordOracle {
    private static final long NOW = 1_760_000_000_000L;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            write(Path.of(args[1]));
        } else {
            for (int i = 1; i < args.length; i++) {
                list(Path.of(args[i]));
            }
        }
    }

    private static void write(Path folder) throws Exception {
        for (CompressionType type : CompressionType.values()) {
            for (TimestampType stamp : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), (byte) 2,
                        Compression.of(type).build(), stamp, 1000L, NOW + 5);
                fill(builder, 1000L, 300);
                save(folder.resolve(type.name + "-" + stamp.id), builder.build());
            }
        }
        MemoryRecordsBuilder transactional = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), (byte) 2,
                Compression.lz4().build(), TimestampType.CREATE_TIME, 50L, NOW, 77L, (short) 4, 9, true, 3);
        fill(transactional, 50L, 20);
        save(folder.resolve("transaction"), transactional.build());
        save(folder.resolve("abort"), MemoryRecords.withEndTransactionMarker(70L, NOW, 3, 77L, (short) 4,
                new EndTransactionMarker(ControlRecordType.ABORT, 8)));
        save(folder.resolve("commit"), MemoryRecords.withEndTransactionMarker(71L, NOW, 3, 77L, (short) 4,
                new EndTransactionMarker(ControlRecordType.COMMIT, 8)));
    }

    private static void fill(MemoryRecordsBuilder builder, long base, int count) {
        for (int i = 0; i < count; i++) {
            byte[] key = i % 5 == 0 ? null : ("key" + i).getBytes(StandardCharsets.UTF_8);
            byte[] value = i % 7 == 0 ? null : "v".repeat(i).getBytes(StandardCharsets.UTF_8);
            Header[] headers = new Header[i % 3];
            for (int h = 0; h < headers.length; h++) {
                headers[h] = new RecordHeader("schlüssel" + h, h == 1 ? null : new byte[] {(byte) i});
            }
            builder.appendWithOffset(base + i + i / 10, NOW - (i % 4) * 100L, key, value, headers);
        }
    }

    private static void save(Path path, MemoryRecords records) throws Exception {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        Files.write(path, bytes);
    }

    private static void list(Path path) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(path)));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            System.out.println("batch " + batch.baseOffset() + " " + batch.lastOffset() + " " + batch.compressionType().id
                    + " " + batch.timestampType().id + " " + batch.isTransactional() + " " + batch.isControlBatch() + " "
                    + batch.producerId() + " " + batch.producerEpoch() + " " + batch.baseSequence() + " "
                    + batch.partitionLeaderEpoch() + " " + batch.maxTimestamp() + " "
                    + (batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : "-"));
            for (Record record : batch) {
                record.ensureValid();
                StringBuilder line = new StringBuilder("record " + record.offset() + " " + record.timestamp() + " "
                        + hex(record.key()) + " " + hex(record.value()));
                for (Header header : record.headers()) {
                    line.append(' ').append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
                    line.append('=').append(header.value() == null ? "-" : hex(ByteBuffer.wrap(header.value())));
                }
                System.out.println(line);
                if (batch.isControlBatch()) {
                    System.out.println("marker " + ControlRecordType.parse(record.key()));
                }
            }
        }
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return "-";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return "x" + HexFormat.of().formatHex(copy);
    }
}
