package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/test/victims"
)

// work is what runs while we record. Java and Python are nice to the scripts,
// or there would not be 200 in a second.
type work struct {
	java, children, scripts *victims.Victim
	cancel                  context.CancelFunc
}

// Where the programs are: this runs at the top of the tree.
const (
	testdata      = "bench/soak/testdata"
	churnTestdata = "bench/churn/testdata"
)

func startWork(ctx context.Context, dir string) (w *work, err error) {
	jvm, err := choose(*java)
	if err != nil {
		return nil, err
	}
	snake, err := choose(*python)
	if err != nil {
		return nil, err
	}
	var sources []string
	for _, name := range []string{"Churning", "Made000000", "Late000000"} {
		sources = append(sources, filepath.Join(churnTestdata, name+".java"))
	}
	if _, err := harness.Run(ctx, "javac", append([]string{"--release", "11", "-d", dir}, sources...)...); err != nil {
		return nil, err
	}
	w = &work{}
	ctx, w.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			w.cancel()
			w.wait()
		}
	}()
	options := []string{"-Xmx64m", "-XX:MaxMetaspaceSize=64m", "-XX:CompileThresholdScaling=0.1", "-cp", dir, "Churning", "1000"}
	if w.java, err = victims.Start(ctx, "nice", nicely(jvm, options...)...); err != nil {
		return w, err
	}
	if w.children, err = victims.Start(ctx, "nice", nicely(snake, filepath.Join(churnTestdata, "churning.py"), "parent")...); err != nil {
		return w, err
	}
	interpreter := snake.Command[len(snake.Command)-1]
	w.scripts, err = victims.Start(ctx, "perl", filepath.Join(testdata, "scripts.pl"), fmt.Sprint(length.Seconds()), fmt.Sprint(*rate), interpreter)
	return w, err
}

func choose(name string) (runtimes.Runtime, error) {
	chosen, err := runtimes.Chosen(name)
	if err != nil {
		return runtimes.Runtime{}, err
	}
	return chosen[0], nil
}

func nicely(r runtimes.Runtime, args ...string) []string {
	return append(append([]string{"-n", "10"}, r.Command...), args...)
}

// ended tells how the work ended.
type ended struct {
	Started, Ended, Wrong, Behind int // scripts
	Seconds                       float64
	broken                        []string // programs that ended by themselves
}

// end waits for the scripts and ends the rest, which ends no other way.
func (w *work) end() (e ended, err error) {
	text, err := w.scripts.Wait()
	if err != nil {
		return e, err
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &e); err != nil {
		return e, fmt.Errorf("read what the scripts' parent said: %w", err)
	}
	for name, v := range map[string]*victims.Victim{*java: w.java, *python + "'s parent": w.children} {
		if v.Ended() {
			_, err := v.Wait()
			e.broken = append(e.broken, fmt.Sprintf("%s ended: %v", name, err))
		}
	}
	w.cancel()
	return e, nil
}

// wait waits for all; what was killed says so in its status.
func (w *work) wait() {
	for _, v := range []*victims.Victim{w.java, w.children, w.scripts} {
		if v != nil {
			_, _ = v.Wait()
		}
	}
}
