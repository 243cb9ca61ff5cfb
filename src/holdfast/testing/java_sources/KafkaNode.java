import java.util.Arrays;
import kafka.Kafka;
import kafka.tools.StorageTool;

/**
 * One Kafka node that formats its storage in the same JVM (a second one would cost a second) and stops when its
 * standard input ends, so that a test run which dies leaves no broker behind.
 *
 * Arguments: the properties file, then, if the storage is to be formatted, the arguments of StorageTool's format.
 */
public final class KafkaNode {
    public static void main(String[] args) {
        Thread guard = new Thread(KafkaNode::stopWhenInputEnds, "stop-when-input-ends");
        guard.setDaemon(true);
        guard.start();
        if (args.length > 1) {
            int code = StorageTool.execute(Arrays.copyOfRange(args, 1, args.length), System.err);
            if (code != 0) {
                System.exit(code);
            }
        }
        Kafka.main(new String[] {args[0]});
    }

    private static void stopWhenInputEnds() {
        try {
            while (System.in.read() >= 0) {
                // Nothing is said on it; only its end matters.
            }
        } catch (java.io.IOException gone) {
            // The other side is gone all the same.
        }
        System.exit(0);
    }
}
