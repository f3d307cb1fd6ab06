package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/pprof"
)

// pyroscope is the agent that pyroscope-io puts into a Python program: py-spy, which
// samples the process that it is in, and pushes a profile every window to a server. That is us.
const pyroscope = "pyroscope"

// starter runs a program with the agent in it, which begins with a window. Threads are
// sampled whether or not they hold the interpreter's lock: torch gives it away.
const starter = `import runpy, sys, threading, time
site, address, hertz, window = sys.argv[1:5]
sys.path.insert(0, site)
import pyroscope
def begin():
    pyroscope.configure(application_name="workload", server_address=address, sample_rate=int(hertz), gil_only=False, upload_interval=int(window))
threading.Timer(-time.time() % int(window), begin).start()
sys.argv = sys.argv[5:]
runpy.run_path(sys.argv[0], run_name="__main__")`

// intake takes what the agent pushes.
type intake struct {
	server *http.Server

	mu      sync.Mutex // guards all below
	pushed  []*profile.Window
	refused error // why a push could not be read
}

// takeIn listens for the agent, and gives what makes a command of Python one with the agent in it.
func takeIn(hz float64, window time.Duration) (in *intake, wrap func(command []string) []string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, nil, err
	}
	site := filepath.Join(cache, "atys", "peers", pyroscope)
	if _, err := os.Stat(filepath.Join(site, pyroscope)); err != nil {
		return nil, nil, fmt.Errorf("no pyroscope-io: python3 -m pip install --no-deps --only-binary :all: --python-version 3.11 --target %s pyroscope-io==1.4.0", site)
	}
	if window%time.Second != 0 {
		return nil, nil, errors.New("pyroscope pushes after whole seconds: -window is such")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	in = &intake{}
	in.server = &http.Server{Handler: http.HandlerFunc(in.push), ReadHeaderTimeout: time.Minute}
	go func() { _ = in.server.Serve(listener) }() // until Close
	return in, func(command []string) []string {
		return append([]string{command[0], "-c", starter, site, "http://" + listener.Addr().String(),
			strconv.FormatFloat(hz, 'f', 0, 64), strconv.Itoa(int(window.Seconds()))}, command[1:]...)
	}, nil
}

// push takes a profile. One that cannot be read ends the recording.
func (in *intake) push(w http.ResponseWriter, r *http.Request) {
	pushed, err := readPush(r)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pushed = append(in.pushed, pushed...)
	in.refused = errors.Join(in.refused, err)
	w.Header().Set("Content-Type", "application/proto")
}

// mostPushed bounds what is read of one.
const mostPushed = 64 << 20

// readPush reads a push.v1.PushRequest: series (1), each with samples (2), each with a
// profile of pprof's (1).
func readPush(r *http.Request) (windows []*profile.Window, err error) {
	unpacked, err := gzip.NewReader(io.LimitReader(r.Body, mostPushed))
	if err != nil {
		return nil, fmt.Errorf("read push: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(unpacked, mostPushed))
	if err != nil {
		return nil, fmt.Errorf("read push: %w", err)
	}
	for _, series := range fields(body, 1) {
		for _, sample := range fields(series, 2) {
			for _, raw := range fields(sample, 1) {
				w, err := pprof.Read(bytes.NewReader(raw))
				if err != nil {
					return nil, err
				}
				count(w)
				windows = append(windows, w)
			}
		}
	}
	return windows, nil
}

// fields are the contents of one field of a message.
func fields(message []byte, number protowire.Number) (all [][]byte) {
	for len(message) > 0 {
		n, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return all
		}
		message = message[length:]
		if length = protowire.ConsumeFieldValue(n, kind, message); length < 0 {
			return all
		}
		if n == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			all = append(all, value)
		}
		message = message[length:]
	}
	return all
}

// count finds how many samples rows have, of which the profile tells the time only.
func count(w *profile.Window) {
	for i, r := range w.Rows.All() {
		if period := w.Types[0].Period; period > 0 {
			w.Rows.N[i] = max((r.Values[0]+period/2)/period, 1)
		}
	}
}

// until gives the profile of the window that ends then, or of one before; nothing where
// none has come.
func (in *intake) until(ctx context.Context, end time.Time) (*profile.Window, error) {
	const late = 2 * time.Second // that the agent pushes after the window
	if err := harness.Sleep(ctx, time.Until(end)+late); err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.pushed) == 0 {
		return &profile.Window{}, in.refused
	}
	first := in.pushed[0]
	in.pushed = in.pushed[1:]
	return first, in.refused
}

func (in *intake) Close() error { return in.server.Close() }
