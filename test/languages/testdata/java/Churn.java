import java.io.DataInputStream;
import java.util.ArrayList;
import java.util.List;

/**
 * Loads classes that are all alike but for a number in the names of the class
 * and of its methods, runs them, and forgets them: whoever looks a name up too
 * late finds another class where the old one was. A method of one number calls
 * methods of the same number only.
 */
public class Churn {
    static volatile long sink;

    public interface Work {
        long go(int rounds);
    }

    static class Loader extends ClassLoader {
        Class<?> define(byte[] code) {
            return defineClass(null, code, 0, code.length);
        }
    }

    static byte[] template() throws Exception {
        try (DataInputStream in = new DataInputStream(Churn.class.getResourceAsStream("Made000000.class"))) {
            return in.readAllBytes();
        }
    }

    static byte[] number(byte[] template, int n) {
        byte[] code = template.clone();
        byte[] digits = String.format("%06d", n % 1000000).getBytes();
        for (int i = 0; i + 6 <= code.length; i++) {
            boolean zeros = true;
            for (int j = 0; j < 6; j++) {
                zeros &= template[i + j] == '0';
            }
            if (zeros) {
                System.arraycopy(digits, 0, code, i, 6);
            }
        }
        return code;
    }

    static void work(byte[] template, int first, int step) {
        List<Work> kept = new ArrayList<>();
        for (int n = first; true; n += step) {
            try {
                Work w = (Work) new Loader().define(number(template, n)).getDeclaredConstructor().newInstance();
                kept.add(w);
                for (int i = 0; i < (n / step % 4 == 0 ? 3000 : 50); i++) {
                    sink += w.go(20);
                }
            } catch (ReflectiveOperationException e) {
                throw new RuntimeException(e);
            }
            if (kept.size() == 100) {
                kept.clear();
                System.gc();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        byte[] template = template();
        for (int i = 1; i <= 2; i++) {
            int first = i;
            new Thread(() -> work(template, first, 2)).start();
        }
        System.out.println("ready");
    }
}
