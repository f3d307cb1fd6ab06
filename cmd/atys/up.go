package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/promexport"
	"atys.dev/atys/internal/spool"
)

// How much may wait for a server, and how long who watches for the first window.
const (
	spoolBytes  = 1 << 30
	firstWindow = 3 * time.Second
)

func upCommand() *cobra.Command {
	var f serverFlags
	var b budgetFlags
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
themselves. Elsewhere it wants TLS, and everybody a token or a certificate.

--max-cpu and --max-memory are of all of it, the server and the store included.`,
		Example: `  atys up
  atys up --data /var/lib/atys --listen 127.0.0.1:4300
  atys up --listen :4300 --tls-cert server.pem --tls-key server.key --tokens tokens`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), func(ctx context.Context, log *slog.Logger) error { return up(ctx, f, b, log) })
		},
	}
	f.add(c)
	b.add(c, serverShare, defaultUpMemory)
	return c
}

// up opens what the agent and the server stand on, in the order in which each
// needs the one before, and closes it in the reverse one.
func up(ctx context.Context, f serverFlags, b budgetFlags, log *slog.Logger) (err error) {
	budget, err := b.budget()
	if err != nil {
		return err
	}
	functions := promexport.NewFunctions(nil)
	account := cputime.New()
	h, err := f.build(log, account, functions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	waiting, err := spool.Open(filepath.Join(f.data, "spool"), spoolBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	records, err := openRecords(f.data, spoolBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	machine, err := openStation(budget.Memory, b.rows, b.cache, account, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, machine.Close()) }()
	node, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this machine: %w", err)
	}
	here := chargedServer{h.server, account}
	watch, err := agent.New(agent.Options{Node: node, Version: version(), Record: machine.record, OffCPU: b.offCPU, Spool: waiting, Records: records, Intake: here, Fleet: here,
		Functions: functions, First: firstWindow, Budget: budget, Account: account, Limit: machine.limit, Shed: machine.shed, Unwinding: machine.unwinding(), Cache: machine.cached(), Ready: machine.ready, Life: filepath.Join(f.data, "agent.life"), Log: log})
	if err != nil {
		return err
	}
	h.registry.MustRegister(watch)
	f.begun(log, fmt.Sprintf("profiling everything on %s; %s shows it, %s keeps it", node, h.address, f.data), "node", node, "address", h.address, "data", f.data)
	return h.serve(ctx, watch.Run)
}
