import java.lang.reflect.Method;
import java.util.concurrent.locks.LockSupport;

/** Virtual threads, for JDKs that have them: compiled for 11, so found by name. */
public class Virtual {
    static volatile long sink;

    static long burn(int rounds) {
        long x = rounds;
        for (int i = 0; i < rounds * 100; i++) {
            x = x * 6364136223846793005L + (x >>> 7);
        }
        return x;
    }

    /** Never waits: all its frames are on the stack. */
    static class Mounted implements Runnable {
        public void run() {
            for (int i = 0; i < 20000; i++) {
                sink += descend(20);
            }
        }

        static long descend(int n) {
            return n == 0 ? burn(50) : descend(n - 1) + 1;
        }
    }

    /** Waits at the bottom: when it goes on, only its newest frames are copied back. */
    static class Parking implements Runnable {
        public void run() {
            while (true) {
                sink += sink(60);
            }
        }

        static long sink(int n) {
            if (n > 0) {
                return sink(n - 1) + 1;
            }
            LockSupport.parkNanos(1000);
            return awake();
        }

        static long awake() {
            return burn(200);
        }
    }

    public static void main(String[] args) throws Exception {
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        new Thread(() -> {
            try {
                while (true) {
                    ((Thread) start.invoke(null, new Mounted())).join();
                }
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }).start();
        start.invoke(null, new Parking());
        Thread.sleep(500);
        System.out.println("ready");
    }
}
