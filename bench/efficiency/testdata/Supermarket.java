import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * A supermarket's service of many threads, in the manner of SPECjbb: a few of them are
 * at work at any time, on six kinds of business whose shares of the CPU time are another
 * in each phase of its day. It logs how much each kind took.
 *
 * <p>Within a phase the mix is steady: what is furthest behind its share comes next.
 */
public class Supermarket {
    static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    static final long SECOND = 1_000_000_000, CALL = 300_000; // CPU time of a call, about

    static final String[] NAMES = {"InStorePurchase.doCheckout", "InStorePurchase.doPurchase", "OnlinePurchase.doCheckout",
        "SupermarketAudit.analyze", "SupermarketAudit.summarizeReceipt", "CategoryAssociation.execute"};

    /** The share of each kind of business, by phase. */
    static final double[][] SHARES = {
        {0.40, 0.20, 0.15, 0.10, 0.08, 0.07},
        {0.15, 0.10, 0.45, 0.10, 0.12, 0.08},
        {0.10, 0.12, 0.10, 0.40, 0.18, 0.10},
        {0.12, 0.30, 0.08, 0.08, 0.12, 0.30},
    };

    /** How much a call of each kind does; fixed once all are compiled, so that calls count work. */
    static final int[] SIZES = new int[NAMES.length];

    static volatile long sink;

    static long call(int kind, int size, long x) {
        switch (kind) {
            case 0: return InStorePurchase.doCheckout(size, x);
            case 1: return InStorePurchase.doPurchase(size, x);
            case 2: return OnlinePurchase.doCheckout(size, x);
            case 3: return SupermarketAudit.analyze(size, x);
            case 4: return SupermarketAudit.summarizeReceipt(size, x);
            default: return CategoryAssociation.execute(size, x);
        }
    }

    /** Told: seconds of a window, threads at work at any time, all threads, and the phases of the day. */
    public static void main(String[] args) {
        long window = (long) (Double.parseDouble(args[0]) * SECOND);
        int busy = Integer.parseInt(args[1]), threads = Integer.parseInt(args[2]);
        open(3 * SECOND);
        Log log = new Log(window);
        Crew crew = new Crew(threads);
        System.out.println("{\"pid\":" + ProcessHandle.current().pid() + "}");
        System.out.flush();
        Day day = new Day(args[3], log);
        for (int i = 0; i < busy; i++) {
            crew.take(new Lane(day, log, i));
        }
        LockSupport.parkUntil((day.end() + SECOND / 2) / 1_000_000 + 1);
        while (now() < day.end()) {
            LockSupport.parkNanos(SECOND / 10);
        }
        System.exit(0);
    }

    /** Does business until all of it is compiled, and finds how much of it is a call. */
    static void open(long length) {
        Arrays.fill(SIZES, 10);
        for (long end = System.nanoTime() + length; System.nanoTime() < end;) {
            for (int kind = 0; kind < NAMES.length; kind++) {
                long began = CLOCK.getCurrentThreadCpuTime();
                sink += call(kind, SIZES[kind], began);
                double off = (double) CALL / (CLOCK.getCurrentThreadCpuTime() - began + 1);
                SIZES[kind] = (int) Math.ceil(SIZES[kind] * Math.min(Math.max(Math.sqrt(off), 0.7), 1.5));
            }
        }
    }

    /** The wall clock, by which windows are aligned. */
    static long now() {
        Instant t = Instant.now();
        return t.getEpochSecond() * SECOND + t.getNano();
    }
}

/** The phases of a run, and in which of them it is. */
class Day {
    private final int[] phases;
    private final double[] loads; // part of the time that is worked
    private final long[] ends;
    private final Log log;
    private volatile int at;

    Day(String text, Log log) {
        String[] steps = text.split(" ");
        phases = new int[steps.length];
        loads = new double[steps.length];
        ends = new long[steps.length];
        long end = Supermarket.now();
        for (int i = 0; i < steps.length; i++) { // such as 2@0.5x93.250
            String[] parts = steps[i].split("[@x]");
            phases[i] = Integer.parseInt(parts[0]);
            loads[i] = Double.parseDouble(parts[1]);
            ends[i] = end += (long) (Double.parseDouble(parts[2]) * Supermarket.SECOND);
        }
        this.log = log;
    }

    /** The step of an instant; that it has begun is logged once. After the last it is the last. */
    int step(long now) {
        while (at + 1 < ends.length && now >= ends[at]) {
            advance(now);
        }
        return at;
    }

    private synchronized void advance(long now) {
        if (at + 1 < ends.length && now >= ends[at]) {
            log.change(ends[at], phases[at + 1]);
            at++;
        }
    }

    int phase(int step) { return phases[step]; }

    double load(int step) { return loads[step]; }

    long end() { return ends[ends.length - 1]; }
}

/** CPU time of each kind of business, and the calls that were done, by window. */
class Log {
    private static final long LATE = Supermarket.SECOND; // that a call may end after the window it began in

    private final long window, first;
    private final TreeMap<Long, double[]> open = new TreeMap<>(); // by the window's start: ns by kind, then calls

    Log(long window) {
        this.window = window;
        first = Supermarket.now();
    }

    synchronized void change(long at, int phase) {
        System.out.println("{\"change\":" + at + ",\"phase\":" + phase + "}");
    }

    /** Adds a call. One across an edge is split in proportion to the time on either side. */
    synchronized void add(int kind, long began, long ended, long cpu) {
        for (long start = began / window * window; start < ended; start += window) {
            double part = (double) (Math.min(ended, start + window) - Math.max(began, start)) / (ended - began);
            double[] sums = open.computeIfAbsent(start, k -> new double[Supermarket.NAMES.length + 1]);
            sums[kind] += part * cpu;
            sums[Supermarket.NAMES.length] += part;
        }
        while (open.firstKey() + window + LATE < ended) {
            print(open.pollFirstEntry());
        }
    }

    private void print(Map.Entry<Long, double[]> of) {
        if (of.getKey() < first) {
            return; // it was not whole
        }
        StringBuilder line = new StringBuilder("{\"window\":").append(of.getKey()).append(",\"ns\":{");
        for (int i = 0; i < Supermarket.NAMES.length; i++) {
            line.append(i > 0 ? "," : "").append('"').append(Supermarket.NAMES[i]).append("\":").append(Math.round(of.getValue()[i]));
        }
        System.out.println(line.append("},\"done\":").append(of.getValue()[Supermarket.NAMES.length]).append('}'));
    }
}

/** One of the flows of work that threads hand to each other. */
class Lane {
    private static final int CALLS = 80; // a thread does before it hands on

    private final Day day;
    private final Log log;
    private final double[] used = new double[Supermarket.NAMES.length];
    private double all;
    private int step = -1;
    private long x;
    double turn; // who comes next, see Crew

    Lane(Day day, Log log, int number) {
        this.day = day;
        this.log = log;
        x = number;
        turn = number * 0.381966;
    }

    /** What a thread does when it has its turn. */
    void work() {
        long cpu = 0;
        for (int i = 0; i < CALLS; i++) {
            cpu += call();
        }
        double load = day.load(step);
        if (load < 1) {
            LockSupport.parkNanos((long) (cpu * (1 / load - 1)));
        }
    }

    private long call() {
        long began = Supermarket.now(), before = Supermarket.CLOCK.getCurrentThreadCpuTime();
        if (day.step(began) != step) {
            step = day.step(began);
            Arrays.fill(used, 0);
            all = 0;
        }
        int kind = behind(Supermarket.SHARES[day.phase(step)]);
        x = Supermarket.call(kind, Supermarket.SIZES[kind], x + 1);
        long cpu = Supermarket.CLOCK.getCurrentThreadCpuTime() - before;
        log.add(kind, began, Supermarket.now(), cpu);
        used[kind] += cpu;
        all += cpu;
        return cpu;
    }

    /** The kind of business that is furthest behind its share. */
    private int behind(double[] shares) {
        int most = 0;
        for (int i = 1; i < shares.length; i++) {
            if (shares[i] * (all + Supermarket.CALL) - used[i] > shares[most] * (all + Supermarket.CALL) - used[most]) {
                most = i;
            }
        }
        return most;
    }
}

/** The threads. As Figure 4 of the paper has it, 24% of them do 90% of the work, and 46% do 99%. */
class Crew {
    private final Clerk[] clerks;
    private final double[] until; // the sum of the shares of all up to one

    Crew(int threads) {
        clerks = new Clerk[threads];
        until = new double[threads];
        double sum = 0;
        for (int i = 0; i < threads; i++) {
            until[i] = sum += share(i, threads);
            clerks[i] = new Clerk(this, i);
            clerks[i].start();
        }
        for (int i = 0; i < threads; i++) {
            until[i] /= sum;
        }
    }

    private static double share(int i, int threads) {
        double at = (i + 0.5) / threads;
        if (at < 0.24) {
            return 0.90 / 0.24 * Math.pow(4, 0.5 - at / 0.24);
        }
        return at < 0.46 ? 0.09 / 0.22 : 0.01 / 0.54;
    }

    /**
     * Finds who works on, and is idle. Turns go around by the golden ratio, so that each
     * has its share of any stretch of time, and no order repeats itself.
     */
    void take(Lane lane) {
        while (true) {
            lane.turn = (lane.turn + 0.6180339887498949) % 1;
            int at = Arrays.binarySearch(until, lane.turn);
            if (clerks[Math.min(at < 0 ? -at - 1 : at, clerks.length - 1)].offer(lane)) {
                return;
            }
        }
    }
}

/** A thread that waits for its turn. */
class Clerk extends Thread {
    private final Crew crew;
    private final AtomicReference<Lane> lane = new AtomicReference<>();

    Clerk(Crew crew, int number) {
        super(null, null, "clerk-" + number, 256 << 10);
        this.crew = crew;
        setDaemon(true);
    }

    boolean offer(Lane work) {
        boolean idle = lane.compareAndSet(null, work);
        if (idle) {
            LockSupport.unpark(this);
        }
        return idle;
    }

    @Override
    public void run() {
        while (true) {
            Lane mine = lane.get();
            if (mine == null) {
                LockSupport.park(this);
                continue;
            }
            mine.work();
            lane.set(null);
            crew.take(mine);
        }
    }
}

/** What is for sale. */
class Catalog {
    static final int ITEMS = 1 << 14;
    static final int[] PRICES = new int[ITEMS], CATEGORIES = new int[ITEMS];
    static final String[] LABELS = new String[ITEMS];
    static final HashMap<String, Integer> SHELVES = new HashMap<>();

    static {
        for (int i = 0; i < ITEMS; i++) {
            PRICES[i] = 99 + i * 7919 % 9901;
            CATEGORIES[i] = i * 31 % 97;
            LABELS[i] = "product-" + i * 7919 % ITEMS;
            SHELVES.put(LABELS[i], i);
        }
    }

    static long next(long x) { return x * 6364136223846793005L + 1442695040888963407L; }

    static int item(long x) { return (int) (x >>> 40) & (ITEMS - 1); }
}

class InStorePurchase {
    /** Adds up baskets as a till does. */
    static long doCheckout(int size, long x) {
        long total = 0;
        for (int i = 0; i < size; i++) {
            x = Catalog.next(x);
            total += priceOf(Catalog.item(x), (int) (x >>> 20) & 7);
            if (i % 16 == 15) {
                total -= discount(total);
            }
        }
        return total;
    }

    private static long priceOf(int item, int pieces) {
        int price = Catalog.PRICES[item];
        return pieces > 5 ? price * (long) pieces * 95 / 100 : price * (long) pieces;
    }

    private static long discount(long total) {
        long off = 0;
        for (long rest = total; rest > 1000; rest /= 10) {
            off += rest % 10;
        }
        return off;
    }

    /** Looks up what was bought, and where it stands. */
    static long doPurchase(int size, long x) {
        long found = 0;
        for (int i = 0; i < size; i++) {
            x = Catalog.next(x);
            found += Catalog.SHELVES.get(Catalog.LABELS[Catalog.item(x)]);
            found ^= x >>> 50;
        }
        return found;
    }
}

class OnlinePurchase {
    /** Checks cards, and what it costs to ship. */
    static long doCheckout(int size, long x) {
        long shipped = 0;
        for (int i = 0; i < size; i++) {
            x = Catalog.next(x);
            if (valid(x >>> 8)) {
                shipped += freight((int) (x >>> 33) & 1023);
            }
        }
        return shipped;
    }

    private static boolean valid(long card) {
        int sum = 0;
        boolean twice = false;
        for (long rest = card; rest > 0; rest /= 10) {
            int digit = (int) (rest % 10) << (twice ? 1 : 0);
            sum += digit > 9 ? digit - 9 : digit;
            twice = !twice;
        }
        return sum % 10 != 0;
    }

    private static int freight(int grams) {
        int zone = 1;
        while (grams > 50) {
            grams -= grams / 3;
            zone++;
        }
        return zone;
    }
}

class SupermarketAudit {
    private static final ThreadLocal<int[]> AMOUNTS = ThreadLocal.withInitial(() -> new int[256]);
    private static final ThreadLocal<StringBuilder> PAPER = ThreadLocal.withInitial(() -> new StringBuilder(4096));

    /** Finds what receipts have in the middle. */
    static long analyze(int size, long x) {
        int[] amounts = AMOUNTS.get();
        long middles = 0;
        for (int done = 0; done < size; done += 16) {
            for (int i = 0; i < amounts.length; i++) {
                x = Catalog.next(x);
                amounts[i] = (int) (x >>> 44);
            }
            Arrays.sort(amounts);
            middles += amounts[amounts.length / 2];
        }
        return middles;
    }

    /** Writes receipts. */
    static long summarizeReceipt(int size, long x) {
        StringBuilder paper = PAPER.get();
        long length = 0;
        for (int i = 0; i < size; i++) {
            x = Catalog.next(x);
            line(paper, Catalog.item(x));
            if (paper.length() > 4000) {
                length += paper.length();
                paper.setLength(0);
            }
        }
        return length;
    }

    private static void line(StringBuilder paper, int item) {
        paper.append(Catalog.LABELS[item]).append(' ').append(Catalog.PRICES[item] / 100).append('.').append(Catalog.PRICES[item] % 100).append('\n');
    }
}

class CategoryAssociation {
    private static final int CATEGORIES = 97;
    private static final ThreadLocal<int[]> PAIRS = ThreadLocal.withInitial(() -> new int[CATEGORIES * CATEGORIES]);

    /** Counts which categories are bought together. */
    static long execute(int size, long x) {
        int[] pairs = PAIRS.get();
        int before = 0, most = 0;
        for (int i = 0; i < size; i++) {
            x = Catalog.next(x);
            int category = Catalog.CATEGORIES[Catalog.item(x)];
            most = Math.max(most, count(pairs, before, category));
            before = category;
        }
        return most;
    }

    private static int count(int[] pairs, int a, int b) {
        int at = a < b ? a * CATEGORIES + b : b * CATEGORIES + a;
        return pairs[at] += 1;
    }
}
