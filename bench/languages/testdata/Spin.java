/** Works, and says every 50 ms how much it has done. */
public class Spin {
    static int sink;

    static int leaf(int n) {
        int total = n;
        for (int i = 0; i < 2000; i++) {
            total += (i ^ total) % 7;
        }
        return total;
    }

    static int nested(int depth) {
        return depth == 0 ? leaf(sink) : nested(depth - 1) + 1;
    }

    public static void main(String[] args) {
        long done = 0;
        long said = System.nanoTime();
        while (true) {
            sink += nested(20);
            done++;
            long now = System.nanoTime();
            if (now - said >= 50_000_000) {
                said = now;
                System.out.println(now / 1e9 + " " + done);
            }
        }
    }
}
