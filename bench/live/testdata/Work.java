import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.StringReader;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.invoke.VarHandle;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.time.LocalDate;
import java.time.format.DateTimeFormatter;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.*;
import javax.crypto.Cipher;
import javax.crypto.Mac;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/** What a request may ask for: the parts of the library that servers spend their time in. */
class Work {
    /** One kind of work, some milliseconds of it. */
    interface Job {
        Object run(int seed) throws Throwable;
    }

    static final List<Job> JOBS = List.of(Work::json, Work::regex, Work::words, Work::sorted, Work::streams, Work::big, Work::zipped,
            Work::encrypted, Work::signed, Work::thrown, Work::logged, Work::locked, Work::garbage, Work::futures, Work::reflected,
            Work::handles, Work::files, Work::proxied, Work::dated, Work::cached, Work::arrays, Work::matrix, Work::switched, Work::parsed,
            Work::recursive, Work::encoded, Work::parallel);

    static final class Item implements Comparable<Item> {
        final int id;
        final String name;
        final double price;
        final List<String> tags;

        Item(int id) {
            this.id = id;
            this.name = "item-" + Integer.toHexString(id * 7919) + (id % 5 == 0 ? " größer" : " plain");
            this.price = id * 1.19;
            this.tags = List.of("a" + id % 7, "b" + id % 11, "c");
        }

        @Override
        public int compareTo(Item o) {
            return name.compareTo(o.name);
        }

        @Override
        public int hashCode() {
            return Objects.hash(id, name);
        }

        @Override
        public boolean equals(Object o) {
            return o instanceof Item && ((Item) o).name.equals(name);
        }

        public String label() {
            return String.format("%05d %-12s %.2f", id, name, price);
        }
    }

    static final List<Item> ITEMS = IntStream.range(0, 2000).mapToObj(Item::new).collect(Collectors.toList());
    static final String TEXT = ITEMS.stream().map(Item::label).collect(Collectors.joining("\n"));
    static final byte[] BYTES = TEXT.getBytes(StandardCharsets.UTF_8);

    static void quote(StringBuilder b, String s) {
        b.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\') {
                b.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                b.append(String.format("\\u%04x", (int) c));
            } else {
                b.append(c);
            }
        }
        b.append('"');
    }

    static Object json(int seed) {
        StringBuilder b = new StringBuilder("[");
        for (Item i : ITEMS.subList(seed % 100, seed % 100 + 500)) {
            b.append(b.length() > 1 ? ",{" : "{").append("\"id\":").append(i.id).append(",\"price\":").append(i.price).append(",\"name\":");
            quote(b, i.name);
            b.append(",\"tags\":[");
            for (String t : i.tags) {
                quote(b, t);
                b.append(',');
            }
            b.append("null]}");
        }
        return b.append(']').toString().length();
    }

    /** Reads what json writes: a recursive descent, as every parser is. */
    static Object parsed(int seed) {
        StringBuilder b = new StringBuilder("[");
        for (int i = 0; i < 300; i++) {
            b.append(i > 0 ? "," : "").append("{\"n\":").append(i * 1.5).append(",\"s\":\"text ").append(i ^ seed).append("\",\"l\":[1,[2,[3,[]]]]}");
        }
        return new Parser(b.append("]").toString()).value().hashCode();
    }

    static final class Parser {
        final String text;
        int at;

        Parser(String text) {
            this.text = text;
        }

        Object value() {
            switch (text.charAt(at)) {
                case '[':
                    List<Object> list = new ArrayList<>();
                    for (at++; text.charAt(at) != ']'; ) {
                        list.add(value());
                        at += text.charAt(at) == ',' ? 1 : 0;
                    }
                    at++;
                    return list;
                case '{':
                    Map<String, Object> map = new LinkedHashMap<>();
                    for (at++; text.charAt(at) != '}'; ) {
                        String key = string();
                        at++;
                        map.put(key, value());
                        at += text.charAt(at) == ',' ? 1 : 0;
                    }
                    at++;
                    return map;
                case '"':
                    return string();
                default:
                    int from = at;
                    while ("0123456789.-E".indexOf(text.charAt(at)) >= 0) {
                        at++;
                    }
                    return Double.parseDouble(text.substring(from, at));
            }
        }

        String string() {
            int end = text.indexOf('"', at + 1);
            String s = text.substring(at + 1, end);
            at = end + 1;
            return s;
        }
    }

    static final Pattern LABEL = Pattern.compile("(?m)^(\\d{5}) (item-[0-9a-f]+)\\s+(größer|plain)\\s+([0-9.]+)$");

    static Object regex(int seed) {
        int n = 0;
        for (Matcher m = LABEL.matcher(TEXT.substring(seed % 1000, 30000)); m.find(); ) {
            n += m.group(2).length() + m.start(3);
        }
        return n + TEXT.substring(0, 5000).replaceAll("i(t|x)em-([0-9]*)", "<$2>").split("\\s+").length;
    }

    static Object words(int seed) {
        Map<String, Integer> count = new HashMap<>();
        for (String word : TEXT.substring(seed % 100, 40000).split("[ \n]")) {
            count.merge(word.toLowerCase(Locale.ROOT).trim(), 1, Integer::sum);
        }
        String all = String.join("|", count.keySet());
        return all.indexOf("item-zz") + all.lastIndexOf("item-1") + all.replace("item", "thing").hashCode() + (all.contains("größer") ? 1 : 0)
                + all.substring(10, 2000).compareTo(all.substring(9, 1999)) + all.repeat(2).strip().chars().filter(Character::isDigit).count();
    }

    static Object sorted(int seed) {
        List<Item> some = new ArrayList<>(ITEMS);
        Collections.shuffle(some, new Random(seed));
        some.sort(Comparator.comparing((Item i) -> i.tags.get(0)).thenComparing(i -> i.name, Comparator.reverseOrder()));
        TreeMap<String, Item> tree = new TreeMap<>();
        for (Item i : some) {
            tree.put(i.name, i);
        }
        PriorityQueue<Item> queue = new PriorityQueue<>(some);
        int sum = tree.headMap("item-5").size();
        for (int i = 0; i < 500; i++) {
            sum += queue.remove().id;
        }
        int[] numbers = some.stream().mapToInt(i -> i.id * 31 % 1009).toArray();
        Arrays.sort(numbers);
        return sum + numbers[7] + Arrays.binarySearch(numbers, 500);
    }

    static Object streams(int seed) {
        Map<String, Double> by = ITEMS.stream().filter(i -> i.id % 3 != seed % 3).flatMap(i -> i.tags.stream().map(t -> Map.entry(t, i.price)))
                .collect(Collectors.groupingBy(Map.Entry::getKey, TreeMap::new, Collectors.summingDouble(Map.Entry::getValue)));
        Optional<Item> most = ITEMS.stream().sorted().skip(10).limit(1000).distinct().max(Comparator.comparingDouble(i -> i.price % 97));
        return by.hashCode() + most.get().id + IntStream.rangeClosed(1, 3000).boxed().reduce(0, Integer::sum);
    }

    static Object parallel(int seed) {
        return IntStream.range(0, 20000).parallel().mapToObj(i -> Integer.toString(i + seed, 36)).filter(s -> s.endsWith("a")).collect(Collectors.toSet()).size();
    }

    static Object big(int seed) {
        BigInteger x = BigInteger.valueOf(seed + 3).pow(300), modulus = BigInteger.ONE.shiftLeft(521).subtract(BigInteger.ONE);
        BigDecimal sum = BigDecimal.ZERO;
        for (int i = 1; i < 60; i++) {
            sum = sum.add(BigDecimal.ONE.divide(BigDecimal.valueOf(i + seed), 60, RoundingMode.HALF_EVEN));
        }
        return x.modPow(BigInteger.valueOf(65537), modulus).multiply(x).toString(36).length() + sum.toString().length() + x.gcd(modulus).bitLength();
    }

    static Object zipped(int seed) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (GZIPOutputStream zip = new GZIPOutputStream(out)) {
            zip.write(BYTES, seed % 100, 40000);
        }
        int n = 0;
        try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(out.toByteArray()))) {
            byte[] buffer = new byte[512];
            for (int got; (got = in.read(buffer)) > 0; ) {
                n += got;
            }
        }
        CRC32 crc = new CRC32();
        crc.update(BYTES);
        Adler32 adler = new Adler32();
        adler.update(ByteBuffer.wrap(BYTES));
        return n + crc.getValue() + adler.getValue();
    }

    static Object encrypted(int seed) throws Exception {
        SecretKeySpec key = new SecretKeySpec(Arrays.copyOf(BYTES, 16), "AES");
        Cipher gcm = Cipher.getInstance("AES/GCM/NoPadding"), cbc = Cipher.getInstance("AES/CBC/PKCS5Padding");
        byte[] nonce = ByteBuffer.allocate(12).putInt(seed).putLong(System.nanoTime()).array();
        gcm.init(Cipher.ENCRYPT_MODE, key, new GCMParameterSpec(128, nonce));
        cbc.init(Cipher.ENCRYPT_MODE, key);
        return gcm.doFinal(BYTES, 0, 20000).length + cbc.doFinal(BYTES, 0, 20000).length;
    }

    static Object signed(int seed) throws Exception {
        int sum = 0;
        for (String name : List.of("SHA-256", "SHA-1", "MD5", "SHA-512", "SHA3-256")) {
            MessageDigest digest = MessageDigest.getInstance(name);
            digest.update((byte) seed);
            sum += digest.digest(BYTES)[0];
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(nonEmpty(seed), "HmacSHA256"));
        return sum + mac.doFinal(BYTES)[3];
    }

    static byte[] nonEmpty(int seed) {
        return Integer.toString(seed).getBytes(StandardCharsets.US_ASCII);
    }

    static int deep(int n, int seed) throws IOException {
        if (n == 0) {
            throw new IOException("refused " + seed);
        }
        try {
            return deep(n - 1, seed) + 1;
        } finally {
            depth.addAndGet(n);
        }
    }

    static final AtomicLong depth = new AtomicLong();

    static Object thrown(int seed) {
        int caught = 0;
        for (int i = 0; i < 60; i++) {
            try {
                caught += deep(10 + i % 20, seed);
            } catch (IOException e) {
                caught += e.getStackTrace().length;
            }
            try {
                caught += Integer.parseInt("12x" + i);
            } catch (NumberFormatException e) {
                caught += e.getMessage().length();
            }
            try {
                Object[] none = i % 2 == 0 ? null : new Object[1];
                caught += none[i % 3].hashCode();
            } catch (NullPointerException | ArrayIndexOutOfBoundsException e) {
                caught++;
            }
        }
        return caught;
    }

    static final Logger LOG = Logger.getLogger("atys");
    static final SimpleFormatter FORMAT = new SimpleFormatter();

    static {
        LOG.setUseParentHandlers(false);
        LOG.addHandler(new Handler() {
            @Override
            public void publish(LogRecord record) {
                depth.addAndGet(FORMAT.format(record).length());
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        });
    }

    static Object logged(int seed) {
        for (int i = 0; i < 40; i++) {
            LOG.info("request " + i + " of " + seed);
            LOG.log(java.util.logging.Level.WARNING, "slow: {0} took {1} ms", new Object[] {seed, i});
            LOG.fine(() -> "never");
        }
        return depth.get();
    }

    static final ReentrantLock LOCK = new ReentrantLock(true);
    static final Object MONITOR = new Object();
    static final Map<Integer, Long> TOTALS = new HashMap<>();

    static Object locked(int seed) {
        long sum = 0;
        for (int i = 0; i < 400; i++) {
            synchronized (MONITOR) {
                sum += TOTALS.merge(i % 50, (long) seed, Long::sum);
            }
            if (i % 8 == 0) {
                LOCK.lock();
                try {
                    sum += Long.hashCode(sum * i);
                } finally {
                    LOCK.unlock();
                }
            }
        }
        return sum;
    }

    static volatile Object[] kept = new Object[1000];

    static Object garbage(int seed) {
        long sum = 0;
        for (int i = 0; i < 20000; i++) {
            byte[] b = new byte[64 + i % 128];
            b[3] = (byte) i;
            kept[(i + seed) % kept.length] = i % 10 == 0 ? new Object[] {b, kept[i % kept.length] == null ? null : "x" + i} : b;
            sum += b[3];
        }
        return sum;
    }

    static Object futures(int seed) throws Exception {
        CompletableFuture<Integer> sum = CompletableFuture.completedFuture(seed);
        for (int i = 0; i < 20; i++) {
            int n = i;
            sum = sum.thenCombine(CompletableFuture.supplyAsync(() -> ITEMS.get(n).label().hashCode()), Integer::sum).thenApply(x -> x ^ n);
        }
        return sum.exceptionally(e -> 0).get(10, TimeUnit.SECONDS);
    }

    static final Method LABELS;
    static final MethodHandle HANDLE, BOUND;
    static final VarHandle ELEMENTS = MethodHandles.arrayElementVarHandle(long[].class);

    static {
        try {
            LABELS = Item.class.getMethod("label");
            HANDLE = MethodHandles.lookup().findVirtual(String.class, "concat", MethodType.methodType(String.class, String.class));
            BOUND = MethodHandles.filterReturnValue(MethodHandles.insertArguments(HANDLE, 1, "!"),
                    MethodHandles.lookup().findVirtual(String.class, "length", MethodType.methodType(int.class)));
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    static Object reflected(int seed) throws Exception {
        int sum = 0;
        for (int i = 0; i < 100; i++) {
            sum += ((String) LABELS.invoke(ITEMS.get((i + seed) % 1000))).length();
            sum += Item.class.getDeclaredConstructor(int.class).newInstance(i).id;
        }
        return sum + Item.class.getDeclaredFields().length;
    }

    static Object handles(int seed) throws Throwable {
        int sum = 0;
        long[] counters = new long[16];
        for (int i = 0; i < 2000; i++) {
            sum += (int) BOUND.invokeExact("s" + i);
            String joined = (String) HANDLE.invoke("a", "b" + seed);
            ELEMENTS.getAndAdd(counters, i & 15, (long) joined.length());
        }
        return sum + counters[3];
    }

    static Object files(int seed) throws IOException {
        Path path = Files.createTempFile("live", ".txt");
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.WRITE, StandardOpenOption.READ)) {
            ByteBuffer direct = ByteBuffer.allocateDirect(8192);
            for (int i = 0; i < 8; i++) {
                direct.clear();
                direct.put(BYTES, i * 1000, 8000).flip();
                channel.write(direct);
            }
            ByteBuffer map = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            return StandardCharsets.UTF_8.decode(map).length() + Files.readAllLines(path, StandardCharsets.ISO_8859_1).size() + seed;
        } finally {
            Files.delete(path);
        }
    }

    static Object proxied(int seed) {
        @SuppressWarnings("unchecked")
        Comparator<Item> proxy = (Comparator<Item>) Proxy.newProxyInstance(Work.class.getClassLoader(), new Class<?>[] {Comparator.class},
                (self, method, args) -> ((Item) args[0]).name.compareTo(((Item) args[1]).name));
        List<Item> some = new ArrayList<>(ITEMS.subList(seed % 100, seed % 100 + 300));
        Collections.shuffle(some, new Random(seed));
        some.sort(proxy);
        return some.get(0).id;
    }

    static Object dated(int seed) {
        DateTimeFormatter format = DateTimeFormatter.ofPattern("EEEE, d MMMM uuuu", Locale.ENGLISH);
        int sum = 0;
        for (int i = 0; i < 100; i++) {
            LocalDate day = LocalDate.of(2000 + seed % 20, 1, 1).plusDays(i * 37);
            sum += LocalDate.parse(day.format(format), format).getDayOfYear();
        }
        return sum;
    }

    static final ConcurrentHashMap<String, Item> CACHE = new ConcurrentHashMap<>();
    static final LinkedHashMap<Integer, String> LRU = new LinkedHashMap<>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Integer, String> eldest) {
            return size() > 500;
        }
    };

    static Object cached(int seed) {
        int sum = 0;
        for (int i = 0; i < 2000; i++) {
            sum += CACHE.computeIfAbsent("k" + (i * 17 + seed) % 3000, k -> new Item(k.hashCode() & 0xffff)).id;
            if (i % 4 == 0) {
                synchronized (LRU) {
                    sum += LRU.computeIfAbsent((i + seed) % 900, Integer::toBinaryString).length();
                }
            }
        }
        return sum + CACHE.reduceValuesToInt(64, i -> i.id, 0, Integer::sum);
    }

    static Object arrays(int seed) {
        byte[] a = BYTES.clone(), b = Arrays.copyOf(a, a.length + 10);
        Arrays.fill(b, a.length, b.length, (byte) seed);
        System.arraycopy(a, 0, b, 1, a.length / 2);
        long[] longs = new long[5000];
        Arrays.setAll(longs, i -> i * 31L + seed);
        Arrays.parallelPrefix(longs, Long::sum);
        char[] chars = TEXT.toCharArray();
        return Arrays.equals(a, 0, 999, b, 0, 999) ? 1 : Arrays.mismatch(a, b) + Arrays.hashCode(longs) + Arrays.hashCode(chars) + Arrays.hashCode(b);
    }

    static Object matrix(int seed) {
        double[][] a = new double[60][60], b = new double[60][60], c = new double[60][60];
        for (int i = 0; i < 60; i++) {
            for (int j = 0; j < 60; j++) {
                a[i][j] = Math.sin(i * j + seed);
                b[i][j] = Math.pow(1.01, j) + Math.log1p(i);
            }
        }
        for (int i = 0; i < 60; i++) {
            for (int j = 0; j < 60; j++) {
                for (int k = 0; k < 60; k++) {
                    c[i][j] = Math.fma(a[i][k], b[k][j], c[i][j]);
                }
            }
        }
        return c[3][4] % 7 + Math.floorMod(seed, 13) + Math.exp(c[1][1] % 1) + Math.tan(seed) + Math.cbrt(seed);
    }

    static Object switched(int seed) {
        int sum = 0;
        for (int i = 0; i < 5000; i++) {
            switch (ITEMS.get((i + seed) % 1000).tags.get(0)) {
                case "a1":
                    sum += 1;
                    break;
                case "a2":
                    sum ^= i;
                    break;
                case "a5":
                    sum -= i;
                    break;
                default:
                    sum += TimeUnit.values()[i % 7].ordinal();
            }
        }
        return sum;
    }

    static long fibonacci(int n) {
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    }

    static Object recursive(int seed) {
        return fibonacci(20 + seed % 4);
    }

    static Object encoded(int seed) throws IOException {
        String text = Base64.getMimeEncoder().encodeToString(Arrays.copyOf(BYTES, 20000 + seed % 7));
        Scanner scanner = new Scanner(new StringReader(TEXT.substring(0, 3000)));
        int n = 0;
        while (scanner.hasNext()) {
            n += scanner.next().length();
        }
        return n + Base64.getMimeDecoder().decode(text).length + new String(BYTES, StandardCharsets.ISO_8859_1).getBytes(StandardCharsets.UTF_16).length
                + UUID.nameUUIDFromBytes(BYTES).hashCode() + java.net.URLEncoder.encode(TEXT.substring(0, 2000), StandardCharsets.UTF_8).length();
    }

    static final AtomicLong NEXT = new AtomicLong();

    /** Does the next kind of work, twice over, and tells what came of it. */
    static byte[] answer() {
        int seed = (int) NEXT.getAndIncrement();
        try {
            Object one = JOBS.get(seed % JOBS.size()).run(seed & 0xffff);
            Object two = JOBS.get((seed / 7) % JOBS.size()).run(seed & 0xffff);
            return ("{\"one\":\"" + one + "\",\"two\":\"" + two + "\"}\n").getBytes(StandardCharsets.UTF_8);
        } catch (Throwable e) {
            e.printStackTrace();
            throw new IllegalStateException(e);
        }
    }
}
