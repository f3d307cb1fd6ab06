// Command fleet has a thousand simulated agents send to a real server, as agents do, and says what that takes and what is lost.
//
//	windows of 20 services, packed beforehand (shapes.go, pack.go)
//	   -> as many agents in a process of their own, each with its address, connections, reports and restarts (agent.go, load.go)
//	   -> atys server, watched (server.go); with -prometheus a real one that asks each agent for its hot functions
//	   -> what the server said it has, against what it has; how long flame graphs take (ask.go)
//
// With -volume it says how many bytes the same samples take in several forms (volume.go).
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/auth"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/vacant"
)

var (
	instances      = flag.String("n", "0,100,500,1000", "how many instances, one after another")
	length         = flag.Duration("d", 20*time.Minute, "length of each")
	withPrometheus = flag.Bool("prometheus", false, "have Prometheus ask each agent for its ten hottest functions, and watch it")
	withPeers      = flag.Bool("peers", false, "compare with what Pyroscope and Parca took of 100 and 1,000 instances")
	volume         = flag.Bool("volume", false, "say how many bytes samples take in several forms, instead")

	// How this program starts itself as the agents.
	agentsOf = flag.Int("agents", -1, "")
	serverAt = flag.String("server", "", "")
	tokenIn  = flag.String("token", "", "")
	port     = flag.Int("port", 0, "")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	switch {
	case *agentsOf >= 0:
		return drive(ctx, *serverAt, *tokenIn, *agentsOf, *port, *length)
	case *volume:
		return measureVolume()
	}
	var counts []int
	for _, n := range strings.Split(*instances, ",") {
		count, err := strconv.Atoi(n)
		if err != nil || count < 0 {
			return fmt.Errorf("-n %q: numbers with commas between them", *instances)
		}
		counts = append(counts, count)
	}
	if *length < 2*windowLength {
		return errors.New("-d is 20s or more")
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	harness.Header()
	var all []*measured
	for _, n := range counts {
		m, err := measure(ctx, atys, filepath.Join(dir, strconv.Itoa(n)), n)
		if err != nil {
			return fmt.Errorf("%d instances: %w", n, err)
		}
		all = append(all, m)
		if err := report(all[len(all)-1:]); err != nil { // the next one may take long
			return err
		}
	}
	if len(all) > 1 {
		if err := report(all); err != nil {
			return err
		}
	}
	if *withPeers {
		return compare(os.Stdout, all)
	}
	return nil
}

// measured is one load.
type measured struct {
	instances     int
	server, prom  watched
	seen          counts
	lost          int
	disk          int64
	service, one  time.Duration // flame graphs
	serviceLength uint32        // windows of the first
}

func measure(ctx context.Context, atys, dir string, instances int) (m *measured, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	free, err := vacant.Port()
	if err != nil {
		return nil, err
	}
	address, data := fmt.Sprintf("127.0.0.1:%d", free), filepath.Join(dir, "data")
	server, err := startDaemon(address, atys, "server", "--data", data, "--listen", address)
	if err != nil {
		return nil, err
	}
	m = &measured{instances: instances}
	from := time.Now().Add(-windowLength)
	if err := m.load(ctx, server, address, dir, data); err != nil {
		return nil, errors.Join(err, server.End(time.Minute))
	}
	a, err := newAsker("http://"+address, token(data), from, time.Now().Add(windowLength))
	if err == nil {
		err = m.ask(ctx, a)
	}
	if err := errors.Join(err, server.End(time.Minute)); err != nil {
		return nil, err
	}
	m.disk, err = sizeOf(filepath.Join(data, "store"))
	return m, err
}

// token is what the server's operator asks with.
func token(data string) func() (string, error) {
	return func() (string, error) { return auth.ReadSecret(filepath.Join(data, "operator.token")) }
}

// load has agents send for a while, and watches.
func (m *measured) load(ctx context.Context, server *daemon, address, dir, data string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"-agents", strconv.Itoa(m.instances), "-server", "http://" + address, "-token", filepath.Join(data, "operator.token"), "-d", length.String()}
	var prom *daemon
	if *withPrometheus {
		free, err := vacant.Port()
		if err != nil {
			return err
		}
		args = append(args, "-port", strconv.Itoa(free))
		if prom, err = startPrometheus(dir, m.instances, free); err != nil {
			return err
		}
		defer func() { _ = prom.End(time.Minute) }() // what it took is known by then
	}
	agents := exec.CommandContext(ctx, self, args...)
	var complaints bytes.Buffer
	agents.Stderr = &complaints
	said, err := agents.StdoutPipe()
	if err != nil {
		return err
	}
	if err := agents.Start(); err != nil {
		return err
	}
	told := bufio.NewReader(said)
	_, err = told.ReadString('\n') // that they begin
	watching, stop := context.WithCancel(ctx)
	var serverErr, promErr error
	var watches sync.WaitGroup
	watches.Go(func() { m.server, serverErr = server.watch(watching) })
	if prom != nil {
		watches.Go(func() { m.prom, promErr = prom.watch(watching) })
	}
	if err == nil {
		err = json.NewDecoder(told).Decode(&m.seen)
	}
	stop()
	watches.Wait()
	if err := cmp.Or(agents.Wait(), err, serverErr, promErr); err != nil {
		return fmt.Errorf("%w: %s", err, complaints.Bytes())
	}
	return nil
}

func (m *measured) ask(ctx context.Context, a *asker) error {
	if m.instances == 0 {
		return nil
	}
	kept, err := a.kept(ctx)
	if err != nil {
		return err
	}
	m.lost = lost(m.seen.Windows, kept)
	if m.service, m.serviceLength, err = a.graph(ctx, `{service="service-00"}`); err != nil {
		return err
	}
	one := ""
	for instance := range m.seen.Windows {
		if one == "" || m.seen.Windows[instance] > m.seen.Windows[one] {
			one = instance
		}
	}
	m.one, _, err = a.graph(ctx, fmt.Sprintf("{instance=%q}", one))
	return err
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func report(all []*measured) error {
	table := &harness.Table{}
	table.Row("instances", "memory mean / peak / end", "CPU", "sent to durable p50 / p99 / most", "windows", "lost", "not sent", "failures", "sent, a window", "disk, a window", "flame graph of a service / an instance", "agents' CPU")
	for _, m := range all {
		n, took := m.seen.windows(), m.seen.all()
		table.Row(strconv.Itoa(m.instances), fmt.Sprintf("%d / %d / %d MB", m.server.mean>>20, m.server.peak>>20, m.server.last>>20), fmt.Sprintf("%.1f%%", 100*m.server.cores),
			fmt.Sprintf("%.1f / %.1f / %.0f ms", milliseconds(quantile(took, .5)), milliseconds(quantile(took, .99)), milliseconds(quantile(took, 1))),
			strconv.Itoa(n), strconv.Itoa(m.lost), strconv.Itoa(m.seen.Unsent), fmt.Sprint(len(m.seen.Failures)),
			fmt.Sprintf("%d B", m.seen.Bytes/int64(max(n, 1))), fmt.Sprintf("%d B", m.disk/int64(max(n, 1))),
			fmt.Sprintf("%.0f (%d windows) / %.0f ms", milliseconds(m.service), m.serviceLength, milliseconds(m.one)), fmt.Sprintf("%.1f%%", 100*m.seen.CPU.Seconds()/length.Seconds()))
	}
	if err := table.Print(); err != nil {
		return err
	}
	for _, m := range all {
		fmt.Printf("%d instances: CPU by minute:%s\n", m.instances, percents(m.server.minutes))
		for minute, took := range m.seen.Minutes {
			if p99 := quantile(took, .99); p99 > noticed {
				fmt.Printf("%d instances: minute %d: p50 / p99 / most: %.1f / %.1f / %.0f ms\n", m.instances, minute,
					milliseconds(quantile(took, .5)), milliseconds(p99), milliseconds(quantile(took, 1)))
			}
		}
		for _, failure := range m.seen.commonest()[:min(3, len(m.seen.Failures))] {
			fmt.Printf("%d instances: %d times: %s\n", m.instances, m.seen.Failures[failure], failure)
		}
		if *withPrometheus {
			fmt.Printf("%d instances: Prometheus: memory mean %d, peak %d MB, CPU %.1f%%\n", m.instances, m.prom.mean>>20, m.prom.peak>>20, 100*m.prom.cores)
		}
	}
	return nil
}

func percents(shares []float64) (text string) {
	for _, share := range shares {
		text += fmt.Sprintf(" %.1f%%", 100*share)
	}
	return text
}

// noticed is from when on a minute's slowest windows are told apart.
const noticed = 100 * time.Millisecond

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }
