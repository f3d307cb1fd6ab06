package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// running is what a workload has started.
type running struct {
	commands []*exec.Cmd
	clients  sync.WaitGroup

	mu  sync.Mutex // guards all below
	err error      // of a request that failed
}

// stop waits for all that the context given to start and load has ended.
func (r *running) stop() {
	r.clients.Wait()
	for _, c := range r.commands {
		_ = c.Wait() // killed: its status says so
	}
}

// failed tells the first request that failed while the workload ran.
func (r *running) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// start runs a program in a process group of its own, until ctx ends.
func (r *running) start(ctx context.Context, c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.Path, err)
	}
	r.commands = append(r.commands, c)
	r.clients.Go(func() {
		<-ctx.Done()
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // gone is as good
	})
	return nil
}

// startServer starts a program that prints the port it listens on, and loads it.
func (r *running) startServer(ctx context.Context, c *exec.Cmd) ([]int, error) {
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var complaints strings.Builder
	c.Stderr = &complaints
	if err := r.start(ctx, c); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s tells no port: %w: %s", c.Path, err, complaints.String())
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return nil, fmt.Errorf("%s tells no port: %w", c.Path, err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	client := &http.Client{Transport: transport, Timeout: patience}
	r.load(ctx, func(int) error { return get(ctx, client, fmt.Sprintf("http://127.0.0.1:%d/", port)) })
	return []int{c.Process.Pid}, nil
}

const (
	connections = 4
	patience    = 30 * time.Second // for one answer
)

// load repeats a request, numbered from 0, on each connection until ctx ends.
func (r *running) load(ctx context.Context, request func(number int) error) {
	for i := range connections {
		r.clients.Go(func() {
			for number := i; ctx.Err() == nil; number += connections {
				if err := request(number); err != nil && ctx.Err() == nil {
					r.mu.Lock()
					r.err = errors.Join(r.err, err)
					r.mu.Unlock()
					return
				}
			}
		})
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %.300s", url, response.Status, body)
	}
	return err
}

// Types of FastCGI's records.
const (
	cgiBegin      = 1
	cgiParameters = 4
	cgiInput      = 5
)

// fastCGI has php-fpm run a script: records of a type, the request's number,
// the length of what follows, and that.
func fastCGI(socket, script, query string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	var out []byte
	send := func(kind byte, body []byte) {
		out = append(out, 1, kind, 0, 1)
		out = binary.BigEndian.AppendUint16(out, uint16(len(body)))
		out = append(append(out, 0, 0), body...)
	}
	var parameters []byte
	for _, p := range [][2]string{{"SCRIPT_FILENAME", script}, {"REQUEST_METHOD", "GET"}, {"QUERY_STRING", query}} {
		parameters = append(append(append(parameters, byte(len(p[0])), byte(len(p[1]))), p[0]...), p[1]...)
	}
	send(cgiBegin, []byte{0, 1, 0, 0, 0, 0, 0, 0}) // as a responder; close afterwards
	send(cgiParameters, parameters)
	send(cgiParameters, nil)
	send(cgiInput, nil)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write(out); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !strings.Contains(string(answer), "done\n") {
		err = fmt.Errorf("%s?%s is not done: %.300q", script, query, answer)
	}
	return err
}
