import java.io.FileOutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN with one node, until its process is killed: {@code OneNodeYarn.java FILE} writes its settings to the file. */
public class OneNodeYarn {
    private OneNodeYarn() {}

    public static void main(String[] arguments) throws Exception {
        YarnConfiguration settings = new YarnConfiguration();
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        // The application master may take most of this small cluster.
        settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        // A disk that is nearly full is no reason to refuse containers.
        settings.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.5");
        MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 1, 1);
        cluster.init(settings);
        cluster.start();
        try (FileOutputStream file = new FileOutputStream(arguments[0])) {
            cluster.getConfig().writeXml(file);
        }
        System.out.println("YARN is ready");
        Thread.sleep(Long.MAX_VALUE);
    }
}
