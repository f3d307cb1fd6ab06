package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// instance is one JVM of the service, with its load.
type instance struct {
	name    string
	command *exec.Cmd
	port    int
	often   float64 // how likely a request is for 300 UUIDs, and not for 100

	client         *http.Client
	few, many      atomic.Int64 // requests that were answered
	late, mistaken atomic.Int64 // that were not sent, and not answered
}

// startInstance starts a JVM, which ends with ctx.
func startInstance(ctx context.Context, java, classes, name string, often float64) (*instance, error) {
	i := &instance{name: name, often: often, client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: flights}}}
	// Without the property, Java's HTTP server before 25 mostly waits.
	i.command = exec.CommandContext(ctx, java, "-Dsun.net.httpserver.nodelay=true", "-cp", classes, "RandomGen")
	i.command.Env = append(os.Environ(), "OTEL_SERVICE_NAME="+service, "OTEL_RESOURCE_ATTRIBUTES=service.instance.id="+name)
	out, err := i.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	i.command.Stderr = os.Stderr
	if err := i.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s tells no port: %w", java, err)
	}
	i.port, err = strconv.Atoi(strings.TrimSpace(line))
	return i, err
}

// flights is how many requests an instance has at once, at most: what comes while
// there are so many is counted, and not sent.
const flights = 64

// load sends requests as a Poisson process has them, each after an exponential
// interval whether those before were answered or not, until ctx ends.
func (i *instance) load(ctx context.Context, rate float64, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 208))
	var flying sync.WaitGroup
	defer flying.Wait()
	free := make(chan struct{}, flights)
	for next := time.Now(); ctx.Err() == nil; {
		next = next.Add(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
		many := r.Float64() < i.often
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return
		}
		select {
		case free <- struct{}{}:
			flying.Go(func() {
				i.request(ctx, many)
				<-free
			})
		default:
			i.late.Add(1)
		}
	}
}

func (i *instance) request(ctx context.Context, many bool) {
	path, count := "100", &i.few
	if many {
		path, count = "300", &i.many
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/%s", i.port, path), nil)
	if err == nil {
		var response *http.Response
		if response, err = i.client.Do(request); err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close() // it was read
		}
	}
	switch {
	case err == nil:
		count.Add(1)
	case ctx.Err() == nil:
		i.mistaken.Add(1)
	}
}
