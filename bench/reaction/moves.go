package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/vacant"
)

// asked is the profile that services are sampled by.
const asked = `kind: Profile
name: moving
select: '{service=~"moving-.*"}'
frequency: {min: 19, max: %d, policy: auto, width: 0.03}
`

// highest is the rate that it is raised to after a change.
const highest = 1999

const window = 10 * time.Second

// mover is a service whose hotspot moves.
type mover struct {
	name    string
	command *exec.Cmd
	says    io.ReadCloser
	moved   []time.Time
}

// measureReaction has services move, and asks afterwards how they were sampled.
func measureReaction(ctx context.Context, t *harness.Table, dir, atys, program string) error {
	address, end, err := startFleet(ctx, dir, atys)
	if err != nil {
		return err
	}
	movers, err := startMovers(ctx, program)
	if err == nil {
		err = waitForMoves(ctx, movers)
	}
	if err == nil { // the change, and what is decided by it, are to be seen
		err = harness.Sleep(ctx, 6*window)
	}
	for _, m := range movers {
		_ = m.command.Process.Kill()
		_ = m.command.Wait() // it was killed: no status says anything
	}
	if err == nil {
		err = report(ctx, t, atys, address, movers)
	}
	return errors.Join(err, end())
}

// startFleet starts a server and an agent, with the profile.
func startFleet(ctx context.Context, dir, atys string) (address string, end func() error, err error) {
	port, err := vacant.Port()
	if err != nil {
		return "", nil, err
	}
	address = fmt.Sprintf("127.0.0.1:%d", port)
	data, profile := filepath.Join(dir, "up"), filepath.Join(dir, "moving.yaml")
	if err := os.WriteFile(profile, fmt.Appendf(nil, asked, highest), 0o600); err != nil {
		return "", nil, err
	}
	up, err := process.StartServer(address, atys, "up", "--listen", address, "--data", data)
	if err != nil {
		return "", nil, err
	}
	if _, err := harness.Run(ctx, atys, "apply", "-f", profile, "--server", "http://"+address, "--token-file", harness.OperatorToken(data)); err != nil {
		return "", nil, errors.Join(err, up.End(time.Minute))
	}
	return address, func() error { return up.End(time.Minute) }, nil
}

// startMovers starts the services. Together they keep the machine's CPUs busy, but for
// what profiling takes.
func startMovers(ctx context.Context, program string) (movers []*mover, err error) {
	rng := rand.New(rand.NewPCG(*seed, 1))
	duty := max(1, 1600 / *services)
	for i := range *services {
		m := &mover{name: fmt.Sprintf("moving-%02d", i)}
		args, after := []string{strconv.Itoa(duty), strconv.Itoa(*part)}, time.Duration(0)
		for range *moves {
			after += *stays + time.Duration(rng.Int64N(int64(*within)))
			args = append(args, strconv.FormatInt(after.Milliseconds(), 10))
		}
		m.command = exec.CommandContext(ctx, program, args...)
		m.command.Env = append(os.Environ(), "OTEL_SERVICE_NAME="+m.name)
		m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if m.says, err = m.command.StdoutPipe(); err != nil {
			return movers, err
		}
		if err := m.command.Start(); err != nil {
			return movers, err
		}
		movers = append(movers, m)
	}
	return movers, nil
}

func waitForMoves(ctx context.Context, movers []*mover) error {
	for _, m := range movers {
		said := bufio.NewScanner(m.says)
		for len(m.moved) < *moves {
			if !said.Scan() {
				return errors.Join(fmt.Errorf("%s has not said when it moved: %w", m.name, cmp.Or(said.Err(), io.ErrUnexpectedEOF)), ctx.Err())
			}
			at, err := strconv.ParseInt(said.Text(), 10, 64)
			if err != nil {
				return err
			}
			m.moved = append(m.moved, time.Unix(0, at))
		}
	}
	return nil
}

// decided is a window of a service, as atys query rates prints it.
type decided struct {
	Service string `json:"service"`
	Start   string `json:"startUnixNano"`
	Rate    struct {
		Hertz  float64 `json:"hertz"`
		Reason string  `json:"reason"`
	} `json:"rate"`
}

// report says how many windows after that of the change the raised rate held.
func report(ctx context.Context, t *harness.Table, atys, address string, movers []*mover) error {
	var out bytes.Buffer
	c := exec.CommandContext(ctx, atys, "query", "rates", `{service=~"moving-.*"}`, "--all", "--from", "-1h", "-o", "json", "--server", "http://"+address)
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Run(); err != nil {
		return err
	}
	var answer struct{ Decided []decided }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return err
	}
	var late []float64
	never, between, already := 0, 0, 0
	for _, m := range movers {
		rates := ratesOf(answer.Decided, m.name)
		raised := raises(rates)
		for _, at := range m.moved {
			change := at.Truncate(window)
			if rates.at(change)*raise > highest { // nothing is left to raise
				already++
				continue
			}
			i := slices.IndexFunc(raised, func(r time.Time) bool { return r.After(change) })
			if i < 0 || raised[i].Sub(change) >= *stays {
				never++
				continue
			}
			late = append(late, float64(raised[i].Sub(change)/window))
			raised = slices.Delete(raised, i, i+1)
		}
		between += len(raised)
	}
	if len(late) == 0 {
		return errors.New("no service was sampled at a raised rate after it moved")
	}
	t.Row(fmt.Sprintf("%d%% of the time move, %d times: from that window to the first at the raised rate, median", *part, len(late)+never), harness.Middle(late, "windows"), "3", "2")
	t.Row("- the latest", fmt.Sprintf("%.0f windows", slices.Max(late)), "3", "2")
	t.Row("- never raised", strconv.Itoa(never), "0", "0")
	t.Row("- sampled at the highest rate when they moved", strconv.Itoa(already), "", "")
	t.Row("- raised where nothing moved", strconv.Itoa(between), "", "")
	return nil
}

// raise is how many times as high a rate is at least that counts as raised.
const raise = 1.2

// rated is a window, and at what rate it was sampled.
type rated struct {
	start time.Time
	hertz float64
}

// course is all windows of a service, one after the other.
type course []rated

func ratesOf(all []decided, service string) (c course) {
	for _, d := range all {
		if ns, err := strconv.ParseInt(d.Start, 10, 64); err == nil && d.Service == service {
			c = append(c, rated{time.Unix(0, ns).Add(window / 2).Truncate(window), d.Rate.Hertz})
		}
	}
	return c
}

// at is the rate of the window that begins then; 0: there is none.
func (c course) at(start time.Time) float64 {
	for _, r := range c {
		if r.start.Equal(start) {
			return r.hertz
		}
	}
	return 0
}

// raises are the windows from which on the rate was a higher one.
func raises(c course) (raised []time.Time) {
	for i := 1; i < len(c); i++ {
		if c[i-1].hertz > 0 && c[i].hertz > raise*c[i-1].hertz {
			raised = append(raised, c[i].start)
		}
	}
	return raised
}
