import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.function.IntSupplier;

import com.sun.net.httpserver.HttpServer;

/** The paper's example: two requests, which differ by how often they call one function of the standard library. Prints the port it answers at. */
public class RandomGen {
    static int generate_UUID_100times() {
        int sum = 0;
        for (int i = 0; i < 100; i++) {
            sum += UUID.randomUUID().hashCode();
        }
        return sum;
    }

    static int generate_UUID_300times() {
        int sum = 0;
        for (int i = 0; i < 300; i++) {
            sum += UUID.randomUUID().hashCode();
        }
        return sum;
    }

    /** What a request takes besides, whichever it is. */
    static String page(int sum) {
        StringBuilder page = new StringBuilder("<table>");
        for (int row = 0; row < 100; row++) {
            page.append("<tr><td>").append(row).append("</td><td>").append(sum ^ row).append("</td></tr>\n");
        }
        return page.append("</table>").toString();
    }

    static void serve(HttpServer server, String path, IntSupplier work) {
        server.createContext(path, exchange -> {
            byte[] body = page(work.getAsInt()).getBytes(StandardCharsets.US_ASCII);
            exchange.sendResponseHeaders(200, body.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
    }

    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        serve(server, "/100", RandomGen::generate_UUID_100times);
        serve(server, "/300", RandomGen::generate_UUID_300times);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
        System.out.println(server.getAddress().getPort());
    }
}
