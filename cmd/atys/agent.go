package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/promexport"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
)

type agentFlags struct {
	clientFlags
	budgetFlags
	logFlags
	data    string
	node    string
	spool   int64
	metrics listenFlags
	tenant  string
	labels  map[string]string
}

func agentCommand() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "agent --server URL [flags]",
		Short: "Profile this machine, always, for a server",
		Long: `agent samples what runs here as the server's profiles say, keeps each window on
disk, and ships it. Where the server has no lasting profile for it, it samples
everything, 19 times a second and CPU. While the server is unreachable, windows
wait on disk and are shipped later.

The agent measures its own resource use and reports it with each window. Over
--max-cpu or --max-memory it limits whatever costs most, and says so: in its log,
in "atys get agents" and "atys describe profile", and to Prometheus.`,
		Example: `  atys agent --server https://10.0.0.5:4300 --tls-ca ca.pem --token-file agent.token`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), func(ctx context.Context, log *slog.Logger) error { return runAgent(ctx, f, log) })
		},
	}
	f.clientFlags.add(c)
	f.budgetFlags.add(c, leastShare, defaultMemory)
	f.logFlags.add(c)
	flags := c.Flags()
	flags.StringVar(&f.data, "data", defaultData(), "directory for windows that wait to be shipped")
	flags.StringVar(&f.node, "node", "", "name of this machine (default: its host name)")
	flags.StringToStringVar(&f.labels, "label", nil, "label of this machine and everything that runs on it, such as zone=a; servers can group agents by it")
	flags.Int64Var(&f.spool, "spool", spoolBytes>>20, "megabytes of windows that may wait on disk; the oldest are dropped first, and counted")
	flags.StringVar(&f.metrics.listen, "metrics", "", "address that serves the hottest functions to Prometheus, such as 127.0.0.1:4302; the server's /sd/agents lists it")
	f.metrics.addRate(flags, "with --metrics: ")
	flags.StringVar(&f.metrics.tokens, "tokens", "", "with --metrics: file of tokens that are accepted; to serve other machines, it and --tls-cert and --tls-key are required")
	flags.StringVar(&f.tenant, "tenant", auth.DefaultTenant, "with --metrics: tenant whose readers are accepted: the one of the agent's own token")
	_ = c.MarkFlagDirname("data")
	return c
}

// jitter is within how long an agent ships what it has cut, while no task says how
// long windows are.
const jitter = 5 * time.Second

func runAgent(ctx context.Context, f agentFlags, log *slog.Logger) (err error) {
	client, address, err := f.client()
	if err != nil {
		return err
	}
	if f.server == "" && os.Getenv(serverVariable) == "" {
		return &usageError{errors.New("--server: say whom to ship to, such as https://10.0.0.5:4300 (\"atys up\" needs no other server)")}
	}
	if f.data == "" {
		return &usageError{errors.New("--data: name a directory for what waits to be shipped")}
	}
	if f.spool < 1 {
		return &usageError{fmt.Errorf("--spool %d: want 1 or more megabytes", f.spool)}
	}
	f.tenant = cmp.Or(f.tenant, auth.DefaultTenant)
	if err := auth.CheckTenant(f.tenant); err != nil {
		return &usageError{fmt.Errorf("--tenant: %w", err)}
	}
	budget, err := f.budget()
	if err != nil {
		return err
	}
	if err := checkNodeLabels(f.labels); err != nil {
		return &usageError{fmt.Errorf("--label %w", err)}
	}
	if f.node == "" {
		if f.node, err = os.Hostname(); err != nil {
			return fmt.Errorf("name this machine: %w (--node does)", err)
		}
	}
	waiting, err := spool.Open(filepath.Join(f.data, "spool"), f.spool<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	records, err := openRecords(f.data, f.spool<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	machine, err := openStation(budget.Memory, f.budgetFlags.rows, f.cache, cputime.New(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, machine.Close()) }()
	to, clock := remote.New(client, address), newClock()
	o := agent.Options{Node: f.node, Labels: f.labels, Version: version(), Record: clock.record(machine.record), OffCPU: f.offCPU, Now: clock.now, Spool: waiting, Records: records, Intake: to, Fleet: to, Relay: f.relay,
		State: filepath.Join(f.data, "orders"), Life: filepath.Join(f.data, "agent.life"), Budget: budget, Account: machine.account, Limit: machine.limit, Shed: machine.shed, Unwinding: machine.unwinding(), Cache: machine.cached(), Ready: machine.ready, Jitter: jitter, Log: log}
	var registry *prometheus.Registry
	if f.metrics.listen != "" {
		var end func() error
		o.Functions = promexport.NewFunctions(nil)
		registry = newRegistry(o.Functions)
		f.metrics.cert, f.metrics.key = f.cert, f.key
		if end, o.Metrics, err = serveMetrics(f.metrics, f.tenant, registry, log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	watch, err := agent.New(o)
	if err != nil {
		return err
	}
	if registry != nil {
		registry.MustRegister(watch)
	}
	f.begun(log, fmt.Sprintf("profiling %s for %s; what waits is kept in %s", f.node, address, f.data), "node", f.node, "server", address, "data", f.data)
	return watch.Run(ctx)
}

// ownLabels are those that an agent finds out itself.
var ownLabels = []string{"node", "service", "container", "unit", "k8s.pod.uid", "executable", "language"}

// checkNodeLabels refuses labels that would hide what an agent finds out.
func checkNodeLabels(labels map[string]string) error {
	for name := range labels {
		if slices.Contains(ownLabels, name) {
			return fmt.Errorf("%s: agents find this out themselves: call it something else", name)
		}
	}
	return wire.CheckLabels(labels)
}

// relay reaches the relay that the server names, as the server is reached.
func (f *agentFlags) relay(address string) (agent.Intake, error) {
	to := f.clientFlags
	to.server = address
	client, address, err := to.client()
	if err != nil {
		return nil, err
	}
	return remote.New(client, address), nil
}

// openRecords opens the spool of an agent's records beside that of its windows. It may take a
// sixteenth of the room of that: a server of an earlier version does not keep records, and
// they wait for it to be upgraded.
func openRecords(data string, spoolBytes int64) (*spool.Spool, error) {
	return spool.Open(filepath.Join(data, "spool", "records"), spoolBytes/16)
}
