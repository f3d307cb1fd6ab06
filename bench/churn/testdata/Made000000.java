/** What Churning loads again and again, under other numbers. */
public class Made000000 extends Churning.Work {
    public long go(int rounds) {
        return outer000000(rounds);
    }

    long outer000000(int rounds) {
        return middle000000(rounds) + 1;
    }

    long middle000000(int rounds) {
        long x = 0;
        for (int i = 0; i < rounds; i++) {
            x += inner000000(i);
        }
        return x;
    }

    static long inner000000(int i) {
        long x = i;
        for (int j = 0; j < 40; j++) {
            x = x * 31 + (x >>> 3);
        }
        return x;
    }
}
