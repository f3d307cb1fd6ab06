import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.text.DecimalFormat;
import java.text.NumberFormat;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Properties;
import java.util.Random;
import java.util.Scanner;
import java.util.StringJoiner;
import java.util.StringTokenizer;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * A supermarket's service of many threads: a few serve customers, some more now and
 * then, and most keep house, each in its own way and seldom. Told "even", all threads
 * serve, as much as each other.
 */
public class Crowd {
    static volatile long sink;
    static final CountDownLatch OPEN = new CountDownLatch(1);

    /** What a thread does again and again. */
    interface Work {
        long go(Random random) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[0]);
        double cores = Double.parseDouble(args[1]);
        boolean even = args[2].equals("even");
        System.out.println("{\"pid\":" + ProcessHandle.current().pid() + "}"); // a thousand threads take a while
        Market market = new Market();
        Work[] serving = {market::checkout, market::restock, market::audit, market::summarize, market::search, market::associate};
        Work[] keeping = Housekeeping.all();
        warm(serving);
        warm(keeping);
        for (int i = 0; i < threads; i++) {
            double share = even ? 1.0 / threads : shareOf(i, threads);
            boolean keeps = !even && i >= threads * 46 / 100;
            Work[] works = keeps ? new Work[] {keeping[i % keeping.length]} : serving;
            Thread t = new Thread(new Regular(works, keeps ? 4 : 20, share * cores, i), keeps ? "keeper-" + i : "clerk-" + i);
            t.setDaemon(true);
            t.start();
        }
        OPEN.countDown();
        while (true) {
            Thread.sleep(60_000);
        }
    }

    /** Has works compiled: one that is done once in a minute is not to pay for that. */
    static void warm(Work[] works) throws Exception {
        Random random = new Random(1);
        for (int round = 0; round < 2000; round++) {
            for (Work w : works) {
                sink += w.go(random);
            }
        }
    }

    /** The share of the work of one of the threads, as Figure 4 of the paper has it: 24% do 90% of it, 46% do 99%. */
    static double shareOf(int i, int threads) {
        int busy = threads * 24 / 100, rest = threads * 46 / 100;
        if (i < busy) {
            return 0.90 * falling(i, busy, 4);
        }
        if (i < rest) {
            return 0.09 * falling(i - busy, rest - busy, 6);
        }
        return 0.01 / (threads - rest);
    }

    /** The i-th of n shares that add up to one, the first so many times the last. */
    static double falling(int i, int n, double times) {
        double sum = 0;
        for (int j = 0; j < n; j++) {
            sum += Math.pow(times, -(double) j / n);
        }
        return Math.pow(times, -(double) i / n) / sum;
    }

    /** A thread that works so much that it has its share of the CPU time, at random times. */
    static class Regular implements Runnable {
        static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
        final Work[] works;
        final int batch;
        final double share; // of one core
        final Random random;

        Regular(Work[] works, int batch, double share, int seed) {
            this.works = works;
            this.batch = batch;
            this.share = share;
            this.random = new Random(seed);
        }

        public void run() {
            try {
                OPEN.await(); // all begin together
            } catch (InterruptedException e) {
                return;
            }
            long began = System.nanoTime(), used = CLOCK.getCurrentThreadCpuTime(); // to start costs more than many get in a minute
            LockSupport.parkNanos((long) (random.nextDouble() * 50_000 * batch / share));
            while (true) {
                try {
                    for (int i = 0; i < batch; i++) {
                        sink += works[random.nextInt(works.length)].go(random);
                    }
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
                double ahead = (CLOCK.getCurrentThreadCpuTime() - used) / share - (System.nanoTime() - began);
                if (ahead > 0) {
                    LockSupport.parkNanos((long) (ahead * (0.5 + random.nextDouble())));
                }
            }
        }
    }

    /** What the clerks do. */
    static class Market {
        final Map<String, Integer> stock = new HashMap<>();
        final TreeMap<Integer, String> prices = new TreeMap<>();
        final List<String> names = new ArrayList<>();

        Market() {
            for (int i = 0; i < 4000; i++) {
                String name = "product-" + i * 7919 % 4001;
                names.add(name);
                stock.put(name, i);
                prices.put(i * 31 % 100_000, name);
            }
        }

        long checkout(Random random) {
            StringBuilder receipt = new StringBuilder();
            long total = 0;
            for (int i = 0; i < 60; i++) {
                String name = names.get(random.nextInt(names.size()));
                total += priceOf(name);
                line(receipt, name, total);
            }
            return total + receipt.length();
        }

        int priceOf(String name) {
            Integer n = stock.get(name);
            Map.Entry<Integer, String> e = prices.floorEntry(n == null ? 0 : n * 31 % 100_000);
            return e == null ? 1 : e.getKey();
        }

        void line(StringBuilder to, String name, long total) {
            to.append(name).append(' ').append(total).append('\n');
        }

        long restock(Random random) {
            Map<String, Integer> order = new HashMap<>();
            for (int i = 0; i < 200; i++) {
                order.merge(names.get(random.nextInt(500)), 1, Integer::sum);
            }
            long sum = 0;
            for (Map.Entry<String, Integer> e : order.entrySet()) {
                sum += e.getKey().hashCode() * (long) e.getValue();
            }
            return sum;
        }

        long audit(Random random) {
            int[] amounts = new int[600];
            for (int i = 0; i < amounts.length; i++) {
                amounts[i] = random.nextInt(1 << 20);
            }
            Arrays.sort(amounts);
            return amounts[amounts.length / 2];
        }

        long summarize(Random random) {
            TreeMap<String, Integer> byName = new TreeMap<>();
            for (int i = 0; i < 80; i++) {
                byName.merge(names.get(random.nextInt(300)), i, Integer::sum);
            }
            StringJoiner joiner = new StringJoiner(",");
            byName.forEach((name, n) -> joiner.add(name));
            return joiner.length();
        }

        long search(Random random) {
            String want = Integer.toString(random.nextInt(4000));
            long found = 0;
            for (int i = 0; i < 400; i++) {
                if (names.get(i).endsWith(want)) {
                    found++;
                }
            }
            return found;
        }

        long associate(Random random) {
            PriorityQueue<Long> best = new PriorityQueue<>();
            for (int i = 0; i < 150; i++) {
                best.add(random.nextLong());
                if (best.size() > 20) {
                    best.poll();
                }
            }
            return best.peek();
        }
    }

    /** What runs in the background of such services. */
    static class Housekeeping {
        static final Pattern LINE = Pattern.compile("(\\d+)-(\\w+)\\s+\\[(.*?)\\]\\s*(.+)");

        static Work[] all() {
            return new Work[] {Housekeeping::rotateLog, Housekeeping::digest, Housekeeping::compress, Housekeeping::encode, Housekeeping::calendar,
                Housekeeping::money, Housekeeping::primes, Housekeeping::settings, Housekeeping::scan, Housekeeping::pipeline, Housekeeping::group,
                Housekeeping::expire, Housekeeping::checksum, Housekeeping::tokens, Housekeeping::flags, Housekeeping::format, Housekeeping::recent,
                Housekeeping::text, Housekeeping::graph, Housekeeping::local};
        }

        static long rotateLog(Random r) {
            Matcher m = LINE.matcher(r.nextInt(1000) + "-main  [http-exec] the request took " + r.nextInt() + " ns");
            return m.matches() ? m.group(4).length() : 0;
        }

        static long digest(Random r) throws Exception {
            byte[] data = new byte[2000];
            r.nextBytes(data);
            return MessageDigest.getInstance("SHA-256").digest(data)[0] + MessageDigest.getInstance("MD5").digest(data)[1];
        }

        static long compress(Random r) throws Exception {
            byte[] data = ("entry " + r.nextInt()).repeat(40).getBytes(StandardCharsets.UTF_8), packed = new byte[1000];
            Deflater d = new Deflater();
            d.setInput(data);
            d.finish();
            int n = d.deflate(packed);
            d.end();
            Inflater i = new Inflater();
            i.setInput(packed, 0, n);
            n = i.inflate(data);
            i.end();
            return n;
        }

        static long encode(Random r) {
            byte[] data = new byte[600];
            r.nextBytes(data);
            return Base64.getDecoder().decode(Base64.getEncoder().encodeToString(data)).length;
        }

        static long calendar(Random r) {
            ZonedDateTime t = Instant.ofEpochSecond(r.nextInt()).atZone(ZoneId.of("Europe/Berlin"));
            return DateTimeFormatter.RFC_1123_DATE_TIME.format(t.plusMonths(r.nextInt(50))).length() + LocalDate.parse("2024-02-29").plusDays(r.nextInt(999)).getDayOfYear();
        }

        static long money(Random r) {
            BigDecimal d = BigDecimal.ONE;
            for (int i = 0; i < 30; i++) {
                d = d.multiply(new BigDecimal(1 + r.nextInt(100))).divide(new BigDecimal(7), 12, RoundingMode.HALF_EVEN);
            }
            return d.toPlainString().length();
        }

        static long primes(Random r) {
            return BigInteger.valueOf(r.nextInt(1 << 20) + 3).nextProbablePrime().modPow(BigInteger.valueOf(65537), BigInteger.valueOf(1_000_000_007)).longValue();
        }

        static long settings(Random r) throws Exception {
            Properties p = new Properties();
            for (int i = 0; i < 20; i++) {
                p.setProperty("setting." + i, "value " + r.nextInt());
            }
            java.io.StringWriter w = new java.io.StringWriter();
            p.store(w, "settings");
            Properties again = new Properties();
            again.load(new java.io.StringReader(w.toString()));
            return again.size();
        }

        static long scan(Random r) {
            try (Scanner s = new Scanner(r.nextInt(100) + " " + r.nextInt(100) + " apples 1.5")) {
                return s.nextInt() + s.nextInt() + s.next().length();
            }
        }

        static long pipeline(Random r) {
            return IntStream.range(0, 100).map(i -> i * r.nextInt(7)).filter(i -> i % 3 != 0).boxed().sorted(Collections.reverseOrder()).limit(10).mapToInt(Integer::intValue).sum();
        }

        static long group(Random r) {
            return IntStream.range(0, 120).boxed().collect(Collectors.groupingBy(i -> i * r.nextInt(9) % 7, TreeMap::new, Collectors.counting())).size();
        }

        static long expire(Random r) {
            ConcurrentSkipListMap<Long, String> m = new ConcurrentSkipListMap<>();
            for (int i = 0; i < 60; i++) {
                m.put(r.nextLong(), "session");
            }
            m.headMap(0L).clear();
            return m.size();
        }

        static long checksum(Random r) {
            CRC32 c = new CRC32();
            for (int i = 0; i < 200; i++) {
                c.update(r.nextInt());
            }
            return c.getValue();
        }

        static long tokens(Random r) {
            StringTokenizer t = new StringTokenizer("a,b;c d " + r.nextInt() + ",e;f", ",; ");
            long n = 0;
            while (t.hasMoreTokens()) {
                n += t.nextToken().toUpperCase(Locale.ROOT).hashCode();
            }
            return n;
        }

        static long flags(Random r) {
            BitSet a = new BitSet(), b = new BitSet();
            for (int i = 0; i < 200; i++) {
                a.set(r.nextInt(2000));
                b.set(r.nextInt(2000));
            }
            a.and(b);
            return a.cardinality() + a.nextSetBit(5);
        }

        static long format(Random r) {
            return String.format("%08d %-12s %6.3f", r.nextInt(), "metric", r.nextDouble()).length();
        }

        static long recent(Random r) {
            LinkedHashMap<Integer, String> cache = new LinkedHashMap<>(16, 0.75f, true);
            for (int i = 0; i < 100; i++) {
                cache.put(r.nextInt(64), "entry");
                cache.get(r.nextInt(64));
            }
            return cache.size();
        }

        static long text(Random r) {
            return String.join("|", ("the quick brown fox " + r.nextInt()).split("[ aeiou]+")).replaceAll("[0-9]", "#").length();
        }

        static long graph(Random r) {
            ArrayDeque<Integer> queue = new ArrayDeque<>(List.of(1));
            BitSet seen = new BitSet();
            while (!queue.isEmpty() && seen.cardinality() < 100) {
                int at = queue.poll();
                for (int next : new int[] {2 * at % 997, 3 * at % 997, (at + r.nextInt(9)) % 997}) {
                    if (!seen.get(next)) {
                        seen.set(next);
                        queue.add(next);
                    }
                }
            }
            return seen.length();
        }

        static long local(Random r) {
            return NumberFormat.getCurrencyInstance(Locale.GERMANY).format(r.nextDouble() * 1e6).length() + new DecimalFormat("#,##0.00").format(r.nextInt()).length();
        }
    }
}
