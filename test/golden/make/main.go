// Command make writes what this version of atys stores and sends, for later ones to read: see test/golden/testdata/README.md.
//
//	windows.go   windows of every shape, of three days
//	store.go     -> a store, its backup, a spool
//	requests.go  -> requests of agents and relays, over HTTP
//	profiles.go  -> files of "atys record" and "atys convert"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"atys.dev/atys/test/golden"
)

func main() {
	out := flag.String("o", "", "directory to write to: test/golden/testdata/VERSION")
	atys := flag.String("atys", "bin/atys", "the version that it is of, for what is recorded")
	flag.Parse()
	if err := start(context.Background(), *out, *atys); err != nil {
		fmt.Fprintln(os.Stderr, "make:", err)
		os.Exit(1)
	}
}

// start goes on in namespaces of its own: agents tell what runs on their machine, and
// nothing of this one is to be in a file that everybody has.
func start(ctx context.Context, out, atys string) error {
	if out == "" {
		return errors.New("-o: name a directory to write to")
	}
	if os.Getpid() == 1 {
		return write(ctx, out, atys)
	}
	scratch, err := os.MkdirTemp("", "golden")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := pack(ctx, out, scratch, golden.Profiles, func(dir string) error { return makeProfiles(ctx, dir, atys) }); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--mount-proc", "--uts", "--cgroup", "--", self, "-o", out, "-atys", atys)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

func write(ctx context.Context, out, atys string) error {
	if err := syscall.Sethostname([]byte("n1")); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "golden")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	backups := filepath.Join(scratch, golden.Backup)
	if err := os.MkdirAll(backups, 0o700); err != nil {
		return err
	}
	return errors.Join(
		pack(ctx, out, scratch, golden.Store, func(dir string) error { return makeStore(ctx, dir, backups) }),
		pack(ctx, out, scratch, golden.Backup, func(string) error { return nil }),
		pack(ctx, out, scratch, golden.Spool, makeSpool),
		pack(ctx, out, scratch, golden.Requests, func(dir string) error { return makeRequests(ctx, dir, filepath.Join(scratch, "agents")) }),
	)
}

// pack makes an archive of what is written to a directory of its name.
func pack(_ context.Context, out, scratch, name string, write func(dir string) error) error {
	dir := filepath.Join(scratch, name)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	if err := write(dir); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return golden.Pack(filepath.Join(out, name+".tar.gz"), dir)
}
