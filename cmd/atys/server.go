package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
)

const defaultListen = "127.0.0.1:4300"

// serverFlags say where a server answers, and what it keeps.
type serverFlags struct {
	listenFlags
	logFlags
	data      string
	retention string
	quotas    []string
	series    []string
	groupBy   string
	debugd    []string
}

func (f *serverFlags) add(c *cobra.Command) {
	f.listenFlags.add(c)
	f.logFlags.add(c)
	flags := c.Flags()
	flags.StringVar(&f.data, "data", defaultData(), "directory to keep profiles in")
	flags.StringVar(&f.retention, "retention", upkeep.DefaultRetention, "how long to keep windows as they were cut, and added up to 1 minute, 10 minutes, 1 hour and 1 day")
	flags.StringSliceVar(&f.quotas, "quota", nil, "how much of the disk each tenant may take, such as 50GB, or team-a=200GB for one of them; the oldest windows are dropped to stay below")
	flags.StringSliceVar(&f.series, "quota-series", nil, fmt.Sprintf("how many series each tenant may have, such as 50000 or team-a=500000; else %d", store.DefaultSeries))
	flags.StringVar(&f.groupBy, "group-by", "", "label of agents by which they ship to a relay with the same, such as zone; else all are one group")
	flags.StringSliceVar(&f.debugd, "debuginfod", nil, "server to ask for executables and debug files of code that agents could not name, by build-id")
	_ = c.MarkFlagDirname("data")
}

// profilesDir is where in a server's data profiles lie that somebody ordered.
const profilesDir = "profiles"

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

func serverCommand() *cobra.Command {
	var f serverFlags
	c := &cobra.Command{
		Use:   "server [flags]",
		Short: "Keep what agents send, and answer questions about it",
		Long: `server is the half of "atys up" that needs no rights: it keeps what agents
elsewhere send, tells them what to record, and answers commands, pages and
Prometheus. Its own machine is profiled by an agent like any other.`,
		Example: `  atys server --listen :4300 --tls-cert server.pem --tls-key server.key --tokens tokens`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), func(ctx context.Context, log *slog.Logger) error { return runServer(ctx, f, log) })
		},
	}
	f.add(c)
	return c
}

func runServer(ctx context.Context, f serverFlags, log *slog.Logger) (err error) {
	collectAt(serverGCPercent)
	h, err := f.build(log, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	f.begun(log, fmt.Sprintf("%s answers, %s keeps what agents send", h.address, f.data), "address", h.address, "data", f.data)
	return h.serve(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

// house is a server with all that it stands on.
type house struct {
	door
	address  string
	store    *disk.Store
	server   *server.Server
	registry *prometheus.Registry
	account  *cputime.Account // what the server takes is charged here; nil: nowhere
	log      *slog.Logger
	leave    func() // the operator's token, for commands
}

// build opens what a server stands on, in the order in which each needs the one
// before. more is what Prometheus is told beside. What the server takes is charged to the account, if there is one.
func (f *serverFlags) build(log *slog.Logger, account *cputime.Account, more ...prometheus.Collector) (h *house, err error) {
	if f.data == "" {
		return nil, &usageError{errors.New("--data: name a directory to keep profiles in")}
	}
	retention, err := upkeep.ParseRetention(f.retention)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--retention: %w", err)}
	}
	quotas, err := upkeep.ParseQuotas(f.quotas, f.series)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--quota, --quota-series: %w", err)}
	}
	for i := range f.debugd {
		f.debugd[i] = withScheme(f.debugd[i])
	}
	h = &house{log: log, account: account, registry: newRegistry(more...), leave: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if h.door, err = f.open("--listen", log); err != nil {
		return h, err
	}
	h.address = f.address(h.listener.Addr())
	if err := keepPrivate(f.data); err != nil {
		return h, err
	}
	if h.store, err = disk.Open(disk.Options{Dir: storeIn(f.data), Quotas: quotas, Account: account, Log: log}); err != nil {
		return h, err
	}
	h.server, err = server.New(server.Options{Store: h.store, Retention: retention, Quotas: quotas, Profiles: filepath.Join(f.data, profilesDir), GroupBy: f.groupBy, Debug: server.Debug{Dir: filepath.Join(f.data, "debug"), Servers: f.debugd}, Registry: h.registry,
		Admission: server.Admission{Tokens: h.tokens, Local: h.local, Limit: h.limit}, Hosts: f.hosts, Version: version(), Disk: f.data, Inside: inside(), Now: newClock().now, Log: log})
	if err != nil {
		return h, err
	}
	token, err := auth.KeepSecret(filepath.Join(f.data, operatorFile))
	if err != nil {
		return h, fmt.Errorf("keep the operator's token: %w", err)
	}
	h.leave, err = h.admitOperator(auth.DefaultTenant, token)
	return h, err
}

// keepPrivate makes the directories of a server's data ones that only its user
// may look into: windows tell what runs, and where. The store's is made so even
// if it was there; what the user named is the user's.
func keepPrivate(data string) error {
	store := storeIn(data)
	if err := os.MkdirAll(store, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(store)
	if err != nil || info.Mode().Perm() == 0o700 {
		return err
	}
	return os.Chmod(store, 0o700)
}

// Close ends what is there, in the reverse order.
func (h *house) Close() (err error) {
	h.leave()
	if h.store != nil {
		if err = h.store.Close(); err != nil {
			err = fmt.Errorf("close the store: %w", err)
		}
	}
	if h.listener != nil {
		_ = h.listener.Close() // who serves has closed it already
	}
	return err
}

// serve answers while run runs: until the context ends, or either fails.
func (h *house) serve(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shut := h.answer(charged(h.account, h.server.Handler()), h.log, cancel)
	var upkeep sync.WaitGroup
	for _, work := range []func(context.Context){h.server.Upkeep.Run, h.server.Names.Run, h.server.Decider.Run} {
		upkeep.Go(func() {
			defer h.account.Begin(cputime.Store)()
			work(ctx)
		})
	}
	defer func() {
		cancel()
		upkeep.Wait()
	}()
	err := run(ctx)
	h.server.Close()
	return errors.Join(err, shut())
}
