import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A server that does some work for each request, on a port that it prints: platform threads, or virtual ones. */
public class Service {
    public static void main(String[] args) throws Exception {
        ExecutorService threads = args.length > 0 && args[0].equals("virtual")
                ? (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null)
                : Executors.newFixedThreadPool(6);
        int port;
        try {
            Class.forName("com.sun.net.httpserver.HttpServer");
            port = Http.serve(threads);
        } catch (ClassNotFoundException e) {
            port = serve(threads);
        }
        System.out.println(port);
    }

    /** Java's own server, which not every JDK holds. */
    static class Http {
        static int serve(ExecutorService threads) throws IOException {
            com.sun.net.httpserver.HttpServer server =
                    com.sun.net.httpserver.HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
            server.createContext("/", exchange -> {
                byte[] body = Work.answer();
                exchange.getResponseHeaders().set("Content-Type", "application/json");
                exchange.sendResponseHeaders(200, body.length);
                try (OutputStream out = exchange.getResponseBody()) {
                    out.write(body);
                }
            });
            server.setExecutor(threads);
            server.start();
            return server.getAddress().getPort();
        }
    }

    static int serve(ExecutorService threads) throws IOException {
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        new Thread(() -> {
            while (true) {
                try {
                    Socket socket = server.accept();
                    threads.submit(() -> converse(socket));
                } catch (IOException e) {
                    throw new IllegalStateException(e);
                }
            }
        }, "accept").start();
        return server.getLocalPort();
    }

    static Void converse(Socket socket) throws IOException {
        try (socket) {
            socket.setTcpNoDelay(true);
            BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
            OutputStream out = socket.getOutputStream();
            for (String line; (line = in.readLine()) != null; ) {
                if (!line.isEmpty()) {
                    continue; // of the request's head
                }
                byte[] body = Work.answer();
                out.write(("HTTP/1.1 200 OK\r\nContent-Length: " + body.length + "\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
                out.write(body);
            }
        }
        return null;
    }
}
