import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One process of `holdfast bench groups` with Java's consumers, each on a thread of its own, as its users run them. It
 * reads and writes the same lines as groups_worker.py; nanoTime is the same clock for all processes. Arguments:
 * bootstrap, group, topic, number of members, prefix of their names.
 */
public final class GroupsBench {
    private static final Duration POLL = Duration.ofSeconds(5);
    private static String bootstrap;
    private static String group;
    private static String topic;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        group = args[1];
        topic = args[2];
        tell("", "ready", List.of());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
            if (line.equals("go"))
                for (int number = 0; number < Integer.parseInt(args[3]); number++) start(args[4] + "-" + number);
            else start(line.substring("join ".length()));
        }
        Runtime.getRuntime().halt(0); // without leaving: the group's end is not measured
    }

    private static void start(String name) {
        Thread thread = new Thread(() -> work(name), name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void work(String name) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(topic), new Listener(name));
            while (true) consumer.poll(POLL);
        } catch (RuntimeException error) {
            tell(name, "failed: " + error.toString().replace('"', '\'').replaceAll("[\\p{Cntrl}\\\\]", " "), List.of());
        }
    }

    private static synchronized void tell(String member, String what, Collection<TopicPartition> partitions) {
        String numbers = partitions.stream().map(p -> String.valueOf(p.partition())).collect(Collectors.joining(","));
        long micros = System.nanoTime() / 1_000;
        System.out.printf(
                "{\"t\":%d.%03d,\"m\":\"%s\",\"e\":\"%s\",\"p\":[%s]}%n",
                micros / 1_000, micros % 1_000, member, what, numbers);
        System.out.flush();
    }

    private record Listener(String name) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) tell(name, "assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) tell(name, "revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) tell(name, "lost", partitions);
        }
    }
}
