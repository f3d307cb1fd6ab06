import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.SplittableRandom;

/** Burns CPU in functions of known names, and logs how much. */
public class Burning {
    static final long SLOT = 10_000_000, ROUND = 250_000; // ns
    static final int SCAN = 1, FIRST = 2, SECOND = 3, IN_PARSE = 4, IN_STORE = 5, STORE = 6, RARE = 7;
    static final String[] STACKS = {
        "", "Burning.run;Burning.scan:loop", "Burning.run;Burning.parse:first", "Burning.run;Burning.parse:second",
        "Burning.run;Burning.parse;Burning.hash:loop", "Burning.run;Burning.store;Burning.hash:loop",
        "Burning.run;Burning.store:loop", "Burning.run;Burning.rare:loop"
    };
    static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    static long[][] slots;
    static long base, burned, sink;

    /** Gives the CPU time since it was last called to a site. */
    static void charge(int site) {
        int at = (int) ((System.nanoTime() - base) / SLOT);
        long now = THREADS.getCurrentThreadCpuTime();
        slots[Math.min(at, slots.length - 1)][site] += now - burned;
        burned = now;
    }

    static long scan(int n) {
        long x = 11;
        for (int i = 0; i < n; i++) x = x * 6364136223846793005L + (x >>> 7) + i; // burns loop
        return x;
    }

    static long rare(int n) {
        long x = 13;
        for (int i = 0; i < n; i++) x = x * 6364136223846793005L + (x >>> 7) + i; // burns loop
        return x;
    }

    static long hash(int n) {
        long x = 17;
        for (int i = 0; i < n; i++) x = x * 6364136223846793005L + (x >>> 7) + i; // burns loop
        return x;
    }

    static long parse(int n) {
        long x = n;
        for (int i = 0; i < n; i++) x = x * 6364136223846793005L + (x >>> 7) + i; // burns first
        charge(FIRST);
        for (int i = 0; i < n / 2; i++) x = x * 6364136223846793005L + (x >>> 7) + i; // burns second
        charge(SECOND);
        if ((x >>> 20) % 4 == 0) {
            x += hash(n);
            charge(IN_PARSE);
        }
        return x;
    }

    static long store(int n) {
        long x = hash(n);
        charge(IN_STORE);
        for (int i = 0; i < n / 4; i++) x = x * 6364136223846793005L + (x >>> 7) + i; // burns loop
        charge(STORE);
        return x;
    }

    /**
     * Burns until an instant, and gives the size of slices then: it follows what
     * the functions are compiled to, so that a round takes ROUND in the mean.
     */
    static int run(int size, long end) {
        SplittableRandom random = new SplittableRandom(7);
        long last = burned;
        for (int rounds = 1; System.nanoTime() < end; rounds++) {
            int u = random.nextInt(1000), n = random.nextInt(size / 4, size * 7 / 4);
            charge(0);
            if (u < 15) {
                sink += rare(n);
                charge(RARE);
            } else if (u < 150) {
                sink += store(n);
            } else if (u < 450) {
                sink += parse(n);
            } else {
                sink += scan(n);
                charge(SCAN);
            }
            if (rounds % 64 == 0) {
                size = (int) Math.ceil(size * Math.min(Math.max(64.0 * ROUND / (burned - last + 1), 0.5), 2));
                last = burned;
            }
        }
        return size;
    }

    public static void main(String[] args) throws Exception {
        long length = (long) (Double.parseDouble(args[0]) * 1e9);
        slots = new long[(int) (length / SLOT) + 1000][STACKS.length];
        base = System.nanoTime() / SLOT * SLOT;
        burned = THREADS.getCurrentThreadCpuTime();
        int size = run(1000, System.nanoTime() + 3_000_000_000L); // until the functions are compiled, as far as they are
        String[] thread = Files.readSymbolicLink(Paths.get("/proc/thread-self")).toString().split("/");
        long start = System.nanoTime();
        for (long[] slot : slots) {
            java.util.Arrays.fill(slot, 0);
        }
        System.out.printf("{\"victim\":\"java\",\"pid\":%s,\"tid\":%s,\"slot\":%d,\"start\":%d,\"stacks\":[\"%s\"]}%n",
            thread[0], thread[2], SLOT, start, String.join("\",\"", STACKS));
        System.out.flush();
        burned = THREADS.getCurrentThreadCpuTime();
        run(size, start + length);
        print();
    }

    static void print() {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < slots.length; i++) {
            long sum = 0;
            String text = "";
            for (long ns : slots[i]) {
                sum += ns;
                text += (text.isEmpty() ? "" : ",") + ns;
            }
            if (sum > 0) {
                out.append("{\"at\":").append(base + i * SLOT).append(",\"ns\":[").append(text).append("]}\n");
            }
        }
        System.out.print(out);
        System.out.printf("{\"end\":%d,\"cpu\":%d}%n", System.nanoTime(), burned);
    }
}
