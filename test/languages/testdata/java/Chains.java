import java.lang.reflect.Method;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/** Threads whose chains of calls are known: each runs one of the classes below. */
public class Chains {
    static volatile long sink;

    static long burn(int rounds) {
        long x = rounds;
        for (int i = 0; i < rounds * 100; i++) {
            x = x * 6364136223846793005L + (x >>> 7);
        }
        return x;
    }

    static class Recursion implements Runnable {
        public void run() {
            while (true) {
                sink += descend(30);
            }
        }

        static long descend(int n) {
            return n == 0 ? burn(50) : descend(n - 1) + 1;
        }
    }

    static class Streams implements Runnable {
        public void run() {
            while (true) {
                sink += IntStream.range(0, 50).mapToLong(Streams::mapped).sum();
            }
        }

        static long mapped(int i) {
            return burn(i);
        }
    }

    static class Lambdas implements Runnable {
        interface Work {
            long apply(int n);
        }

        public void run() {
            Work[] works = {n -> burn(n), n -> burn(n + 1) + n, n -> ~burn(n)};
            while (true) {
                for (Work w : works) {
                    sink += w.apply(20);
                }
            }
        }
    }

    static class Sorting implements Runnable {
        public void run() {
            Integer[] numbers = new Integer[200];
            while (true) {
                for (int i = 0; i < numbers.length; i++) {
                    numbers[i] = (int) (sink * 31 + i * 7919L) & 1023;
                }
                Arrays.sort(numbers, Sorting::compare);
                sink += numbers[0];
            }
        }

        static int compare(Integer a, Integer b) {
            sink += burn(1);
            return Integer.compare(a, b);
        }
    }

    /** What compilers write out in place, and may push words for, or have stubs for. */
    static class Texts implements Runnable {
        public void run() {
            String[] texts = new String[64];
            for (int i = 0; i < texts.length; i++) {
                texts[i] = "the same beginning of each text, so that it takes a while " + (i % 2 == 0 ? "" : "\u0416") + i * 7919;
            }
            while (true) {
                for (int i = 1; i < texts.length; i++) {
                    sink += compared(texts[i - 1], texts[i]) + searched(texts[i], "while 7") + digested(texts[i]);
                }
                sink += multiplied(3);
            }
        }

        static int compared(String a, String b) {
            return a.compareTo(b) + (a.equals(b) ? 1 : 0);
        }

        static int searched(String in, String what) {
            return in.indexOf(what) + in.indexOf('9') + in.lastIndexOf("same");
        }

        static long digested(String text) {
            CRC32 crc = new CRC32();
            crc.update(text.getBytes(StandardCharsets.UTF_8));
            return crc.getValue() + text.hashCode();
        }

        static int multiplied(int n) {
            BigInteger x = BigInteger.valueOf(n).pow(500);
            return x.multiply(x.add(BigInteger.ONE)).mod(BigInteger.valueOf(1000003)).intValue();
        }
    }

    static class Copying implements Runnable {
        public void run() {
            byte[] from = new byte[1 << 16], to = new byte[1 << 16];
            while (true) {
                copy(from, to);
                sink += to[17];
            }
        }

        static void copy(byte[] from, byte[] to) {
            for (int i = 0; i < 64; i++) {
                System.arraycopy(from, i, to, 64 - i, from.length - 64);
            }
        }
    }

    static class Deflating implements Runnable {
        public void run() {
            byte[] data = new byte[1 << 15], out = new byte[1 << 16];
            for (int i = 0; i < data.length; i++) {
                data[i] = (byte) (i * i >> 5);
            }
            while (true) {
                sink += deflate(data, out);
            }
        }

        static int deflate(byte[] data, byte[] out) {
            Deflater d = new Deflater();
            d.setInput(data);
            d.finish();
            int n = d.deflate(out);
            d.end();
            return n;
        }
    }

    static class Throwing implements Runnable {
        public void run() {
            while (true) {
                try {
                    raise(10);
                } catch (IllegalStateException e) {
                    sink += e.getStackTrace().length;
                }
            }
        }

        static void raise(int n) {
            if (n == 0) {
                throw new IllegalStateException("thrown on purpose");
            }
            raise(n - 1);
        }
    }

    static class Locking implements Runnable {
        static final Object lock = new Object();

        public void run() {
            while (true) {
                guarded();
            }
        }

        static void guarded() {
            synchronized (lock) {
                sink += held();
            }
        }

        static synchronized long held() {
            return burn(20);
        }
    }

    public static class Reflecting implements Runnable {
        public void run() {
            try {
                Method m = Reflecting.class.getMethod("reflected", int.class);
                while (true) {
                    sink += (Long) m.invoke(null, 20);
                }
            } catch (ReflectiveOperationException e) {
                throw new RuntimeException(e);
            }
        }

        public static long reflected(int n) {
            return burn(n);
        }
    }

    /** Compiled code that is proven wrong again and again. */
    static class Trapping implements Runnable {
        abstract static class Shape {
            abstract long area();
        }

        static class A extends Shape {
            long area() {
                return burn(3);
            }
        }

        static class B extends Shape {
            long area() {
                return burn(4);
            }
        }

        static class C extends Shape {
            long area() {
                return burn(5);
            }
        }

        public void run() {
            for (int round = 0; true; round++) {
                Shape[] shapes = {new A(), round % 3 > 0 ? new B() : new A(), round % 3 > 1 ? new C() : new A(), null};
                for (int i = 0; i < 20000; i++) {
                    sink += total(shapes, i == 19999 ? 4 : 3);
                }
            }
        }

        static long total(Shape[] shapes, int n) {
            long sum = 0;
            for (int i = 0; i < n; i++) {
                try {
                    sum += shapes[i].area();
                } catch (NullPointerException e) {
                    sum += 1;
                }
            }
            return sum;
        }
    }

    public static void main(String[] args) throws Exception {
        for (String name : args) {
            Runnable work = (Runnable) Class.forName("Chains$" + name).getDeclaredConstructor().newInstance();
            new Thread(work, name).start();
        }
        Thread.sleep(1000);
        System.out.println("ready");
    }
}
