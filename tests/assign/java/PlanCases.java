import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Answers cases with Kafka's own assignors, one line each. A case:
 * strategy TAB topic=racks|racks|... (racks: letters, "-" for none), ... TAB member,instance,rack,generation,topics,owned; ...
 * where topics are joined by "+" and owned partitions are topic:number joined by "+". "~" stands for nothing.
 */
public final class PlanCases {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t");
            System.out.println(answer(parts[0], topics(parts[1]), parts[2]));
        }
    }

    private static Map<String, List<PartitionInfo>> topics(String text) {
        Map<String, List<PartitionInfo>> found = new HashMap<>();
        for (String topic : text.split(",")) {
            String name = topic.substring(0, topic.indexOf('='));
            String[] spots = topic.substring(topic.indexOf('=') + 1).split("\\|");
            List<PartitionInfo> partitions = new ArrayList<>();
            for (int p = 0; p < spots.length; p++) {
                Node[] replicas = new Node[spots[p].length()];
                for (int i = 0; i < replicas.length; i++) {
                    String rack = spots[p].charAt(i) == '-' ? null : spots[p].substring(i, i + 1);
                    replicas[i] = new Node(i, "localhost", 9092 + i, rack);
                }
                partitions.add(new PartitionInfo(name, p, replicas[0], replicas, replicas));
            }
            found.put(name, partitions);
        }
        return found;
    }

    private static String answer(String strategy, Map<String, List<PartitionInfo>> topics, String people) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (String person : people.split(";")) {
            String[] fields = person.split(",");
            List<String> wanted = fields[4].equals("~") ? List.of() : Arrays.asList(fields[4].split("\\+"));
            List<TopicPartition> owned = new ArrayList<>();
            if (!fields[5].equals("~"))
                for (String part : fields[5].split("\\+"))
                    owned.add(new TopicPartition(part.split(":")[0], Integer.parseInt(part.split(":")[1])));
            int generation = Integer.parseInt(fields[3]);
            Optional<String> rack = fields[2].equals("~") ? Optional.empty() : Optional.of(fields[2]);
            Subscription subscription;
            if (strategy.equals("sticky")) {
                StickyAssignor remembers = new StickyAssignor();
                if (!owned.isEmpty())
                    remembers.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, fields[0], Optional.empty()));
                subscription = new Subscription(wanted, remembers.subscriptionUserData(Collections.emptySet()),
                        Collections.emptyList(), -1, rack);
            } else {
                subscription = new Subscription(wanted, null, owned, generation, rack);
            }
            if (!fields[1].equals("~")) subscription.setGroupInstanceId(Optional.of(fields[1]));
            subscriptions.put(fields[0], subscription);
        }
        Map<String, List<TopicPartition>> planned = assignor(strategy).assignPartitions(topics, subscriptions);
        StringBuilder out = new StringBuilder();
        for (Map.Entry<String, List<TopicPartition>> entry : new TreeMap<>(planned).entrySet()) {
            out.append(out.length() == 0 ? "" : ";").append(entry.getKey()).append("=");
            List<String> given = new ArrayList<>();
            for (TopicPartition part : entry.getValue()) given.add(part.topic() + ":" + part.partition());
            out.append(String.join("+", given));
        }
        return out.toString();
    }

    private static AbstractPartitionAssignor assignor(String strategy) {
        switch (strategy) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }
}
