import java.io.DataInputStream;
import java.util.ArrayList;
import java.util.List;

/** Loads many classes, and calls all of them in turn, without end. */
public class Many {
    static volatile long sink;

    public interface Work {
        long go(long x);
    }

    static class Loader extends ClassLoader {
        Class<?> define(byte[] code) {
            return defineClass(null, code, 0, code.length);
        }
    }

    static byte[] number(byte[] template, int n) {
        byte[] code = template.clone();
        byte[] digits = String.format("%06d", n).getBytes();
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

    static void all(List<Work> works) {
        for (Work w : works) {
            sink = w.go(sink);
        }
    }

    public static void main(String[] args) throws Exception {
        byte[] template;
        try (DataInputStream in = new DataInputStream(Many.class.getResourceAsStream("One000000.class"))) {
            template = in.readAllBytes();
        }
        Loader loader = new Loader();
        List<Work> works = new ArrayList<>();
        for (int n = Integer.parseInt(args[0]); n > 0; n--) {
            works.add((Work) loader.define(number(template, n)).getDeclaredConstructor().newInstance());
        }
        all(works);
        System.out.println("{\"pid\":" + ProcessHandle.current().pid() + "}");
        while (true) {
            all(works);
        }
    }
}
