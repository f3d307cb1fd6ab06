/** Overrides what callers of Made000000 were compiled to call directly. */
public class Late000000 extends Made000000 {
    @Override
    long middle000000(int rounds) {
        long x = rounds;
        for (int i = 0; i < rounds; i++) {
            x -= inner000000(i);
        }
        return x;
    }
}
