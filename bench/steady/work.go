package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"atys.dev/atys/bench/background"
)

// machine is the work that keeps this machine busy: a database, a web server,
// a JVM, and many processes that hardly do anything.
type machine struct {
	*background.Programs
	dir  string
	idle background.Idle
}

// startMachine starts all of it; what was started ends with ctx, and wait waits for that.
func startMachine(ctx context.Context, dir string, idle int) (*machine, error) {
	programs, err := background.New(dir)
	m := &machine{Programs: programs, dir: dir}
	if err != nil {
		return m, err
	}
	for _, start := range []func(context.Context) error{m.Database, m.Node, m.startJava} {
		if err := start(ctx); err != nil {
			return m, err
		}
	}
	m.idle, err = background.StartIdle(ctx, dir, idle)
	return m, err
}

// wait waits for everything; all of it was killed, so no status says anything.
func (m *machine) wait() {
	m.Wait()
	m.idle.Wait()
}

const javaProgram = `
import java.util.*;

public class Busy {
    record Order(int id, String customer, double sum) {}

    static Map<String, Double> totals(List<Order> orders) {
        Map<String, Double> out = new TreeMap<>();
        for (Order o : orders) out.merge(o.customer(), o.sum(), Double::sum);
        return out;
    }

    static int round(Random random) {
        List<Order> orders = new ArrayList<>();
        for (int i = 0; i < 20000; i++)
            orders.add(new Order(i, "customer " + random.nextInt(500), random.nextDouble()));
        orders.sort(Comparator.comparing(Order::customer).thenComparingDouble(Order::sum));
        return totals(orders).toString().hashCode();
    }

    public static void main(String[] arguments) throws Exception {
        for (int t = 0; t < 2; t++) {
            int seed = t;
            new Thread(() -> { Random random = new Random(seed); for (int x = 0; ; x ^= round(random)); }, "worker-" + t).start();
        }
    }
}
`

// startJava compiles a program that allocates and sorts on two threads.
func (m *machine) startJava(ctx context.Context) error {
	source := filepath.Join(m.dir, "Busy.java")
	if err := os.WriteFile(source, []byte(javaProgram), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "javac", "-d", m.dir, source).CombinedOutput(); err != nil {
		return fmt.Errorf("javac: %w: %s", err, out)
	}
	return m.Start(ctx, nil, syscall.SIGKILL, "java", "-Xmx256m", "-cp", m.dir, "Busy")
}
