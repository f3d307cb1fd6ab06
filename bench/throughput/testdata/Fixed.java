import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Does as much as it is told to on two threads, prints what came out, and ends with status 7. */
public class Fixed {
    interface Shape {
        double area();
    }

    static class Circle implements Shape {
        final int size;

        Circle(int size) {
            this.size = size;
        }

        public double area() {
            return 3.14159 * size * size;
        }
    }

    static class Square implements Shape {
        final int size;

        Square(int size) {
            this.size = size;
        }

        public double area() {
            return (double) size * size;
        }
    }

    static long nested(int depth, long seed) {
        return depth == 0 ? round(seed) : nested(depth - 1, seed + depth) + 1;
    }

    static long round(long seed) {
        List<Shape> shapes = new ArrayList<>();
        Map<String, Double> sums = new TreeMap<>();
        for (int i = 0; i < 500; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            int size = (int) (seed >>> 50);
            shapes.add((size & 1) == 0 ? new Circle(size) : new Square(size));
        }
        shapes.sort((a, b) -> Double.compare(a.area(), b.area()));
        for (int i = 0; i < shapes.size(); i++) {
            sums.merge("group " + i % 37, shapes.get(i).area(), Double::sum);
        }
        return sums.toString().hashCode() + seed;
    }

    public static void main(String[] args) throws Exception {
        long rounds = Long.parseLong(args[0]);
        long[] results = new long[2];
        Thread[] threads = new Thread[results.length];
        for (int t = 0; t < threads.length; t++) {
            int which = t;
            threads[t] = new Thread(() -> {
                long x = which;
                for (long i = 0; i < rounds; i++) {
                    x = nested(20, x);
                }
                results[which] = x;
            });
            threads[t].start();
        }
        for (Thread t : threads) {
            t.join();
        }
        System.out.println(results[0] + " " + results[1]);
        System.exit(7);
    }
}
