/** What Many loads again and again, under other numbers. */
public class One000000 implements Many.Work {
    public long go(long x) {
        return step000000(x) + 1;
    }

    static long step000000(long x) {
        for (int i = 0; i < 200; i++) {
            x = x * 6364136223846793005L + (x >>> 7);
        }
        return x;
    }
}
