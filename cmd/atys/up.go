package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/promexport"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/store/disk"
)

// How much may wait for a server, and how long who watches for the first window.
const (
	spoolBytes  = 1 << 30
	firstWindow = 3 * time.Second

	defaultListen = "127.0.0.1:4300"
)

type upFlags struct {
	data      string
	listen    string
	retention string
	verbose   bool
}

func upCommand() *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up [flags]",
		Short: "Profile everything on this machine, always, and show it on a page",
		Long: `up is agent, server and store in one process: it samples everything that runs
here, 19 times a second and CPU, keeps every ten seconds, and shows them on a
page whose address it prints. What it keeps is there again when it is started
again. Ctrl-C ends it.`,
		Example: `  atys up
  atys up --data /var/lib/atys --listen 127.0.0.1:4300`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return up(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.data, "data", defaultData(), "directory to keep profiles in")
	flags.StringVar(&f.listen, "listen", defaultListen, "address to answer at; port 0 takes a free one")
	flags.StringVar(&f.retention, "retention", server.DefaultRetention, "how long to keep windows as they were cut, and added up to 1 minute, 10 minutes and 1 hour")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say what happens")
	_ = c.MarkFlagDirname("data")
	return c
}

// defaultData is where services of the system keep their state, and where a
// user's programs do.
func defaultData() string {
	if os.Geteuid() == 0 {
		return "/var/lib/atys"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "atys")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "atys")
}

// up opens what the agent and the server stand on, in the order in which each
// needs the one before, and closes it in the reverse one.
func up(ctx context.Context, f upFlags) (err error) {
	if f.data == "" {
		return &usageError{errors.New("--data: name a directory to keep profiles in")}
	}
	retention, err := server.ParseRetention(f.retention)
	if err != nil {
		return &usageError{fmt.Errorf("--retention: %w", err)}
	}
	log := logger(f.verbose)
	closing := func(what string, closer interface{ Close() error }) {
		if closeErr := closer.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close the %s: %w", what, closeErr))
		}
	}
	listener, err := listenLocally("--listen", f.listen)
	if err != nil {
		return err
	}
	defer listener.Close() // the server closes it too
	kept, err := disk.Open(disk.Options{Dir: filepath.Join(f.data, "store"), Log: log})
	if err != nil {
		return err
	}
	defer closing("store", kept)
	waiting, err := spool.Open(filepath.Join(f.data, "spool"), spoolBytes)
	if err != nil {
		return err
	}
	defer closing("spool", waiting)
	machine, err := recorder.Open(recorder.Setup{CacheDir: cacheDir(), Log: log})
	if err != nil {
		return err
	}
	defer closing("unwinder", machine)
	node, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this machine: %w", err)
	}
	functions := promexport.NewFunctions(nil)
	registry := newRegistry(functions)
	srv, err := server.New(server.Options{Store: kept, Retention: retention, Profiles: filepath.Join(f.data, "profiles"), Registry: registry, Log: log})
	if err != nil {
		return err
	}
	watch, err := agent.New(agent.Options{Node: node, Version: version(), Record: recordOn(machine), Spool: waiting, Intake: srv, Fleet: srv,
		Functions: functions, First: firstWindow, Log: log})
	if err != nil {
		return err
	}
	registry.MustRegister(watch)
	fmt.Fprintf(os.Stderr, "atys: profiling everything on %s; http://%s shows it, %s keeps it; Ctrl-C ends it\n", node, listener.Addr(), f.data)
	return serve(ctx, listener, srv, watch, log)
}

// listenLocally refuses to answer others: nothing asks them who they are yet.
func listenLocally(flag, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s %q: want an address and a port, such as 127.0.0.1:4300", flag, address)}
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, &usageError{fmt.Errorf("%s %q: this version answers this machine alone, at 127.0.0.1 or localhost", flag, address)}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("answer at %s: %w (%s takes another address)", address, err, flag)
	}
	return l, nil
}

// serve runs the agent and answers until the context ends or one of them fails.
func serve(ctx context.Context, l net.Listener, srv *server.Server, watch *agent.Agent, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := &http.Server{Handler: srv.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	answered := make(chan error, 1)
	go func() {
		defer cancel() // without pages nobody sees the rest
		answered <- pages.Serve(l)
	}()
	var upkeep sync.WaitGroup
	upkeep.Go(func() { srv.Upkeep(ctx) })
	defer func() {
		cancel()
		upkeep.Wait()
	}()
	err := watch.Run(ctx)
	srv.Close()
	farewell, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	if stopErr := pages.Shutdown(farewell); stopErr != nil {
		stopErr = pages.Close()
		err = errors.Join(err, stopErr)
	}
	if serveErr := <-answered; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
