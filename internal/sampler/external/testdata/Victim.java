/** Two threads; the main one is three times as long in heavy as in light. */
public class Victim {
    static long leaf(int n) {
        long sum = 0;
        for (int i = 0; i < n; i++) sum += i * 31 ^ sum;
        return sum;
    }

    static long light() { return leaf(20_000); }

    static long heavy() { return leaf(60_000); }

    static void work() {
        long sum = 0;
        while (sum != 42) sum += light() + heavy();
    }

    public static void main(String[] args) {
        Thread other = new Thread(Victim::work, "worker; [one] tid=7]");
        other.setDaemon(true);
        other.start();
        System.out.println("ready");
        System.out.flush();
        work();
    }
}
