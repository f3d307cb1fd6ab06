import java.io.DataInputStream;
import java.util.ArrayList;
import java.util.List;

/** Makes classes, runs them and forgets them, on two threads. */
public class Churning {
    static volatile long sink;

    public abstract static class Work {
        public abstract long go(int rounds);
    }

    static class Loader extends ClassLoader {
        Class<?> define(byte[] code) {
            return defineClass(null, code, 0, code.length);
        }

        Work make(byte[] template, int n) throws ReflectiveOperationException {
            return (Work) define(number(template, n)).getDeclaredConstructor().newInstance();
        }
    }

    static byte[] template(String name) throws Exception {
        try (DataInputStream in = new DataInputStream(Churning.class.getResourceAsStream(name))) {
            return in.readAllBytes();
        }
    }

    /** Writes a number where the template has six zeros. */
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

    static void work(byte[] made, byte[] late, int first, int often) {
        List<Work> kept = new ArrayList<>();
        try {
            for (int n = first; true; n += 2) {
                Loader loader = new Loader();
                Work w = loader.make(made, n);
                int rounds = n / 2 % 4 == 0 ? often : often / 60 + 1;
                repeat(w, rounds);
                repeat(loader.make(late, n), rounds); // what was compiled of the other must go
                repeat(w, rounds);
                kept.add(w);
                if (kept.size() == 100) {
                    kept.clear();
                    System.gc();
                }
            }
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static void repeat(Work w, int rounds) {
        for (int i = 0; i < rounds; i++) {
            sink += w.go(20);
        }
    }

    public static void main(String[] args) throws Exception {
        byte[] made = template("Made000000.class"), late = template("Late000000.class");
        int often = Integer.parseInt(args[0]);
        for (int i = 1; i <= 2; i++) {
            int first = i;
            new Thread(() -> work(made, late, first, often)).start();
        }
        System.out.println("{\"pid\":" + ProcessHandle.current().pid() + "}");
    }
}
