import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;
import org.apache.kafka.common.utils.AppInfoParser;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/**
 * Feeds values at chosen times to the statistics of the Java client and prints what they measure after each.
 *   java -cp 'JARS/*' DumpMetricWindows.java > metric_windows_VERSION.json
 */
public final class DumpMetricWindows {
    private static final long WINDOW_MS = 1000;

    public static void main(String[] args) {
        List<String> runs = new ArrayList<>();
        for (int samples : new int[] {1, 2, 5}) runs.add(run(samples, new Random(samples)));
        System.out.println("{\n \"provenance\": \"org.apache.kafka.common.metrics.stats of kafka-clients:"
            + AppInfoParser.getVersion() + ", printed by DumpMetricWindows.java\",\n \"window_ms\": " + WINDOW_MS
            + ",\n \"columns\": [\"now_ms\", \"value or null\", \"avg\", \"max\", \"rate\", \"count_rate\", \"total\"],\n"
            + " \"runs\": [\n" + String.join(",\n", runs) + "\n ]\n}");
    }

    private static String run(int samples, Random random) {
        MetricConfig config = new MetricConfig().samples(samples).timeWindow(WINDOW_MS, TimeUnit.MILLISECONDS);
        Avg avg = new Avg();
        Max max = new Max();
        Rate rate = new Rate();
        Rate countRate = new Rate(new WindowedCount());
        CumulativeSum total = new CumulativeSum();
        List<String> rows = new ArrayList<>();
        long now = 5000;
        for (int step = 0; step < 120; step++) {
            int[] pauses = {0, 1, 40, 333, 999, 1000, 1001, 2500, 7000};
            now += pauses[random.nextInt(pauses.length)];
            String value = "null";
            if (random.nextInt(3) > 0) {
                int number = random.nextInt(1000) - 100;
                value = Integer.toString(number);
                avg.record(config, number, now);
                max.record(config, number, now);
                rate.record(config, number, now);
                countRate.record(config, number, now);
                total.record(config, number, now);
            }
            rows.add("   [" + now + ", " + value + ", " + text(avg.measure(config, now)) + ", "
                + text(max.measure(config, now)) + ", " + text(rate.measure(config, now)) + ", "
                + text(countRate.measure(config, now)) + ", " + text(total.measure(config, now)) + "]");
        }
        return "  {\"samples\": " + samples + ", \"rows\": [\n" + String.join(",\n", rows) + "\n  ]}";
    }

    private static String text(double value) {
        return Double.isNaN(value) ? "null" : Double.toString(value);
    }
}
