import java.util.*;

/** A service in Java that answers a little, then waits. The argument is parts of a CPU in thousandths. */
public class Work {
    static final class Order {
        final int id;
        final String customer;

        Order(int id, String customer) {
            this.id = id;
            this.customer = customer;
        }
    }

    static List<Order> make(Random random) {
        List<Order> orders = new ArrayList<>();
        for (int i = 0; i < 500; i++) orders.add(new Order(random.nextInt(1000000), "customer " + random.nextInt(500)));
        return orders;
    }

    static Map<String, Integer> totals(List<Order> orders) {
        Map<String, Integer> totals = new TreeMap<>();
        for (Order o : orders) totals.merge(o.customer, o.id, Integer::sum);
        return totals;
    }

    static int serve(Random random) {
        List<Order> orders = make(random);
        orders.sort(Comparator.comparing((Order o) -> o.customer).thenComparingInt(o -> o.id));
        return totals(orders).toString().hashCode();
    }

    public static void main(String[] arguments) throws Exception {
        double share = arguments.length > 0 ? Integer.parseInt(arguments[0]) / 1000.0 : 0.02;
        Random random = new Random();
        for (int x = 0; ; ) {
            long began = System.nanoTime();
            for (int i = 0; i < 5; i++) x ^= serve(random);
            double worked = Math.min((System.nanoTime() - began) / 1e6, 10);
            Thread.sleep((long) (worked / share * (0.5 + random.nextDouble())) + x % 2 * 0);
        }
    }
}
