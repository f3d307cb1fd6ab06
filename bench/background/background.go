// Package background starts programs that keep a machine busy while something is measured: a database, a web server.
package background

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"atys.dev/atys/bench/harness"
)

// Programs are those that were started. All end with the context they were started with.
type Programs struct {
	dir      string
	commands []*exec.Cmd
	clients  sync.WaitGroup
}

// New has programs keep their files in a directory, which others may read then: the
// database runs as another user.
func New(dir string) (*Programs, error) {
	return &Programs{dir: dir}, os.Chmod(dir, 0o755)
}

// Wait waits for everything; all of it was killed, so no status says anything.
func (p *Programs) Wait() {
	p.clients.Wait()
	for _, c := range p.commands {
		_ = c.Wait()
	}
}

// Start starts a program that is told to end by the signal when ctx does.
func (p *Programs) Start(ctx context.Context, who *syscall.Credential, end syscall.Signal, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.SysProcAttr = p.dir, &syscall.SysProcAttr{Credential: who}
	c.Cancel = func() error { return c.Process.Signal(end) }
	c.WaitDelay = 10 * time.Second
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.commands = append(p.commands, c)
	return nil
}

const databasePrograms = "/usr/lib/postgresql/15/bin/"

// Database makes a cluster of its own and has pgbench use it.
func (p *Programs) Database(ctx context.Context) error {
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
	home := filepath.Join(p.dir, "database")
	if err := errors.Join(os.Mkdir(home, 0o700), os.Chown(home, int(uid), int(gid))); err != nil {
		return err
	}
	run := func(name string, args ...string) error {
		c := exec.CommandContext(ctx, databasePrograms+name, args...)
		c.Dir, c.SysProcAttr = home, &syscall.SysProcAttr{Credential: who}
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	data := filepath.Join(home, "data")
	if err := run("initdb", "--no-sync", "-A", "trust", "-D", data); err != nil {
		return err
	}
	err = p.Start(ctx, who, syscall.SIGQUIT, databasePrograms+"postgres", "-D", data, "-k", home,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=panic")
	if err != nil {
		return err
	}
	if err := harness.Until(func() error { return run("pg_isready", "-h", home) }); err != nil {
		return err
	}
	if err := run("pgbench", "-h", home, "-i", "-q", "-s", "10", "postgres"); err != nil {
		return err
	}
	return p.Start(ctx, who, syscall.SIGKILL, databasePrograms+"pgbench", "-h", home, "-n", "-c", "4", "-T", "36000", "postgres")
}

const nodeProgram = `
const items = Array.from({length: 500}, (_, i) => ({id: i, name: 'item ' + i * 7919, tags: [i % 7, i % 11]}));
const text = JSON.stringify(items);
require('http').createServer((request, response) => {
  const found = JSON.parse(text).filter(x => /1.*3/.test(x.name)).sort((a, b) => a.name < b.name ? -1 : 1);
  response.end(JSON.stringify(found));
}).listen(process.argv[1], '127.0.0.1');
`

// Node starts a web server and four clients that ask it without pause.
func (p *Programs) Node(ctx context.Context) error {
	const port = "18941"
	const address = "127.0.0.1:" + port
	if err := p.Start(ctx, nil, syscall.SIGKILL, "node", "-e", nodeProgram, port); err != nil {
		return err
	}
	ask := func() error {
		_, err := harness.Get(ctx, "http://"+address)
		return err
	}
	if err := harness.Until(ask); err != nil {
		return fmt.Errorf("ask node's server: %w", err)
	}
	for range 4 {
		p.clients.Go(func() {
			for ask() == nil {
			}
		})
	}
	return nil
}
