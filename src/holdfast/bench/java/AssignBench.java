import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Times Kafka's own CooperativeStickyAssignor. Standard input: the partitions of every topic ("topic count", one per
 * line), an empty line, then the members ("id topic topic ...", or "id *" for all); the last member is the one that
 * joins. Arguments: how often each case is repeated, and which cases to run besides "fresh". Output: one line per case
 * with its name, and the first call and the best later call in seconds.
 */
public final class AssignBench {
    private static final long WARM_NANOS = 4_000_000_000L;
    private static final Node NODE = new Node(0, "localhost", 9092);

    public static void main(String[] args) throws Exception {
        int repeats = Integer.parseInt(args[0]);
        Map<String, List<PartitionInfo>> topics = new HashMap<>();
        Map<String, List<String>> wanted = new HashMap<>();
        String joiner = null;
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); !line.isEmpty(); line = in.readLine()) {
                String[] words = line.split(" ");
                List<PartitionInfo> partitions = new ArrayList<>();
                for (int i = 0; i < Integer.parseInt(words[1]); i++)
                    partitions.add(new PartitionInfo(words[0], i, NODE, new Node[] {NODE}, new Node[] {NODE}));
                topics.put(words[0], partitions);
            }
            List<String> all = new ArrayList<>(topics.keySet());
            all.sort(null);
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                joiner = words[0];
                wanted.put(joiner, words[1].equals("*") ? all : Arrays.asList(words).subList(1, words.length));
            }
        }
        Map<String, List<TopicPartition>> nothing = new HashMap<>();
        List<String> staying = new ArrayList<>(wanted.keySet());
        staying.sort(null);
        staying.remove(joiner);
        Map<String, List<TopicPartition>> fresh = measure("fresh", repeats, topics, wanted, staying, nothing);
        List<String> joined = new ArrayList<>(staying);
        joined.add(joiner);
        List<String> cases = Arrays.asList(args);
        if (cases.contains("join")) measure("join", repeats, topics, wanted, joined, fresh);
        if (cases.contains("leave"))
            measure("leave", repeats, topics, wanted, staying.subList(1, staying.size()), fresh);
    }

    private static Map<String, List<TopicPartition>> measure(
            String name,
            int repeats,
            Map<String, List<PartitionInfo>> topics,
            Map<String, List<String>> wanted,
            List<String> members,
            Map<String, List<TopicPartition>> owned) {
        double first = 0;
        double best = Double.MAX_VALUE;
        Map<String, List<TopicPartition>> result = null;
        long begin = System.nanoTime();
        for (int run = 0; run <= repeats || System.nanoTime() - begin < WARM_NANOS; run++) {
            Map<String, Subscription> subscriptions = new HashMap<>();
            for (String member : members)
                subscriptions.put(member, new Subscription(wanted.get(member), null,
                        owned.getOrDefault(member, List.of()), owned.isEmpty() ? -1 : 1, Optional.empty()));
            long start = System.nanoTime();
            result = new CooperativeStickyAssignor().assignPartitions(new HashMap<>(topics), subscriptions);
            double seconds = (System.nanoTime() - start) / 1e9;
            if (run == 0) {
                first = seconds;
                begin = System.nanoTime();
            } else best = Math.min(best, seconds);
        }
        System.out.printf("%s %.6f %.6f%n", name, first, best);
        System.out.flush();
        return result;
    }
}
