import java.lang.reflect.Method;
import java.util.concurrent.locks.LockSupport;

/**
 * A server of virtual threads that wait in the middle of a chain of 20 calls,
 * and go on: their older frames are in the heap then. Compiled for 11, so
 * virtual threads are found by name.
 */
public class Waiting {
    static volatile long sink;
    static volatile byte[] garbage;

    /** Makes garbage, too: collections move the stacks in the heap. */
    static long burn(long x) {
        for (int i = 0; i < 12000; i++) {
            x = x * 6364136223846793005L + (x >>> 7);
        }
        garbage = new byte[(int) (x & 4095)];
        return x;
    }

    static class Chain implements Runnable {
        final Object lock = new Object();

        public void run() {
            while (true) {
                sink += c01(1);
            }
        }

        long c01(long x) { return c02(x, 2) + burn(x); }
        long c02(long x, int y) { return c03(x + y) + burn(x); }
        long c03(long x) { return c04(x, 1, 2, 3, 4, 5, 6, 7, 8, 9) + burn(x); }

        /** More arguments than there are registers for. */
        long c04(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j) {
            return c05(a + b + c, d + e + f + g + h + i + j) + burn(a);
        }

        long c05(long x, double y) { return c06(x + (long) y) + burn(x); }
        long c06(long x) {
            synchronized (lock) {
                return c07(x) + burn(x);
            }
        }
        long c07(long x) { return c08(x, 1, 2, 3, 4, 5, 6, 7, 8) + burn(x); }
        long c08(long a, long b, long c, long d, long e, long f, long g, long h, long i) {
            return c09(a, b, c, d, e, f + g + h + i, a, b, c, d, e) + burn(a);
        }

        /** What goes on here returns to the barrier with arguments on the stack. */
        long c09(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k) {
            return c10(a + b + c + d + e, f + g + h + i + j + k) + burn(a);
        }

        long c10(long x, long y) {
            long before = c11(x);
            LockSupport.parkNanos(20_000);
            return before + c11(y) + burn(x);
        }

        long c11(long x) { return c12(x) + 1; }
        long c12(long x) { return c13(x, x, x, x, x, x, x, x) + 1; }
        long c13(long a, long b, long c, long d, long e, long f, long g, long h) { return c14(a + b + c + d + e + f + g + h) + 1; }
        long c14(long x) { return c15(x) + 1; }
        long c15(long x) { return c16(x) + 1; }
        long c16(long x) { return c17(x) + 1; }
        long c17(long x) { return c18(x) + 1; }
        long c18(long x) { return c19(x) + 1; }
        long c19(long x) { return c20(x) + 1; }
        long c20(long x) { return burn(x); }
    }

    public static void main(String[] args) throws Exception {
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        for (int i = 0; i < 8; i++) {
            start.invoke(null, new Chain());
        }
        Thread.sleep(1500);
        System.out.println("ready");
        Thread.sleep(Long.MAX_VALUE);
    }
}
