import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a group with the Java client, writing the log that members/log.py describes.
 *
 * One JVM hosts as many members as there are --log options, each in a thread with a consumer of its own: a JVM costs a
 * second to start, so a test that does not need to kill members one by one saves that. Commands on standard input:
 * "join", "hang SECONDS [INDEX]", "metrics [INDEX]", "close [INDEX]"; without an index they are for all. SIGTERM, or the end of standard
 * input, closes all members cleanly.
 */
public final class GroupMember implements Runnable, ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(20);
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    private static final CountDownLatch JOIN = new CountDownLatch(1);

    private final String topic;
    private final long commitEveryMs;
    private final Properties settings;
    private final BufferedWriter log;
    private final AtomicLong hangMs = new AtomicLong();
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private volatile boolean stopping;
    private volatile boolean metricsWanted;
    private KafkaConsumer<byte[], byte[]> consumer;

    private GroupMember(String topic, long commitEveryMs, Properties settings, String log) throws IOException {
        this.topic = topic;
        this.commitEveryMs = commitEveryMs;
        this.settings = settings;
        this.log = new BufferedWriter(new FileWriter(log, StandardCharsets.UTF_8, true));
    }

    public static void main(String[] args) throws Exception {
        Map<String, List<String>> options = parse(args);
        List<GroupMember> members = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        List<String> logs = options.get("--log");
        for (int index = 0; index < logs.size(); index++) {
            Properties settings = settings(options, logs.size() > 1 ? "-" + index : "");
            long commitEveryMs = Long.parseLong(one(options, "--commit-every-ms", "1000"));
            GroupMember member = new GroupMember(one(options, "--topic", ""), commitEveryMs, settings, logs.get(index));
            members.add(member);
            threads.add(new Thread(member, "member-" + index));
        }
        if (!options.containsKey("--join-on-command")) {
            JOIN.countDown();
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> closeAll(members, threads), "close-all"));
        Thread commands = new Thread(() -> obey(members), "commands");
        commands.setDaemon(true);
        commands.start();
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void closeAll(List<GroupMember> members, List<Thread> threads) {
        members.forEach(member -> member.stopping = true);
        JOIN.countDown();
        try {
            for (Thread thread : threads) {
                thread.join(CLOSE_LIMIT.toMillis());
            }
        } catch (InterruptedException gone) {
            Thread.currentThread().interrupt();
        }
    }

    private static void obey(List<GroupMember> members) {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.trim().split(" ");
                switch (words[0]) {
                    case "join" -> JOIN.countDown();
                    case "hang" -> {
                        long ms = (long) (Double.parseDouble(words[1]) * 1000);
                        chosen(members, words, 2).forEach(member -> member.hangMs.set(ms));
                    }
                    case "metrics" -> chosen(members, words, 1).forEach(member -> member.metricsWanted = true);
                    case "close" -> chosen(members, words, 1).forEach(member -> member.stopping = true);
                    default -> System.err.println("unknown command: " + line);
                }
            }
        } catch (IOException gone) {
            System.err.println("standard input: " + gone);
        }
        System.exit(0);
    }

    private static List<GroupMember> chosen(List<GroupMember> members, String[] words, int at) {
        return words.length > at ? List.of(members.get(Integer.parseInt(words[at]))) : members;
    }

    @Override
    public void run() {
        try {
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            event("ready", "java " + ProcessHandle.current().pid());
            JOIN.await();
            event("joining", "");
            consumer.subscribe(List.of(topic), this);
            loop();
            event("closing", "");
            consumer.close(CLOSE_LIMIT);
            event("closed", "");
        } catch (Exception error) {
            event("error", error.toString().replace('\n', ' '));
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void loop() throws InterruptedException {
        long nextCommit = System.nanoTime() + commitEveryMs * 1_000_000;
        while (!stopping) {
            long hang = hangMs.getAndSet(0);
            if (hang > 0) {
                event("hang", Long.toString(hang));
                Thread.sleep(hang);
                event("awake", "");
            }
            if (metricsWanted) {
                metricsWanted = false;
                event("metrics", metrics());
            }
            process(consumer.poll(POLL));
            if (commitEveryMs > 0 && System.nanoTime() >= nextCommit) {
                nextCommit = System.nanoTime() + commitEveryMs * 1_000_000;
                commitInPassing();
            }
        }
    }

    /** The coordinator's and the fetch manager's metrics of this client as a JSON object; Python's reader takes NaN. */
    private String metrics() {
        List<String> pairs = new ArrayList<>();
        consumer.metrics().forEach((name, metric) -> {
            boolean ours = name.group().equals("consumer-coordinator-metrics")
                || name.group().equals("consumer-fetch-manager-metrics");
            if (ours && name.tags().keySet().equals(java.util.Set.of("client-id"))
                && metric.metricValue() instanceof Number value) {
                pairs.add("\"" + name.name() + "\": " + value.doubleValue());
            }
        });
        return "{" + String.join(", ", pairs) + "}";
    }

    private void process(ConsumerRecords<byte[], byte[]> records) {
        if (records.isEmpty()) {
            return;
        }
        String now = now();
        StringBuilder lines = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            lines.append(record.partition()).append(' ').append(record.offset()).append(' ').append(now).append('\n');
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            uncommitted.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        write(lines.toString());
    }

    /** Without waiting; if it fails, the next one or the one at revocation says the same and more. */
    private void commitInPassing() {
        if (uncommitted.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.copyOf(uncommitted);
        consumer.commitAsync(offsets, (done, error) -> {
            if (error == null) {
                offsets.forEach(uncommitted::remove);
                event("committed", list(offsets.keySet()));
            } else {
                event("commit-failed", error.toString());
            }
        });
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        event("assigned", list(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        event("revoked", list(partitions));
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(uncommitted);
        offsets.keySet().retainAll(partitions);
        uncommitted.keySet().removeAll(partitions);
        if (offsets.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(offsets);
            event("committed", list(offsets.keySet()));
        } catch (RuntimeException error) {
            event("commit-failed", error.toString());
        }
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        event("lost", list(partitions));
        uncommitted.keySet().removeAll(partitions);
    }

    private static String list(Collection<TopicPartition> partitions) {
        TreeSet<Integer> numbers = new TreeSet<>();
        partitions.forEach(partition -> numbers.add(partition.partition()));
        return numbers.isEmpty() ? "-" : String.join(",", numbers.stream().map(String::valueOf).toList());
    }

    private void event(String name, String rest) {
        write("#" + name + " " + now() + (rest.isEmpty() ? "" : " " + rest) + "\n");
    }

    private static String now() {
        Instant now = Instant.now();
        return String.format(Locale.ROOT, "%d.%03d", now.toEpochMilli(), now.getNano() / 1_000 % 1_000);
    }

    /** Flushed each time: what is in the log was processed, and survives a kill. */
    private synchronized void write(String text) {
        try {
            log.write(text);
            log.flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Properties settings(Map<String, List<String>> options, String suffix) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", one(options, "--bootstrap", ""));
        settings.put("group.id", one(options, "--group", ""));
        settings.put("auto.offset.reset", one(options, "--reset", "earliest"));
        settings.put("enable.auto.commit", "false");
        put(settings, "session.timeout.ms", one(options, "--session-ms", null));
        put(settings, "heartbeat.interval.ms", one(options, "--heartbeat-ms", null));
        put(settings, "max.poll.interval.ms", one(options, "--max-poll-ms", null));
        put(settings, "client.rack", one(options, "--rack", null));
        String instance = one(options, "--instance-id", null);
        put(settings, "group.instance.id", instance == null ? null : instance + suffix);
        String client = one(options, "--client-id", null);
        put(settings, "client.id", client == null ? null : client + suffix);
        String assignors = one(options, "--assignor", null);
        if (assignors != null) {
            List<String> classes = new ArrayList<>();
            for (String name : assignors.split(",")) {
                classes.add(ASSIGNORS.getOrDefault(name, name));
            }
            settings.put("partition.assignment.strategy", String.join(",", classes));
        }
        for (String pair : options.getOrDefault("--config", List.of())) {
            int at = pair.indexOf('=');
            settings.put(pair.substring(0, at), pair.substring(at + 1));
        }
        return settings;
    }

    private static void put(Properties settings, String key, String value) {
        if (value != null) {
            settings.put(key, value);
        }
    }

    private static String one(Map<String, List<String>> options, String name, String otherwise) {
        List<String> found = options.get(name);
        return found == null ? otherwise : found.get(0);
    }

    private static Map<String, List<String>> parse(String[] args) {
        Map<String, List<String>> options = new TreeMap<>();
        for (int at = 0; at < args.length; at++) {
            boolean flag = args[at].equals("--join-on-command");
            options.computeIfAbsent(args[at], name -> new ArrayList<>()).add(flag ? "" : args[++at]);
        }
        return options;
    }
}
