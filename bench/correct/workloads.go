package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/victims"
)

// workload is a program under load. start returns the processes to sample;
// what it started ends with ctx, and running.stop waits for that.
type workload struct {
	name  string
	start func(ctx context.Context, r *running) ([]int, error)
}

// running is what a workload has started.
type running struct {
	dir      string // its own
	commands []*exec.Cmd
	last     []func() // in reverse order
}

func (r *running) stop() {
	for _, f := range slices.Backward(r.last) {
		f()
	}
	for _, c := range r.commands {
		_ = c.Wait() // killed: its status says so
	}
}

// command starts a program in a process group that ends with ctx.
func (r *running) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	return r.commandAs(ctx, nil, name, args...)
}

func (r *running) commandAs(ctx context.Context, who *syscall.Credential, name string, args ...string) (*exec.Cmd, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = r.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	r.commands = append(r.commands, c)
	return c, nil
}

func workloads() []workload {
	return []workload{
		{"C -O2", victim("burn25", victims.Options{})},
		{"C 100 deep", victim("deep", victims.Options{})},
		{"C tail calls", victim("tailcall", victims.Options{})},
		{"C signals", victim("signals", victims.Options{})},
		{"C++", victim("throwing", victims.Options{})},
		{"Rust", victim("rusty", victims.Options{})},
		{"static glibc", victim("mixed", victims.Options{Static: true})},
		{"stripped", victim("mixed", victims.Options{Strip: true})},
		{"static musl", victim("mixed", victims.Options{Musl: true})},
		{"PostgreSQL", postgres()},
		{"PostgreSQL, short connections", postgres("-C")},
		{"Go HTTP server", startGoServer},
		{"node", startNode},
		{"gcc", startGCC},
		{"sqlite3", startSQLite},
	}
}

func victim(name string, o victims.Options) func(context.Context, *running) ([]int, error) {
	return func(ctx context.Context, r *running) ([]int, error) {
		path, err := victims.Build(r.dir, name, o)
		if err != nil {
			return nil, err
		}
		length := "3600" // seconds
		if name == "burn25" {
			length = "1000000" // units of work
		}
		v, err := victims.Start(ctx, path, length)
		if err != nil {
			return nil, err
		}
		r.last = append(r.last, func() { _, _ = v.Wait() }) // killed: there is no log
		return []int{v.PID}, nil
	}
}

const sqliteQuery = `
with recursive n(i) as (select 1 union all select i+1 from n where i < 200000)
select count(*), sum(length(hex(a.i * 7919))), group_concat(distinct substr(printf('%08d', a.i * 31), 3, 3))
from n a join (select i, abs(random()) % 1000 as k from n) b on a.i = b.i
where b.k like '%7%' or a.i % 3 = 0 group by b.k order by 2 desc, 1 limit 5;
`

func startSQLite(ctx context.Context, r *running) ([]int, error) {
	script := filepath.Join(r.dir, "query.sql")
	if err := os.WriteFile(script, []byte(strings.Repeat(sqliteQuery, 500)), 0o644); err != nil {
		return nil, err
	}
	c, err := r.command(ctx, "sqlite3", ":memory:", ".read "+script)
	if err != nil {
		return nil, err
	}
	return []int{c.Process.Pid}, nil
}

// startGCC compiles one large file over and over.
func startGCC(ctx context.Context, r *running) ([]int, error) {
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
	for i := range 300 {
		fmt.Fprintf(&b, `struct s%d { int a, b[%d]; double d; struct s%d *next; };
int f%d(struct s%d *p, const char *text, unsigned n)
{
	double sum = %d;
	for (unsigned i = 0; i < n; i++) {
		if (p->b[i %% %d] > (int)(strlen(text) * i)) { sum += p->d / (i + 1); p = p->next ? p->next : p; }
		else switch (text[i] & 7) { case 1: sum *= 3; break; case 2: p->a ^= i << 3; break; case 5: printf("%%f", sum); break; default: sum -= i; }
	}
	return (int)sum + p->a;
}
`, i, i%13+1, i, i, i, i, i%13+1)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "large.c"), []byte(b.String()), 0o644); err != nil {
		return nil, err
	}
	c, err := r.command(ctx, "sh", "-c", "while gcc -O2 -S large.c -o /dev/null; do :; done")
	if err != nil {
		return nil, err
	}
	// Wait for the compiler itself: what runs already is no child of the sampler's time.
	time.Sleep(settle)
	return descendants(c.Process.Pid)
}

const nodeServer = `
const http = require('http'), zlib = require('zlib'), crypto = require('crypto');
const text = JSON.stringify(Array.from({length: 3000}, (_, i) => ({id: i, name: 'item ' + i, tags: ['a' + i % 7, 'b' + i % 11]})));
http.createServer((request, response) => {
  const items = JSON.parse(text).filter(x => /1.*3/.test(x.name)).sort((a, b) => a.name < b.name ? -1 : 1);
  crypto.pbkdf2('secret', 'salt', 500, 32, 'sha512', (_, key) =>
    zlib.gzip(JSON.stringify(items), (_, body) => {
      response.setHeader('x-key', crypto.createHash('sha256').update(key).update(zlib.deflateSync(text.slice(0, 20000))).digest('hex'));
      response.end(body);
    }));
}).listen(Number(process.argv[1]), '127.0.0.1');
`

func startNode(ctx context.Context, r *running) ([]int, error) {
	const port = "18931"
	c, err := r.command(ctx, "node", "-e", nodeServer, port)
	if err != nil {
		return nil, err
	}
	return []int{c.Process.Pid}, r.load(ctx, "http://127.0.0.1:"+port+"/")
}

func startGoServer(ctx context.Context, r *running) ([]int, error) {
	const address = "127.0.0.1:18932"
	server := filepath.Join(r.dir, "webserver")
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", server, "atys.dev/atys/bench/correct/webserver").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build webserver: %w\n%s", err, output)
	}
	c, err := r.command(ctx, server, address)
	if err != nil {
		return nil, err
	}
	return []int{c.Process.Pid}, r.load(ctx, "http://"+address+"/")
}

// load asks a server for the same page from a few connections until ctx ends.
func (r *running) load(ctx context.Context, url string) error {
	const connections = 4
	get := func() error {
		_, err := harness.Get(ctx, url)
		return err
	}
	if err := harness.Until(get); err != nil {
		return fmt.Errorf("load %s: %w", url, err)
	}
	done := make(chan struct{}, connections)
	for range connections {
		go func() {
			for get() == nil {
			}
			done <- struct{}{}
		}()
	}
	r.last = append(r.last, func() {
		for range connections {
			<-done
		}
	})
	return nil
}

const postgresBin = "/usr/lib/postgresql/15/bin/"

// postgres makes a cluster of its own and loads it with pgbench, whose options more are.
func postgres(more ...string) func(context.Context, *running) ([]int, error) {
	return func(ctx context.Context, r *running) ([]int, error) { return startPostgres(ctx, r, more) }
}

func startPostgres(ctx context.Context, r *running, more []string) ([]int, error) {
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root: %w", err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	who := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := errorsFirst(os.Chmod(r.dir, 0o755), os.Chown(r.dir, uid, gid)); err != nil {
		return nil, err
	}
	once := func(name string, args ...string) error {
		c := exec.CommandContext(ctx, postgresBin+name, args...)
		c.Dir, c.SysProcAttr = r.dir, &syscall.SysProcAttr{Credential: who}
		if output, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, output)
		}
		return nil
	}
	data := filepath.Join(r.dir, "data")
	if err := once("initdb", "-D", data, "-A", "trust", "--no-sync"); err != nil {
		return nil, err
	}
	server, err := r.commandAs(ctx, who, postgresBin+"postgres", "-D", data, "-k", r.dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "autovacuum=off", "-c", "max_parallel_workers_per_gather=0", "-c", "log_min_messages=fatal")
	if err != nil {
		return nil, err
	}
	for range 100 {
		if err = once("pg_isready", "-h", r.dir); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	if err := once("pgbench", "-h", r.dir, "-i", "-q", "-s", "5", "postgres"); err != nil {
		return nil, err
	}
	load := append([]string{"-h", r.dir, "-c", "4", "-T", "3600", "-b", "tpcb-like@6", "-b", "select-only@6", "-f", r.analytic() + "@1"}, more...)
	_, err = r.commandAs(ctx, who, postgresBin+"pgbench", append(load, "postgres")...)
	if err != nil {
		return nil, err
	}
	// Those that connected before the sampler came are no children of its time.
	time.Sleep(time.Second)
	return descendants(server.Process.Pid)
}

// analytic is a script of heavier queries: sorts, hashes, regular expressions, JSON.
func (r *running) analytic() string {
	path := filepath.Join(r.dir, "analytic.sql")
	const script = `select bid, count(*), avg(abalance), max(filler) from pgbench_accounts where aid % 100 = 7 group by bid order by 2;
select count(*) from (select md5(aid::text) h, row_to_json(a) j from pgbench_accounts a where aid < 2000 order by 1) x where h ~ '^[ab].*9.*c$' or j->>'bid' = '2';
`
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		return ""
	}
	return path
}

// descendants lists a process and all below it.
func descendants(pid int) ([]int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, fmt.Errorf("list children: %w", err)
	}
	pids := []int{pid}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("list children: %w", err)
		}
		more, err := descendants(child)
		if err != nil {
			return nil, err
		}
		pids = append(pids, more...)
	}
	return pids, nil
}

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
