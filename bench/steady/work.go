package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"atys.dev/atys/test/victims"
)

// machine is the work that keeps this machine busy: a database, a web server,
// a JVM, and many processes that hardly do anything.
type machine struct {
	dir      string
	commands []*exec.Cmd
	idle     []*victims.Victim
	clients  sync.WaitGroup
}

// startMachine starts all of it; what was started ends with ctx, and wait waits for that.
func startMachine(ctx context.Context, dir string, idle int) (*machine, error) {
	m := &machine{dir: dir}
	if err := os.Chmod(dir, 0o755); err != nil { // the database reads it as another user
		return m, err
	}
	for _, start := range []func(context.Context) error{m.startDatabase, m.startNode, m.startJava} {
		if err := start(ctx); err != nil {
			return m, err
		}
	}
	path, err := victims.Build(dir, "idle", victims.Options{})
	if err != nil {
		return m, err
	}
	for range idle {
		v, err := victims.Start(ctx, path, "36000", "1")
		if err != nil {
			return m, err
		}
		m.idle = append(m.idle, v)
	}
	return m, nil
}

// wait waits for everything; all of it was killed, so no status says anything.
func (m *machine) wait() {
	m.clients.Wait()
	for _, c := range m.commands {
		_ = c.Wait()
	}
	for _, v := range m.idle {
		_, _ = v.Wait()
	}
}

// start starts a program that is told to end by the signal when ctx does.
func (m *machine) start(ctx context.Context, who *syscall.Credential, end syscall.Signal, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.SysProcAttr = m.dir, &syscall.SysProcAttr{Credential: who}
	c.Cancel = func() error { return c.Process.Signal(end) }
	c.WaitDelay = 10 * time.Second
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	m.commands = append(m.commands, c)
	return nil
}

const databasePrograms = "/usr/lib/postgresql/15/bin/"

// startDatabase makes a cluster of its own and has pgbench use it.
func (m *machine) startDatabase(ctx context.Context) error {
	account, err := user.Lookup("postgres")
	if err != nil {
		return fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return err
	}
	who := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	home := filepath.Join(m.dir, "database")
	if err := errors.Join(os.Mkdir(home, 0o700), os.Chown(home, int(uid), int(gid))); err != nil {
		return err
	}
	program := func(name string, args ...string) error {
		c := exec.CommandContext(ctx, databasePrograms+name, args...)
		c.Dir, c.SysProcAttr = home, &syscall.SysProcAttr{Credential: who}
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	data := filepath.Join(home, "data")
	if err := program("initdb", "--no-sync", "-A", "trust", "-D", data); err != nil {
		return err
	}
	err = m.start(ctx, who, syscall.SIGQUIT, databasePrograms+"postgres", "-D", data, "-k", home,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=panic")
	if err != nil {
		return err
	}
	if err := until(func() error { return program("pg_isready", "-h", home) }); err != nil {
		return err
	}
	if err := program("pgbench", "-h", home, "-i", "-q", "-s", "10", "postgres"); err != nil {
		return err
	}
	return m.start(ctx, who, syscall.SIGKILL, databasePrograms+"pgbench", "-h", home, "-n", "-c", "4", "-T", "36000", "postgres")
}

const nodeProgram = `
const items = Array.from({length: 500}, (_, i) => ({id: i, name: 'item ' + i * 7919, tags: [i % 7, i % 11]}));
const text = JSON.stringify(items);
require('http').createServer((request, response) => {
  const found = JSON.parse(text).filter(x => /1.*3/.test(x.name)).sort((a, b) => a.name < b.name ? -1 : 1);
  response.end(JSON.stringify(found));
}).listen(process.argv[1], '127.0.0.1');
`

// startNode starts a web server and four clients that ask it without pause.
func (m *machine) startNode(ctx context.Context) error {
	const address = "127.0.0.1:18941"
	if err := m.start(ctx, nil, syscall.SIGKILL, "node", "-e", nodeProgram, "18941"); err != nil {
		return err
	}
	ask := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	if err := until(ask); err != nil {
		return fmt.Errorf("ask node's server: %w", err)
	}
	for range 4 {
		m.clients.Go(func() {
			for ask() == nil {
			}
		})
	}
	return nil
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
	return m.start(ctx, nil, syscall.SIGKILL, "java", "-Xmx256m", "-cp", m.dir, "Busy")
}

// until tries something for ten seconds.
func until(try func() error) error {
	var err error
	for range 100 {
		if err = try(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
