package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/proc/footprint"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/vacant"
)

// once is one agent, measured from outside for a while.
type once struct {
	startup          time.Duration // CPU time before that
	user, bpf        float64       // cores
	interrupts       float64       // a second
	first, last      footprint.Footprint
	busy             float64 // of all CPUs: how much was not idle
	said             map[string]float64
	server           float64 // cores of the server; 0: it was away
	windows, samples int
	targets          int // of whom there were samples
}

// cores is all that the agent took.
func (o *once) cores() float64 { return o.user + o.bpf + o.interrupts*interrupt.Seconds() }

// measure runs an agent, and a server that it ships to or one that is away.
func measure(ctx context.Context, atys, dir string, shipping bool) (o once, err error) {
	dir, err = os.MkdirTemp(dir, "round")
	if err != nil {
		return o, err
	}
	ports := [2]int{}
	for i := range ports {
		if ports[i], err = vacant.Port(); err != nil {
			return o, err
		}
	}
	address, metrics := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	var server *process.Process
	if shipping {
		if server, err = process.StartServer(address, atys, "server", "--data", filepath.Join(dir, "server"), "--listen", address); err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, server.End(time.Minute)) }()
	}
	data := filepath.Join(dir, "agent")
	if err := os.Mkdir(data, 0o700); err != nil {
		return o, err
	}
	args := []string{"agent", "--server", "http://" + address, "--data", data, "--metrics", metrics}
	if shipping {
		args = append(args, "--token-file", harness.OperatorToken(filepath.Join(dir, "server")))
	}
	if *more != "" {
		args = append(args, *more)
	}
	agent, err := process.StartServer(metrics, atys, args...)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, agent.End(time.Minute)) }()
	if err := harness.Sleep(ctx, *settle); err != nil {
		return o, err
	}
	if err := o.watch(ctx, agent, server, metrics); err != nil {
		return o, fmt.Errorf("%w: %s", err, agent.Log())
	}
	if shipping {
		if err := o.ask(ctx, atys, address); err != nil {
			return o, err
		}
		if *keep != "" {
			_, err = harness.Run(ctx, atys, "query", "merge", `{executable="atys"}`, "--from", "-1h", "-o", *keep, "--server", "http://"+address)
		}
	}
	return o, err
}

// watch measures between two moments.
func (o *once) watch(ctx context.Context, agent, server *process.Process, metrics string) (err error) {
	pid := agent.PID()
	before, err := said(ctx, metrics)
	if err != nil {
		return err
	}
	idle, err := proc.Machine{}.IdleTime()
	if err != nil {
		return err
	}
	var serverCPU time.Duration
	if server != nil {
		if serverCPU, err = footprint.CPU(server.PID()); err != nil {
			return err
		}
	}
	began := time.Now()
	if o.first, err = footprint.Of(pid); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, *length); err != nil {
		return err
	}
	if o.last, err = footprint.Of(pid); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	o.startup = o.first.CPU
	o.user = (o.last.CPU - o.first.CPU).Seconds() / took
	o.bpf = (o.last.RunTime - o.first.RunTime).Seconds() / took
	o.interrupts = float64(o.last.SampleRuns-o.first.SampleRuns) / took
	if server != nil {
		now, err := footprint.CPU(server.PID())
		if err != nil {
			return err
		}
		o.server = (now - serverCPU).Seconds() / took
	}
	rested, err := proc.Machine{}.IdleTime()
	if err != nil {
		return err
	}
	all, err := proc.Machine{}.OnlineCPUs()
	if err != nil {
		return err
	}
	o.busy = 1 - (rested-idle).Seconds()/took/float64(len(all))
	after, err := said(ctx, metrics)
	if err != nil {
		return err
	}
	o.said = map[string]float64{}
	for name, value := range after {
		if o.said[name] = value; strings.HasPrefix(name, "atys_agent_cpu_seconds_total") {
			o.said[name] = (value - before[name]) / took
		}
	}
	return nil
}

// said is what the agent tells Prometheus of itself.
func said(ctx context.Context, address string) (map[string]float64, error) {
	page, err := harness.Get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil && strings.HasPrefix(name, "atys_agent_") {
			all[name] = value
		}
	}
	return all, nil
}

// ask counts what arrived of the time that was measured.
func (o *once) ask(ctx context.Context, atys, address string) error {
	const late = 20 * time.Second // a window is cut, then shipped within five seconds
	if err := harness.Sleep(ctx, late); err != nil {
		return err
	}
	from, end := fmt.Sprintf("-%ds", int((*length+late).Seconds())), fmt.Sprintf("-%ds", int(late.Seconds()))
	out, err := harness.Run(ctx, atys, "query", "windows", "--from", from, "--to", end, "-n", "10000", "-o", "json", "--server", "http://"+address)
	if err != nil {
		return err
	}
	var list struct {
		Windows []struct {
			Labels map[string]string `json:"labels"`
			N      string            `json:"n"`
		} `json:"windows"`
	}
	text := out.Output // with what was said on standard error before or behind it
	from0, to := strings.IndexByte(string(text), '{'), strings.LastIndexByte(string(text), '}')
	if from0 < 0 || to < from0 {
		return fmt.Errorf("atys query windows: %s", text)
	}
	if err := json.Unmarshal(text[from0:to+1], &list); err != nil {
		return fmt.Errorf("atys query windows: %w", err)
	}
	seen := map[string]bool{}
	for _, w := range list.Windows {
		n, _ := strconv.Atoi(w.N)
		o.samples += n
		if o.windows++; n > 0 {
			seen[w.Labels["service"]] = true
		}
	}
	o.targets = len(seen)
	return nil
}
