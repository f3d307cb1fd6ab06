package main

import (
	"bufio"
	"bytes"
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
	"strings"
	"syscall"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/vacant"
)

// asked is the profile that services are sampled by.
const asked = `kind: Profile
name: moving
select: '{service=~"moving-.*"}'
frequency: {min: 19, max: 499, policy: auto, width: 0.02}
`

const window = 10 * time.Second

// mover is a service whose hotspot moves.
type mover struct {
	name    string
	command *exec.Cmd
	moves   io.ReadCloser
	moved   time.Time
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
		err = pause(ctx, 6*window)
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
	if err := os.WriteFile(profile, []byte(asked), 0o600); err != nil {
		return "", nil, err
	}
	up, err := harness.StartProcess(dir, address, atys, "up", "--listen", address, "--data", data)
	if err != nil {
		return "", nil, err
	}
	token := filepath.Join(data, "operator.token")
	for range 100 { // it takes connections a moment before it has made one
		if _, err := os.Stat(token); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if _, err := harness.Run(ctx, atys, "apply", "-f", profile, "--server", "http://"+address, "--token-file", token); err != nil {
		return "", nil, errors.Join(err, up.End())
	}
	return address, up.End, nil
}

// startMovers starts the services. Together they keep the machine's CPUs busy, but for
// what profiling takes.
func startMovers(ctx context.Context, program string) (movers []*mover, err error) {
	rng := rand.New(rand.NewPCG(*seed, 1))
	duty := max(1, 1600 / *services)
	for i := range *services {
		m := &mover{name: fmt.Sprintf("moving-%02d", i)}
		after := *settle + time.Duration(rng.Int64N(int64(*within)))
		m.command = exec.CommandContext(ctx, program, strconv.Itoa(duty), strconv.Itoa(*part), strconv.FormatInt(after.Milliseconds(), 10))
		m.command.Env = append(os.Environ(), "OTEL_SERVICE_NAME="+m.name)
		m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if m.moves, err = m.command.StdoutPipe(); err != nil {
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
		line, err := bufio.NewReader(m.moves).ReadString('\n')
		if err != nil {
			return errors.Join(fmt.Errorf("%s has not said when it moved: %w", m.name, err), ctx.Err())
		}
		at, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return err
		}
		m.moved = time.Unix(0, at)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
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
	never, early := 0, 0
	for _, m := range movers {
		windows, raisedBefore := reaction(answer.Decided, m)
		if early += raisedBefore; windows < 0 {
			never++
			continue
		}
		late = append(late, float64(windows))
	}
	slices.Sort(late)
	if len(late) == 0 {
		return errors.New("no service was sampled at a raised rate after it moved")
	}
	t.Row(fmt.Sprintf("%d%% of the time move, %d services: windows from the change to the first at the raised rate, median", *part, len(movers)), harness.Middle(late, "windows"), "3", "2")
	t.Row("- the latest", fmt.Sprintf("%.0f windows", late[len(late)-1]), "3", "2")
	t.Row("- services whose rate was never raised", strconv.Itoa(never), "0", "0")
	t.Row("- windows taken for a change before that, once it had fallen", strconv.Itoa(early), "", "")
	return nil
}

// reaction is how many windows after that in which a service moved its rate was raised;
// -1: never. It counts decisions that it had before that, too.
func reaction(all []decided, m *mover) (windows, before int) {
	change := m.moved.Truncate(window)
	last := 0.0
	for _, d := range all {
		ns, err := strconv.ParseInt(d.Start, 10, 64)
		if err != nil || d.Service != m.name {
			continue
		}
		start := time.Unix(0, ns).Add(window / 2).Truncate(window)
		if start.After(change) && d.Rate.Hertz > last && last > 0 {
			return int(start.Sub(change) / window), before
		}
		if last > 0 && d.Rate.Hertz > last {
			before++
		}
		last = d.Rate.Hertz
	}
	return -1, before
}
