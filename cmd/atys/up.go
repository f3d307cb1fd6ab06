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
	listenFlags
	data      string
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
again. Ctrl-C ends it.

Unless told otherwise it answers this machine alone, where anybody may read;
changing what is recorded, and shipping windows, takes the token in
operator.token of its data directory, which commands of the same user find by
themselves. Elsewhere it wants TLS, and everybody a token or a certificate.`,
		Example: `  atys up
  atys up --data /var/lib/atys --listen 127.0.0.1:4300
  atys up --listen :4300 --tls-cert server.pem --tls-key server.key --tokens tokens`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return up(c.Context(), f) },
	}
	f.listenFlags.add(c)
	flags := c.Flags()
	flags.StringVar(&f.data, "data", defaultData(), "directory to keep profiles in")
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
	d, err := f.open("--listen", log)
	if err != nil {
		return err
	}
	defer d.listener.Close() // the server closes it too
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
	srv, err := server.New(server.Options{Store: kept, Retention: retention, Profiles: filepath.Join(f.data, "profiles"), Registry: registry,
		Admission: server.Admission{Tokens: d.tokens, Local: d.local, Limit: d.limit}, Hosts: f.hosts, Log: log})
	if err != nil {
		return err
	}
	leave, err := d.admitOperator(f.data)
	if err != nil {
		return err
	}
	defer leave()
	watch, err := agent.New(agent.Options{Node: node, Version: version(), Record: recordOn(machine), Spool: waiting, Intake: srv, Fleet: srv,
		Functions: functions, First: firstWindow, Log: log})
	if err != nil {
		return err
	}
	registry.MustRegister(watch)
	fmt.Fprintf(os.Stderr, "atys: profiling everything on %s; %s shows it, %s keeps it; Ctrl-C ends it\n", node, f.address(d.listener), f.data)
	return serve(ctx, d.listener, srv, watch, log)
}

// serve runs the agent and answers until the context ends or one of them fails.
func serve(ctx context.Context, l net.Listener, srv *server.Server, watch *agent.Agent, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := httpServer(srv.Handler(), log)
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
