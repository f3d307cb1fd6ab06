/** Stands still where dump_test.go expects it, one thread asleep and one at work. */
public class Stand {
    static long sum;

    static void spin() {
        for (;;) {
            sum += Long.numberOfTrailingZeros(sum + 1);
        }
    }

    static class Place {
        void stay(int n) throws InterruptedException {
            if (n > 0) {
                stay(n - 1);
                return;
            }
            System.out.println("ready");
            Thread.sleep(1000000);
        }
    }

    static void outer() throws InterruptedException {
        new Place().stay(3);
    }

    public static void main(String[] args) throws InterruptedException {
        Thread thread = new Thread(Stand::spin, "spinning");
        thread.setDaemon(true);
        thread.start();
        outer();
    }
}
